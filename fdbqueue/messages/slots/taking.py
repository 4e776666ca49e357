"""Taking slots at enqueue: a message takes a free slot of its key or limit, or waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, final

from ...schema.codec.envelopes import Envelope
from ...schema.keys import KindKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.limits import Gate
from . import backlog, gates, limits, permits, rates
from .permits import Numbers, Permit, Permits
from .rates import Pace


class Limits(NamedTuple):
    """The reads of what a key or a limit may do and does, issued and not awaited.

    own: its LIMITS. held: by kind of permit, the rows that are held; None if the queue has no such
    limit, and so probably the key has none. rate: its RATE; None if no key of the queue has a rate.
    """

    own: fdb.Value
    held: list[fdb.FDBRange | None]
    rate: fdb.Value | None


class Reads(NamedTuple):
    """The reads of a key or a limit, issued and not awaited.

    last: the last message that waits. limits: None where it probably has a backlog, since it
    had one lately: then they do not matter.
    """

    backlog: fdb.Value
    last: fdb.FDBRange
    limits: Limits | None


def reads(
    tr: fdb.Transaction, scope: Scope, envelopes: Sequence[Envelope]
) -> dict[Gate, Reads] | None:
    """Issue the reads of the keys and limits that messages have. None if no message has any."""
    wanted = dict.fromkeys([gate for envelope in envelopes if (gate := envelope.gate)])
    return {gate: read(tr, scope, gate) for gate in wanted} if wanted else None


def read(tr: fdb.Transaction, scope: Scope, gate: Gate) -> Reads:
    """Issue the reads of a key or a limit: what is held, and the last message that waits, at
    snapshot isolation."""
    keys = gates.keys(scope, gate)
    known = tr.get(keys.backlog(gate)), backlog.last(tr, keys, gate)
    return Reads(*known, None if gate in scope.waited else _limits(tr, scope, gate))


def _limits(tr: fdb.Transaction, scope: Scope, gate: Gate) -> Limits:
    keys, options = gates.keys(scope, gate), scope.options
    # A limit of the root usually has been set.
    usual = (options.key_concurrency, options.key_window) if isinstance(gate, str) else (1, None)
    kinds = zip(permits.kinds(keys), usual, strict=True)
    return Limits(
        tr.get(keys.limits(gate)),
        [None if limit is None else permits.held(tr.snapshot, rows, gate) for rows, limit in kinds],
        rates.read(tr, scope, gate),
    )


def take(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage], found: dict[Gate, Reads]
) -> list[StoredMessage]:
    """Give each message a slot of its key or limit, or let it wait; returns all, those with turns.

    What a message does not hold is not in its envelope.
    """
    those = {gate: Taking(tr, scope, gate, reads) for gate, reads in found.items()}
    return [
        _placed(tr, scope, those[gate], message) if (gate := message.envelope.gate) else message
        for message in messages
    ]


def _placed(
    tr: fdb.Transaction, scope: Scope, taking: Taking, message: StoredMessage
) -> StoredMessage:
    given = taking.give(message.id)
    if given is None:
        return backlog.put(tr, scope, taking.gate, message, taking.following())
    slot, place = given
    return StoredMessage(message.position, replace(message.envelope, slot=slot, window=place))


@final
class Taking:
    """A key or a limit in a transaction that enqueues messages with it.

    Another round trip if one has no backlog that had one lately.
    """

    __slots__ = (
        "_allowed",
        "_keys",
        "_last",
        "_permits",
        "_reads",
        "_scope",
        "_tr",
        "_waits",
        "gate",
    )

    def __init__(self, tr: fdb.Transaction, scope: Scope, gate: Gate, reads: Reads) -> None:
        self._tr, self._scope, self.gate, self._reads = tr, scope, gate, reads
        self._keys = gates.keys(scope, gate)
        self._waits = reads.backlog.present()
        self._last: int | None = None
        if self._waits:
            scope.note_backlog(gate)
            return
        scope.waited.discard(gate)
        own, held, paced = reads.limits or _limits(tr, scope, gate)
        self._allowed = limits.effective(scope, gate, own.value).allowed
        each = zip(permits.kinds(self._keys), self._allowed.numbers, held, strict=True)
        self._permits: list[Permit] = [self._look(*one) for one in each]
        if paced is not None:
            self._permits.append(Pace(tr, scope, gate, self._allowed.rate, paced))

    def _look(
        self, rows: KindKeys[Gate, int], limit: int | None, held: fdb.FDBRange | None
    ) -> Permits:
        if held is None and limit is not None:  # A limit that the queue does not have.
            held = permits.held(self._tr.snapshot, rows, self.gate)
        return Permits(self._tr, rows, self.gate, limit, held)

    def give(self, message_id: str) -> Numbers | None:
        """What a message gets to become ready; None if it has to wait: then so have all that
        follow."""
        if not self._waits:
            for given in permits.give(self._permits, [(self._scope, message_id)]):
                return given
            certain = self._allowed.rate or not any(each.over for each in self._permits)
            settled = self._allowed if certain else None
            now_ms = self._scope.now_ms(self._tr)
            backlog.begin(self._tr, self._keys, self.gate, now_ms, settled)
            self._waits = True
        return None

    def following(self) -> int:
        """The number of the next message that waits."""
        if self._last is None:
            self._last = backlog.number(self._keys, self.gate, self._reads.last)
        self._last += 1
        return self._last
