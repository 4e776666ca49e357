"""Enqueue without conflicts: behind all others, by snapshot reads alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...schema.codec import blocks
from ...schema.codec.envelopes import Envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Position
from ...values.states import ENQUEUE, Transition
from .. import place, transitions
from ..slots import taking
from . import last_values


@transactional
def append(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    transition: Transition = ENQUEUE,
    reads: Mapping[int, place.Reads] | None = None,
) -> list[StoredMessage]:
    """Put messages, given as (level, envelope), behind all others of their level, in their order;
    in a sorted level, among them. In a queue that keeps last values, the caller then lets them
    replace older ones, once it has written what belongs to them.

    Returns them with their positions, in the same order, at consecutive indexes. Several of one
    level that follow each other form a block, which takes one index. One with side records stands
    alone, unless these are only the place that its id leads to. One with a key or a limit takes a
    slot of that, or waits in its backlog.

    One round trip of snapshot reads, ``reads`` by level if the caller has issued them: the last
    READY key of each level, and TAIL. Adds a read conflict on the FENCE keys of the indexes that it
    takes, which only a cursor that passes them writes; so appends conflict neither with each other
    nor with a dequeue. With a key or a limit it conflicts only with the begin and the end of that
    backlog, with a change of its limits, and while it has no backlog with appends that want the
    same slot.
    """
    if scope.options.last_value is not None:
        entries = [(level, last_values.named(scope, envelope)) for level, envelope in entries]
    found = taking.reads(tr, scope, [envelope for _, envelope in entries])
    # What a message with a key or a limit holds is not known yet, and it stands alone.
    packed = [b"" if envelope.gate else envelope.pack() for _, envelope in entries]
    alike = scope.options.sort is None  # Others may come in between them.
    runs = list(_runs(entries, packed)) if alike else [[n] for n in range(len(entries))]
    placed = place.assign(tr, scope, [entries[run[0]] for run in runs], reads)
    alone = [message for run, message in zip(runs, placed, strict=True) if len(run) == 1]
    taken = iter(found.take(alone) if found else alone)
    added: dict[int, StoredMessage] = {}
    for run, first in zip(runs, placed, strict=True):
        if len(run) == 1:
            (n,) = run
            added[n] = message = next(taken)
            if message.turn is None:
                tr[scope.keys.ready(message.position)] = packed[n] or message.envelope.pack()
            continue
        for number, n in enumerate(run):
            position = blocks.placed(first.position, number)
            added[n] = StoredMessage(position, entries[n][1])
        tr[scope.keys.ready(position)] = blocks.pack_block([packed[n] for n in run])
    messages = [added[n] for n in range(len(entries))]
    transitions.record(tr, scope, transition, messages)
    return messages


def append_packed(
    tr: fdb.Transaction,
    scope: Scope,
    levels: Sequence[int],
    sizes: Sequence[int],
    packed: Sequence[bytes],
    reads: Mapping[int, place.Reads],
) -> list[str]:
    """As ``append``, for messages that have nothing beside their envelopes, in a queue without a
    history; returns their ids.

    levels, sizes, packed: the level, the size of the payload and the stored envelope of each.
    """
    keys, found = scope.keys, [""] * len(packed)
    runs: defaultdict[int, list[int]] = defaultdict(list)
    for n, level in enumerate(levels):
        runs[level].append(n)
    tallies = {}
    for level, run in runs.items():
        tallies[level] = len(run), sum([sizes[n] for n in run])
        rows = list(_rows(run, packed))
        places = place.behind(tr, keys, level, len(rows), reads[level])
        for row, first in zip(rows, places, strict=True):
            if len(row) == 1:
                tr[keys.ready(first)] = packed[row[0]]
                found[row[0]] = first.to_id()
                continue
            tr[keys.ready(blocks.placed(first, len(row) - 1))] = blocks.pack_block(
                [packed[n] for n in row]
            )
            for n, message_id in zip(row, blocks.ids(first, range(len(row))), strict=True):
                found[n] = message_id
    new = (
        StoredMessage(Position.from_id(message_id), Envelope.unpack(value))
        for message_id, value in zip(found, packed, strict=True)
    )
    transitions.record_counts(tr, scope, ENQUEUE, tallies, new)
    return found


def _runs(entries: Sequence[tuple[int, Envelope]], packed: Sequence[bytes]) -> Iterator[list[int]]:
    """The numbers of the messages that share a row, in the order of the rows of each level."""
    runs: defaultdict[int, list[int]] = defaultdict(list)
    for n, (level, envelope) in enumerate(entries):
        if envelope.shareable:
            runs[level].append(n)
        else:
            yield from _rows(runs.pop(level, []), packed)
            yield [n]
    for run in runs.values():
        yield from _rows(run, packed)


def _rows(run: list[int], packed: Sequence[bytes]) -> Iterator[list[int]]:
    """The rows of messages that follow each other, as few as these may be."""
    begin = size = 0
    for end, n in enumerate(run):
        size += len(packed[n]) + blocks.LENGTH_BYTES
        if end - begin == blocks.MAX_MESSAGES or (end > begin and size > blocks.MAX_BYTES):
            yield from _parted(run[begin:end])
            begin, size = end, len(packed[n]) + blocks.LENGTH_BYTES
    yield from _parted(run[begin:])


def _parted(run: list[int]) -> list[list[int]]:
    return [run] if len(run) >= blocks.MIN_MESSAGES else [[n] for n in run]
