"""Taking slots at enqueue: a message takes a free slot of its key, or waits for one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...schema.codec.envelopes import Envelope
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from . import backlog, limits


class Reads(NamedTuple):
    """The reads of a key, issued and not awaited."""

    limits: fdb.Value
    backlog: fdb.Value
    slots: fdb.FDBRange
    last: fdb.FDBRange


def reads(tr: fdb.Transaction, keys: QueueKeys, envelopes: Sequence[Envelope]) -> dict[str, Reads]:
    """Issue the reads of the keys that messages have: the slots, and the last message that waits,
    at snapshot isolation."""
    found = {}
    for key in dict.fromkeys(envelope.key for envelope in envelopes if envelope.key):
        slots = keys.slot.under(key)
        found[key] = Reads(
            tr.get(keys.limits(key)),
            tr.get(keys.backlog(key)),
            tr.snapshot.get_range(slots.start, slots.stop),
            backlog.last(tr, keys, key),
        )
    return found


def take(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage], found: dict[str, Reads]
) -> list[StoredMessage]:
    """Give each message a slot of its key, or let it wait; returns all, those with their turns.

    Whatever takes no slot has no ``slot`` in its envelope.
    """
    keys = {key: _Key(tr, scope, key, reads) for key, reads in found.items()}
    return [
        keys[message.envelope.key].place(message) if message.envelope.key else message
        for message in messages
    ]


class _Key:
    """A key in a transaction that enqueues messages with it."""

    def __init__(self, tr: fdb.Transaction, scope: Scope, key: str, reads: Reads) -> None:
        self._tr, self._scope, self._key, self._reads = tr, scope, key, reads
        self._limit = limits.effective(scope, reads.limits.value).slots
        self._waits = reads.backlog.present()
        self._settled: int | None = None
        self._free: list[int] = []
        self._last: int | None = None
        if not self._waits and self._limit is not None:
            self._look(self._limit)

    def _look(self, limit: int) -> None:
        """Find the free slots; in any order, so that others rarely want the same."""
        keys = self._scope.keys
        used = {keys.slot.parse(kv.key)[1] for kv in self._reads.slots}
        self._free = [n for n in range(limit) if n not in used]
        self._settled = limit
        if any(n >= limit for n in used):
            # The limit was higher. Then it matters how many are out, not only which slot is free.
            self._rely_on_all()
            self._free = self._free[: max(0, limit - len(used))]
            self._settled = None
        random.shuffle(self._free)

    def _rely_on_all(self) -> None:
        every = self._scope.keys.slot.under(self._key)
        self._tr.add_read_conflict_range(every.start, every.stop)

    def place(self, message: StoredMessage) -> StoredMessage:
        """Give the message a slot, or let it wait."""
        tr, keys = self._tr, self._scope.keys
        if not self._waits:
            if self._limit is None:
                return replace(message, envelope=replace(message.envelope, slot=None))
            if self._free:
                n = self._free.pop()
                held = keys.slot(self._key, n)
                tr.add_read_conflict_key(held)
                tr[held] = message.id.encode()
                return replace(message, envelope=replace(message.envelope, slot=n))
            self._rely_on_all()
            backlog.begin(tr, keys, self._key, self._scope.now_ms(tr), self._settled)
            self._waits = True
        if self._last is None:
            self._last = backlog.number(keys, self._reads.last) or 0
        self._last += 1
        return backlog.put(tr, keys, message, self._last)
