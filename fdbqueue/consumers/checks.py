"""Checks: registered consumers are alive, and dead ones left nothing behind."""

from __future__ import annotations

from functools import partial

from ..messages.checks.audit import Audit
from ..schema.codec.consumers import ConsumerRecord, ConsumerRef, Request, unpack_state
from ..schema.keys import Kind, LineKeys
from . import registry, sessions, wakeups
from .line import remove
from .states import ConsumerState


def consumers(audit: Audit, begin: bytes) -> bytes:
    """Every registered consumer is alive."""
    scope, keys = audit.scope, audit.scope.keys
    rows, following = audit.page(Kind.CONSUMER, begin)
    found = []
    for kv in rows:
        session, consumer = keys.consumer.parse(kv.key)
        record = ConsumerRecord.unpack(kv.value)
        ref = ConsumerRef(consumer, record.priority, session, record.subscription)
        found.append((ref, record.name))
    alive = sessions.alive(audit.tr, scope.root, keys, scope.clock, [one for one, _ in found])
    for (one, name), lives in zip(found, alive, strict=True):
        if not lives:
            _report(audit, one, f"{name!r} is gone" if name else "it waited, and is gone")
    return following


def states(audit: Audit, begin: bytes) -> bytes:
    """Every consumer on a list is registered."""
    keys = audit.scope.keys
    rows, following = audit.page(Kind.STATE, begin)
    found = []
    for kv in rows:
        subscription, _, priority, consumer = keys.parse_state(kv.key)
        session, _ = unpack_state(kv.value)
        found.append(ConsumerRef(consumer, priority, session, subscription))
    records = [audit.reads.get(keys.consumer(one.session, one.id)) for one in found]
    for one, record in zip(found, records, strict=True):
        if not record.present():
            _report(audit, one, "it is on a list, and not registered")
    return following


def sleepers(audit: Audit, begin: bytes) -> bytes:
    """Every sleeper is listed as interested since the version in its key."""
    keys = audit.scope.keys
    rows, following = audit.page(Kind.SLEEPER, begin)
    parsed = [keys.parse_sleeper(kv.key) for kv in rows]
    listed = [
        audit.reads.get(keys.state(subscription, ConsumerState.INTERESTED, priority, consumer))
        for subscription, priority, _, consumer in parsed
    ]
    for kv, (_, _, since, consumer), value in zip(rows, parsed, listed, strict=True):
        if wakeups.since_of(value.value) != since:
            detail = "no such consumer waits"
            audit.report("sleeper astray", consumer.hex(), detail, partial(audit.tr.clear, kv.key))
    return following


def requests(audit: Audit, begin: bytes) -> bytes:
    """Every request in the queue's own line has a living consumer."""
    line = audit.scope.keys.line
    rows, following = audit.page(Kind.REQUEST, begin)
    for kv in rows:
        _check_request(audit, line, *line.parse_request(kv.key), kv.value)
    return following


def lines(audit: Audit, begin: bytes) -> bytes:
    """Every line of a subscription belongs to one that exists, and each of its requests has a
    living consumer."""
    keys, names = audit.scope.keys, {each.name for each in audit.scope.subscriptions}
    rows, following = audit.page(Kind.LINE, begin)
    for kv in rows:
        subscription, index, claim = keys.parse_line(kv.key)
        if subscription not in names:
            detail = "there is no such subscription"
            audit.report("line orphaned", subscription, detail, partial(audit.tr.clear, kv.key))
        elif index is not None and claim is not None:
            _check_request(audit, keys.line_of(subscription), index, claim, kv.value)
    return following


def _check_request(audit: Audit, line: LineKeys, index: int, claim: bytes, value: bytes) -> None:
    if Request.unpack(value).alive_until <= audit.scope.version(audit.tr):
        repair = partial(remove, audit.tr, line, index, claim)
        audit.report("request of the dead", claim.hex(), "its consumer is gone", repair)


def _report(audit: Audit, consumer: ConsumerRef, detail: str) -> None:
    repair = partial(registry.unregister, audit.tr, audit.scope.keys, consumer)
    audit.report("consumer dead", consumer.id.hex(), detail, repair)
