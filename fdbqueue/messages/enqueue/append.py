"""Enqueue without conflicts: behind all others, by snapshot reads alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ...schema import change_counters
from ...schema.envelope import Envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.model import Position
from ...values.states import ENQUEUE, SCHEDULE, Transition
from .. import place, run, transitions
from ..slots import taking
from . import delayed, last_values

Entries = Sequence[tuple[int, Envelope]]
"""Messages, each with its level."""


class Appended(Struct, frozen=True, gc=False):
    """Messages that were appended.

    ids: that name their places, in their order. placed: the numbers of those of each row, and the
    place of its first. alone: those that may share no row, by their numbers, as they are stored.
    """

    entries: Entries
    ids: list[str]
    placed: Sequence[tuple[Sequence[int], Position]]
    alone: Mapping[int, StoredMessage]

    def messages(self) -> Iterator[StoredMessage]:
        """All of them, as they are stored, in their order."""
        found = dict(self.alone)
        for numbers, first in self.placed:
            for n, position in zip(numbers, run.members(first, len(numbers)), strict=True):
                found[n] = StoredMessage(position, self.entries[n][1])
        yield from [found[n] for n in range(len(self.entries))]


def append(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Entries,
    transition: Transition = ENQUEUE,
    reads: Mapping[int, place.LevelEndReads] | None = None,
    way: taking.Way | None = None,
) -> Appended:
    """Put messages behind all others of their level, in their order; in a sorted level, among them.
    In a queue that keeps last values, the caller then lets them replace older ones, once it has
    written what belongs to them.

    They stand at consecutive indexes. Several of one level that follow each other form a block,
    which takes one index. One with side records stands alone, unless these are only the place that
    its id leads to. One with a key or a limit takes a slot of that, or waits in its backlog.

    One round trip of snapshot reads, unless the caller has issued them, by level, and those of keys
    and limits: the last READY key of each level, and TAIL. Adds a read conflict on the FENCE keys
    of the indexes that it takes, which only a cursor that passes them writes; so appends conflict
    neither with each other nor with a dequeue. With a key or a limit it conflicts only with the
    begin and the end of that backlog, with a change of its limits, and while it has no backlog with
    appends that want the same slot.
    """
    if scope.options.last_value is not None:
        entries = [(level, last_values.with_value(scope, envelope)) for level, envelope in entries]
    levels: dict[int, list[int]] = {}
    for n, (level, _) in enumerate(entries):
        levels.setdefault(level, []).append(n)
    reads = reads or {level: place.reads(tr, scope.keys, level) for level in levels}
    ids = [""] * len(entries)
    placed: list[tuple[Sequence[int], Position]] = []
    alone: dict[int, StoredMessage] = {}
    counts: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for level, some in levels.items():
        envelopes = [entries[n][1] for n in some]
        rows = run.divide(some, envelopes, alike=scope.options.sort is None)
        firsts = [entries[numbers[0]][1] for numbers, _ in rows]
        positions = run.append(tr, scope, level, rows, firsts, reads[level])
        for (numbers, packed), first in zip(rows, positions, strict=True):
            for n, message_id in zip(numbers, run.ids(first, len(numbers)), strict=True):
                ids[n] = message_id
            if packed:
                placed.append((numbers, first))
                # By numbers alone: a thousand bare messages are one addition.
                counts[level] = counts.get(level, 0) + len(numbers)
                sizes[level] = sizes.get(level, 0) + sum([entries[n][1].size for n in numbers])
            else:
                n = numbers[0]
                alone[n] = StoredMessage(first, entries[n][1])
    if alone:
        # After all have places: a message that waits keeps the index that its place in the call
        # gave it.
        alone = _enter_alone(tr, scope, alone, way)
    added = Appended(entries, ids, placed, alone)
    if scope.options.history_seconds is not None:
        transitions.record(tr, scope, transition, list(added.messages()))
        return added
    transitions.record(tr, scope, transition, list(alone.values()), counts, sizes)
    if placed:
        change_counters.announce(tr, scope, added.messages())
    return added


def _enter_alone(
    tr: fdb.Transaction,
    scope: Scope,
    alone: Mapping[int, StoredMessage],
    way: taking.Way | None,
) -> dict[int, StoredMessage]:
    """Let messages pass their gates, in their order, and make ready those that need not wait."""
    numbers = sorted(alone)
    messages = [alone[n] for n in numbers]
    way = way or taking.reads(tr, scope, [each.envelope for each in messages])
    if way is not None:
        # In the order of the call, so that messages of one key pass in it.
        messages = way.take(messages)
    for message in messages:
        if message.turn is None:
            run.enter(tr, scope.keys, message.position, [message.envelope.pack()])
    return dict(zip(numbers, messages, strict=True))


def schedule(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a new message, with a level and no index, until it is due. Writes blindly."""
    delayed.put(tr, scope, due_ms, message)
    transitions.record(tr, scope, SCHEDULE, [message])
