"""Whether those who wait for messages are there, or what the dead have left behind."""

from __future__ import annotations

from functools import partial

from ..messages.checks.audit import Audit
from ..schema.codec.consumers import unpack_beat, unpack_consumer, unpack_request
from ..schema.keys import Kind
from . import line, registry, wakeups
from .states import ConsumerState


def consumers(audit: Audit, begin: bytes) -> bytes:
    """Every consumer that is registered lives, or is removed by others soon."""
    keys, at = audit.scope.keys, wakeups.now(audit.tr, audit.scope.clock)
    rows, following = audit.page(Kind.CONSUMER, begin)
    for kv in rows:
        record, beat = unpack_consumer(kv.value)
        if wakeups.dead(beat, at):
            consumer = keys.parse_consumer(kv.key)
            _report(audit, "consumer dead", consumer, record.priority, f"{record.name!r} is gone")
    return following


def states(audit: Audit, begin: bytes) -> bytes:
    """Everybody on a list is registered, or lives."""
    keys, at = audit.scope.keys, wakeups.now(audit.tr, audit.scope.clock)
    rows, following = audit.page(Kind.STATE, begin)
    registered = [audit.reads.get(keys.consumer(keys.parse_state(kv.key)[-1])) for kv in rows]
    for kv, known in zip(rows, registered, strict=True):
        _, priority, consumer = keys.parse_state(kv.key)
        if not known.present() and wakeups.dead(unpack_beat(kv.value)[0], at):
            _report(audit, "consumer dead", consumer, priority, "it waited, and is gone")
    return following


def sleepers(audit: Audit, begin: bytes) -> bytes:
    """Everybody who is to be woken is on the list of those who are interested, since then."""
    keys = audit.scope.keys
    rows, following = audit.page(Kind.SLEEPER, begin)
    parsed = [keys.parse_sleeper(kv.key) for kv in rows]
    listed = [
        audit.reads.get(keys.state(ConsumerState.INTERESTED, priority, consumer))
        for priority, _, consumer in parsed
    ]
    for kv, (_, since, consumer), value in zip(rows, parsed, listed, strict=True):
        if wakeups.since_of(value.value) != since:
            detail = "no such consumer waits"
            audit.report("sleeper astray", consumer.hex(), detail, partial(audit.tr.clear, kv.key))
    return following


def requests(audit: Audit, begin: bytes) -> bytes:
    """Every request in line is that of a living consumer."""
    keys, version = audit.scope.keys, audit.scope.version(audit.tr)
    rows, following = audit.page(Kind.REQUEST, begin)
    for kv in rows:
        index, claim = keys.parse_request(kv.key)
        if unpack_request(kv.value).alive_until <= version:
            mend = partial(line.remove, audit.tr, keys, index, claim)
            audit.report("request of the dead", claim.hex(), "its consumer is gone", mend)
    return following


def _report(audit: Audit, kind: str, consumer: bytes, priority: int, detail: str) -> None:
    mend = partial(registry.unregister, audit.tr, audit.scope, consumer, priority)
    audit.report(kind, consumer.hex(), detail, mend)
