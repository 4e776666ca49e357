"""Taking slots at enqueue: a message takes a free slot of its key, or waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...schema.codec.envelopes import Envelope
from ...schema.keys import KindKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from . import backlog, limits, permits
from .permits import Permits


class Reads(NamedTuple):
    """The reads of a key, issued and not awaited.

    held: by kind of permit, the rows that are held; None if the queue has no such limit, and so
    probably the key has none.
    """

    limits: fdb.Value
    backlog: fdb.Value
    held: list[fdb.FDBRange | None]
    last: fdb.FDBRange


def reads(
    tr: fdb.Transaction, scope: Scope, envelopes: Sequence[Envelope]
) -> dict[str, Reads] | None:
    """Issue the reads of the keys that messages have: what is held, and the last message that
    waits, at snapshot isolation. None if no message has a key."""
    wanted = dict.fromkeys([envelope.key for envelope in envelopes if envelope.key])
    if not wanted:
        return None
    keys, options = scope.keys, scope.options
    usual = options.key_concurrency, options.key_window
    return {
        key: Reads(
            tr.get(keys.limits(key)),
            tr.get(keys.backlog(key)),
            [
                None if limit is None else _held(tr, rows, key)
                for rows, limit in zip(permits.kinds(keys), usual, strict=True)
            ],
            backlog.last(tr, keys, key),
        )
        for key in wanted
    }


def _held(tr: fdb.Transaction, rows: KindKeys[str, int], key: str) -> fdb.FDBRange:
    every = rows.under(key)
    return tr.snapshot.get_range(every.start, every.stop)


def take(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage], found: dict[str, Reads]
) -> list[StoredMessage]:
    """Give each message a slot of its key, or let it wait; returns all, those with their turns.

    What a message does not hold is not in its envelope.
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
        self._allowed = limits.effective(scope, reads.limits.value).allowed
        self._waits = reads.backlog.present()
        self._last: int | None = None
        self._permits: list[Permits] = []
        if not self._waits:
            each = zip(permits.kinds(scope.keys), self._allowed, reads.held, strict=True)
            self._permits = [self._look(*one) for one in each]

    def _look(
        self, rows: KindKeys[str, int], limit: int | None, held: fdb.FDBRange | None
    ) -> Permits:
        if held is None and limit is not None:  # A limit that the queue does not have.
            held = _held(self._tr, rows, self._key)
        return Permits(self._tr, rows, self._key, limit, held)

    def place(self, message: StoredMessage) -> StoredMessage:
        """Give the message a slot, or let it wait."""
        tr, keys = self._tr, self._scope.keys
        if not self._waits:
            for slot, place in permits.give(self._permits, [message.id]):
                return replace(message, envelope=replace(message.envelope, slot=slot, window=place))
            settled = None if any(each.over for each in self._permits) else self._allowed
            backlog.begin(tr, keys, self._key, self._scope.now_ms(tr), settled)
            self._waits = True
        if self._last is None:
            self._last = backlog.number(keys, self._reads.last) or 0
        self._last += 1
        return backlog.put(tr, keys, message, self._last)
