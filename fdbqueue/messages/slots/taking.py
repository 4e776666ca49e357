"""Taking slots: a message passes its gates one after the other, its key and its limits.

At each it takes a free slot, or waits there for one while it holds those of the gates before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

from msgspec.structs import replace

from ...schema import due
from ...schema.envelope import Envelope
from ...schema.key_kinds import KindKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.limits import Gate
from . import backlog, gates, key_limits, permits, rates
from .permits import Numbers, Permit, Permits
from .rates import Pace


class GateLimits(NamedTuple):
    """The reads of what a key or a limit may do and does, issued and not awaited.

    own: its LIMITS. held: by kind of permit, the rows that are held; None if the queue has no such
    limit, and so probably the key has none. rate: its RATE; None if no key of the queue has a rate.
    """

    own: fdb.Value
    held: list[permits.PermitReads | None]
    rate: fdb.Value | None


class GateReads(NamedTuple):
    """The reads of a key or a limit, issued and not awaited.

    last: the last message that waits. limits: None where it probably has a backlog, since it
    had one lately: then they do not matter.
    """

    backlog: fdb.Value
    last: fdb.FDBRange
    limits: GateLimits | None


def reads(tr: fdb.Transaction, scope: Scope, envelopes: Sequence[Envelope]) -> Way | None:
    """Issue the reads of the keys and limits that messages have. None if no message has any."""
    wanted = dict.fromkeys([gate for envelope in envelopes for gate in envelope.gates])
    return Way(tr, scope, wanted) if wanted else None


def issue_gate(tr: fdb.Transaction, scope: Scope, gate: Gate) -> GateReads:
    """Issue the reads of a key or a limit: what is held, and the last message that waits, at
    snapshot isolation. ``Taking`` adds the conflicts: most messages do not come to all gates."""
    keys = gates.keys(scope, gate)
    known = tr.snapshot.get(keys.backlog(gate)), backlog.last(tr, keys, gate)
    return GateReads(*known, None if gate in scope.waited else _limits(tr, scope, gate))


def _limits(tr: fdb.Transaction, scope: Scope, gate: Gate) -> GateLimits:
    keys, options = gates.keys(scope, gate), scope.options
    # A limit of the root usually has been set.
    usual = (options.keys.concurrency, options.keys.window) if isinstance(gate, str) else (1, None)
    kinds = zip(permits.kinds(keys), usual, strict=True)
    return GateLimits(
        tr.snapshot.get(keys.limits(gate)),
        [None if n is None else permits.part(tr.snapshot, rows, gate, n) for rows, n in kinds],
        rates.issue_rate(tr, scope, gate),
    )


@final
class Way:
    """The gates that messages of a transaction may come to, in any of the queues of its root; the
    keys are those of one queue. The reads are issued at once, and a gate that no message comes to
    conflicts with nothing."""

    __slots__ = ("_opened", "_reads", "_scope", "_tr")

    def __init__(self, tr: fdb.Transaction, scope: Scope, wanted: Iterable[Gate]) -> None:
        self._tr, self._scope = tr, scope
        self._reads = {gate: issue_gate(tr, scope, gate) for gate in wanted}
        self._opened: dict[Gate, Taking] = {}

    def take(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Let new messages pass their gates; returns all, those that have to wait with turns.

        What a message does not hold is not in its envelope.
        """
        return [
            self.go_on(self._scope, replace(each, envelope=each.envelope.outside()), ahead)
            if (ahead := each.envelope.gates)
            else each
            for each in messages
        ]

    def go_on(self, scope: Scope, message: StoredMessage, ahead: Sequence[Gate]) -> StoredMessage:
        """Let a message of a queue pass gates, up to the first at which it has to wait; returns it
        with what it holds then, and its turn if it waits."""
        envelope = message.envelope
        for gate in ahead:
            taking = self._opened.get(gate)
            if taking is None:
                taking = Taking(self._tr, self._scope, gate, self._reads[gate])
                self._opened[gate] = taking
            given = taking.give(scope, message.position.level, message.id)
            if given is None:
                waits = replace(message, envelope=envelope)
                # It waits with the slots of the gates before: all pass gates in one order, so no
                # two wait for each other.
                return backlog.put(self._tr, scope, gate, waits, taking.following())
            envelope = envelope.passed(gate, *given)
        return StoredMessage(message.position, envelope)


@final
class Taking:
    """A key or a limit in a transaction in which messages come to it.

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

    def __init__(self, tr: fdb.Transaction, scope: Scope, gate: Gate, reads: GateReads) -> None:
        self._tr, self._scope, self.gate, self._reads = tr, scope, gate, reads
        self._keys = gates.keys(scope, gate)
        # Read at snapshot isolation with the others; that there is a backlog, or none, decides
        # whether this message may pass.
        tr.add_read_conflict_key(self._keys.backlog(gate))
        self._waits = reads.backlog.present()
        self._last: int | None = None
        if self._waits:
            scope.note_backlog(gate)
            return
        scope.waited.discard(gate)
        tr.add_read_conflict_key(self._keys.limits(gate))
        own, held, paced = reads.limits or _limits(tr, scope, gate)
        self._allowed = key_limits.effective(scope, gate, own.value).allowed
        each = zip(permits.kinds(self._keys), self._allowed.numbers, held, strict=True)
        self._permits: list[Permit] = [self._look(*one) for one in each]
        if paced is not None:
            self._permits.append(Pace(tr, scope, gate, self._allowed.rate, paced))

    def _look(
        self, rows: KindKeys[Gate, int], limit: int | None, held: permits.PermitReads | None
    ) -> Permits:
        if held is None and limit is not None:  # A limit that the queue does not have.
            held = permits.part(self._tr.snapshot, rows, self.gate, limit)
        return Permits(self._tr, rows, self.gate, limit, held)

    def give(self, scope: Scope, level: int, message_id: str) -> Numbers | None:
        """What a message of a level of a queue gets to pass; None if it has to wait: then so have
        all that follow."""
        if not isinstance(self.gate, str):
            due.mark_shared(self._tr, scope.keys)
        if not self._waits:
            for given in permits.give(self._permits, [(scope, level, message_id)]):
                return given
            # With some held beyond a lowered limit, a freed one may let nobody out: then all have
            # to be counted each time.
            certain = self._allowed.rate or not any(each.over for each in self._permits)
            settled = self._allowed if certain else None
            now_ms = self._scope.now_ms(self._tr)
            backlog.begin(self._tr, self._keys, self.gate, now_ms, settled)
            self._waits = True
        return None

    def following(self) -> int:
        """The number of the next message that waits."""
        if self._last is None:
            # At snapshot isolation: two may take the same number, as enqueues take the same index;
            # random bytes tell them apart.
            self._last = backlog.number(self._keys, self._reads.last)
        self._last += 1
        return self._last
