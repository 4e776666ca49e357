"""Passing gates: what has passed one goes on to the next, and becomes ready behind the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...schema import change_counters, counters
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.limits import Gate
from .. import lookup, place, run
from .taking import Way


class PassedGate(NamedTuple):
    """A message of any queue that waited at a gate and has passed it, with what it holds now."""

    scope: Scope
    gate: Gate
    message: StoredMessage

    @property
    def rest(self) -> tuple[Gate, ...]:
        """The gates that it still has to pass."""
        gates = self.message.envelope.gates
        return gates[gates.index(self.gate) + 1 :] if self.gate in gates else ()


def onward(
    tr: fdb.Transaction,
    scope: Scope,
    passed: Sequence[PassedGate],
    behind: Mapping[int, place.LevelEndReads] | None = None,
) -> int:
    """Let messages that have passed a gate go on: each waits at the next one that has no slot for
    it, or becomes ready. Returns how many became ready in the queue.

    Those that have freed slots of gates, in the same transaction, have handed them over before, so
    that nobody who waits is overtaken. behind: as for ``make_ready``. Another round trip if any has
    gates left.
    """
    left = dict.fromkeys(gate for each in passed for gate in each.rest)
    ready = [(each.scope, each.message) for each in passed if not left or not each.rest]
    if left:
        # Its reads see what this transaction has just freed and handed over, so a slot that went to
        # somebody ahead is not given twice.
        way = Way(tr, scope, left)
        for each in passed:
            if each.rest:
                message = way.go_on(each.scope, each.message, each.rest)
                if message.turn is None:
                    ready.append((each.scope, message))
    make_ready(tr, scope, ready, behind)
    return sum(of.name == scope.name for of, _ in ready)


def make_ready(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[Scope, StoredMessage]],
    behind: Mapping[int, place.LevelEndReads] | None = None,
) -> None:
    """Put messages that waited behind all others of their levels, as an enqueue does.

    behind: the reads of the ends of some levels of this queue, if they have been issued.
    """
    of_level: dict[tuple[str, int], tuple[Scope, list[StoredMessage]]] = {}
    for of, message in entries:
        of_level.setdefault((of.name, message.position.level), (of, []))[1].append(message)
    ends: dict[tuple[str, int], place.LevelEndReads] = {}
    for (name, level), (of, _) in of_level.items():
        known = behind.get(level) if behind and name == scope.name else None
        # All issued before the first is used: messages of several queues cost one round trip.
        ends[name, level] = known or place.reads(tr, of.keys, level)
    for (name, level), (of, those) in of_level.items():
        envelopes = [each.envelope for each in those]
        rows = [run.NewRow([n], [each.pack()]) for n, each in enumerate(envelopes)]
        positions = run.append(tr, of, level, rows, envelopes, ends[name, level])
        # To a transition, what waits for a slot is ready already: only the counters move.
        counters.passed(tr, of.keys, level, len(those))
        messages = [*map(StoredMessage, positions, envelopes)]
        for message in messages:
            lookup.point(tr, of.keys, message, message.position)
        change_counters.announce(tr, of, messages)
