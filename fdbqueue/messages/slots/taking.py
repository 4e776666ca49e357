"""Taking slots at enqueue: a message takes a free slot of its key, or waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, final

from ...schema.codec.envelopes import Envelope
from ...schema.keys import KindKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from . import backlog, limits, permits
from .permits import Numbers, Permit, Permits
from .rates import Pace


class Limits(NamedTuple):
    """The reads of what a key may do and does, issued and not awaited.

    own: its LIMITS. held: by kind of permit, the rows that are held; None if the queue has no such
    limit, and so probably the key has none. rate: its RATE; None if no key of the queue has a rate.
    """

    own: fdb.Value
    held: list[fdb.FDBRange | None]
    rate: fdb.Value | None


class Reads(NamedTuple):
    """The reads of a key, issued and not awaited.

    last: the last message that waits. limits: None where the key probably has a backlog, since it
    had one lately: then they do not matter.
    """

    backlog: fdb.Value
    last: fdb.FDBRange
    limits: Limits | None


def reads(
    tr: fdb.Transaction, scope: Scope, envelopes: Sequence[Envelope]
) -> dict[str, Reads] | None:
    """Issue the reads of the keys that messages have. None if no message has a key."""
    wanted = dict.fromkeys([envelope.key for envelope in envelopes if envelope.key])
    return {key: read(tr, scope, key) for key in wanted} if wanted else None


def read(tr: fdb.Transaction, scope: Scope, key: str) -> Reads:
    """Issue the reads of a key: what is held, and the last message that waits, at snapshot
    isolation."""
    known = tr.get(scope.keys.backlog(key)), backlog.last(tr, scope.keys, key)
    return Reads(*known, None if key in scope.waited else _limits(tr, scope, key))


def _limits(tr: fdb.Transaction, scope: Scope, key: str) -> Limits:
    keys, options = scope.keys, scope.options
    usual = zip(permits.kinds(keys), (options.key_concurrency, options.key_window), strict=True)
    return Limits(
        tr.get(keys.limits(key)),
        [None if limit is None else permits.held(tr.snapshot, rows, key) for rows, limit in usual],
        tr.snapshot.get(keys.rate(key)) if "rates" in scope.noted else None,
    )


def take(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage], found: dict[str, Reads]
) -> list[StoredMessage]:
    """Give each message a slot of its key, or let it wait; returns all, those with their turns.

    What a message does not hold is not in its envelope.
    """
    keys = {key: Taking(tr, scope, key, reads) for key, reads in found.items()}
    return [
        _placed(tr, scope, keys[message.envelope.key], message) if message.envelope.key else message
        for message in messages
    ]


def _placed(
    tr: fdb.Transaction, scope: Scope, key: Taking, message: StoredMessage
) -> StoredMessage:
    given = key.give(message.id)
    if given is None:
        return backlog.put(tr, scope.keys, message, key.following())
    slot, place = given
    return StoredMessage(message.position, replace(message.envelope, slot=slot, window=place))


@final
class Taking:
    """A key in a transaction that enqueues messages with it.

    Another round trip if a key has no backlog that had one lately.
    """

    __slots__ = ("_allowed", "_key", "_last", "_permits", "_reads", "_scope", "_tr", "_waits")

    def __init__(self, tr: fdb.Transaction, scope: Scope, key: str, reads: Reads) -> None:
        self._tr, self._scope, self._key, self._reads = tr, scope, key, reads
        self._waits = reads.backlog.present()
        self._last: int | None = None
        if self._waits:
            scope.note_backlog(key)
            return
        scope.waited.discard(key)
        own, held, paced = reads.limits or _limits(tr, scope, key)
        self._allowed = limits.effective(scope, own.value).allowed
        each = zip(permits.kinds(scope.keys), self._allowed.numbers, held, strict=True)
        self._permits: list[Permit] = [self._look(*one) for one in each]
        if paced is not None:
            self._permits.append(Pace(tr, scope, key, self._allowed.rate, paced))

    def _look(
        self, rows: KindKeys[str, int], limit: int | None, held: fdb.FDBRange | None
    ) -> Permits[str]:
        if held is None and limit is not None:  # A limit that the queue does not have.
            held = permits.held(self._tr.snapshot, rows, self._key)
        return Permits(self._tr, rows, self._key, limit, held)

    def give(self, message_id: str) -> Numbers | None:
        """What a message gets to become ready; None if it has to wait: then so have all that
        follow."""
        if not self._waits:
            for given in permits.give(self._permits, [message_id]):
                return given
            certain = self._allowed.rate or not any(each.over for each in self._permits)
            settled = self._allowed if certain else None
            now_ms = self._scope.now_ms(self._tr)
            backlog.begin(self._tr, self._scope.keys, self._key, now_ms, settled)
            self._waits = True
        return None

    def following(self) -> int:
        """The number of the next message that waits."""
        if self._last is None:
            self._last = backlog.number(self._scope.keys, self._key, self._reads.last)
        self._last += 1
        return self._last
