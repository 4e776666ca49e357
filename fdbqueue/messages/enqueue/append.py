"""Enqueue without conflicts: behind all others, by snapshot reads alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...schema.codec import blocks
from ...schema.codec.envelopes import Envelope, pack_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import ENQUEUE, Transition
from .. import transitions
from . import index_allocation, ordering_keys

_LENGTH_BYTES = 5
"""The most that a block adds to an envelope."""


@transactional
def append(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    transition: Transition = ENQUEUE,
    reads: Mapping[int, index_allocation.Reads] | None = None,
) -> list[StoredMessage]:
    """Put messages, given as (level, envelope), behind all others of their level, in their order.

    Returns them with their positions, in the same order, at consecutive indexes. Several of one
    level that follow each other form a block, which takes one index. One with side records stands
    alone, and one with an ordering key waits in the line of its key while another of the key is
    out.

    One round trip of snapshot reads, ``reads`` by level if the caller has issued them: the last
    READY key of each level, and TAIL. Adds a read conflict on the FENCE keys of the indexes that it
    takes, which only a cursor that passes them writes; so appends conflict neither with each other
    nor with a dequeue. An ordering key adds an ordinary read of its line, and conflicts with
    appends and ends of the same key.
    """
    lines = ordering_keys.reads(tr, scope.keys, [envelope for _, envelope in entries])
    packed = [pack_envelope(envelope) for _, envelope in entries]
    runs = list(_runs(entries, packed))
    placed = index_allocation.assign(tr, scope, [entries[run[0]] for run in runs], reads)
    alone = [message for run, message in zip(runs, placed, strict=True) if len(run) == 1]
    if lines:
        alone = ordering_keys.line_up(tr, scope, alone, lines)
    for message in alone:
        if message.turn is None:
            tr[scope.keys.ready(message.position)] = pack_envelope(message.envelope)
    waiting, added = iter(alone), dict[int, StoredMessage]()
    for run, message in zip(runs, placed, strict=True):
        if len(run) == 1:
            added[run[0]] = next(waiting)
            continue
        for number, n in enumerate(run):
            position = blocks.placed(message.position, number)
            added[n] = StoredMessage(position, entries[n][1])
        tr[scope.keys.ready(position)] = blocks.pack_block([packed[n] for n in run])
    messages = [added[n] for n in range(len(entries))]
    transitions.record(tr, scope, transition, messages)
    return messages


def _runs(entries: Sequence[tuple[int, Envelope]], packed: Sequence[bytes]) -> Iterator[list[int]]:
    """The numbers of the messages that share a row, in the order of the rows of each level."""
    runs: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for n, (level, envelope) in enumerate(entries):
        run, size = runs.get(level), len(packed[n]) + _LENGTH_BYTES
        full = run and (len(run) == blocks.MAX_MESSAGES or sizes[level] + size > blocks.MAX_BYTES)
        if run and (full or not envelope.plain):
            yield from _parted(runs.pop(level))
            run = None
        if not envelope.plain:
            yield [n]
        elif run:
            run.append(n)
            sizes[level] += size
        else:
            runs[level], sizes[level] = [n], size
    for run in runs.values():
        yield from _parted(run)


def _parted(run: list[int]) -> Iterable[list[int]]:
    return [run] if len(run) >= blocks.MIN_MESSAGES else [[n] for n in run]
