"""Checks: registered consumers are alive, and dead ones left nothing behind."""

from __future__ import annotations

from functools import partial

from ..messages.checks.verification import Audit
from ..schema.consumers import ConsumerRecord, ConsumerRef, Listed, Request
from ..schema.keys import QueueKeys
from . import registry, sessions, wakeups
from .consumer_states import ConsumerState
from .line import remove


def consumers(audit: Audit, begin: bytes) -> bytes:
    """Every registered consumer is alive."""
    scope, keys = audit.scope, audit.scope.keys
    rows, following = audit.page(QueueKeys.consumer, begin)
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
    rows, following = audit.page(QueueKeys.state, begin)
    found = []
    for kv in rows:
        subscription, _, priority, consumer = keys.state.parse(kv.key)
        session = Listed.unpack(kv.value).session
        found.append(ConsumerRef(consumer, priority, session, subscription))
    records = [audit.reads.get(keys.consumer(one.session, one.id)) for one in found]
    for one, record in zip(found, records, strict=True):
        if not record.present():
            _report(audit, one, "it is on a list, and not registered")
    return following


def sleepers(audit: Audit, begin: bytes) -> bytes:
    """Every sleeper is listed as interested since the version in its key."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.sleeper, begin)
    parsed = [keys.sleeper.parse(kv.key) for kv in rows]
    listed = [
        audit.reads.get(keys.state(subscription, ConsumerState.INTERESTED, priority, consumer))
        for subscription, priority, _, consumer in parsed
    ]
    for kv, (_, _, since, consumer), value in zip(rows, parsed, listed, strict=True):
        # The version in the key is that of the list: an entry with another one is left over, and
        # would be woken for nobody.
        if wakeups.since_of(value.value) != since:
            detail = "no such consumer waits"
            audit.report("sleeper astray", consumer.hex(), detail, partial(audit.tr.clear, kv.key))
    return following


def lines(audit: Audit, begin: bytes) -> bytes:
    """Every line is the queue's own, or that of a subscription that exists, and each of its
    requests has a living consumer."""
    keys, names = audit.scope.keys, {"", *(each.name for each in audit.scope.subscriptions)}
    rows, following = audit.page(QueueKeys.request, begin)
    version = audit.scope.version(audit.tr)
    for kv in rows:
        subscription, *_ = parts = keys.request.parse(kv.key)
        if subscription not in names:
            detail = "there is no such subscription"
            audit.report("line orphaned", subscription, detail, partial(audit.tr.clear, kv.key))
        elif len(parts) == 3 and Request.unpack(kv.value).alive_until <= version:
            repair = partial(remove, audit.tr, keys.line_of(subscription), *parts[1:])
            audit.report("request of the dead", parts[2].hex(), "its consumer is gone", repair)
    return following


def _report(audit: Audit, consumer: ConsumerRef, detail: str) -> None:
    repair = partial(registry.unregister, audit.tr, audit.scope.keys, consumer)
    audit.report("consumer dead", consumer.id.hex(), detail, repair)
