"""Enqueue without conflicts: behind all others, by snapshot reads alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from ...schema import changes
from ...schema.envelope import Envelope
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Position
from ...values.states import ENQUEUE, SCHEDULE, Transition
from .. import place, run, transitions
from ..slots import taking
from . import delayed, last_values


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
    rows = list(_rows(entries, packed)) if alike else [[n] for n in range(len(entries))]
    placed = place.assign(tr, scope, [entries[row[0]] for row in rows], reads)
    alone = [message for row, message in zip(rows, placed, strict=True) if len(row) == 1]
    taken = iter(found.take(alone) if found else alone)
    added: dict[int, StoredMessage] = {}
    for row, first in zip(rows, placed, strict=True):
        if len(row) > 1:
            run.enter(tr, scope.keys, first.position, [packed[n] for n in row])
            positions = run.members(first.position, len(row))
            for n, position in zip(row, positions, strict=True):
                added[n] = StoredMessage(position, entries[n][1])
            continue
        (n,) = row
        added[n] = message = next(taken)
        if message.turn is None:
            run.enter(tr, scope.keys, message.position, [packed[n] or message.envelope.pack()])
    messages = [added[n] for n in range(len(entries))]
    transitions.record(tr, scope, transition, messages)
    return messages


def schedule(tr: fdb.Transaction, scope: Scope, due_ms: int, message: StoredMessage) -> None:
    """Keep a new message, with a level and no index, until it is due. Writes blindly."""
    delayed.put(tr, scope, due_ms, message)
    transitions.record(tr, scope, SCHEDULE, [message])


def append_bare(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    reads: Mapping[int, place.Reads],
) -> list[str]:
    """As ``append``, for messages that have nothing beside their envelopes, in a queue without a
    history; returns their ids."""
    together: defaultdict[int, list[int]] = defaultdict(list)
    for n, (level, _) in enumerate(entries):
        together[level].append(n)
    numbers, sizes, found = {}, {}, [""] * len(entries)
    for level, some in together.items():
        numbers[level] = len(some)
        sizes[level] = sum([len(entries[n][1].payload) for n in some])
        packed = [entries[n][1].pack() for n in some]
        placed = put(tr, scope.keys, level, packed, reads[level])
        ids = chain.from_iterable([run.ids(first, count) for first, count in placed])
        for n, message_id in zip(some, ids, strict=True):
            found[n] = message_id
    new = (
        StoredMessage(Position.from_id(message_id), envelope)
        for message_id, (_, envelope) in zip(found, entries, strict=True)
    )
    transitions.count(tr, scope, ENQUEUE, numbers, sizes)
    changes.announce(tr, scope, new)
    return found


def put(
    tr: fdb.Transaction,
    keys: QueueKeys,
    level: int,
    packed: Sequence[bytes],
    end: place.Reads,
) -> list[tuple[Position, int]]:
    """Make messages of one level ready that have nothing beside their envelopes; returns the places
    that they come in at, and how many at each. The caller records that."""
    rows = list(run.divide(range(len(packed)), packed))
    places = place.behind(tr, keys, level, len(rows), end)
    for row, first in zip(rows, places, strict=True):
        run.enter(tr, keys, first, [packed[n] for n in row])
    return [(first, len(row)) for row, first in zip(rows, places, strict=True)]


def _rows(entries: Sequence[tuple[int, Envelope]], packed: Sequence[bytes]) -> Iterator[list[int]]:
    """The numbers of the messages that come in at one place, in the order of each level."""
    together: defaultdict[int, list[int]] = defaultdict(list)
    for n, (level, envelope) in enumerate(entries):
        if envelope.shareable:
            together[level].append(n)
        else:
            yield from run.divide(together.pop(level, []), packed)
            yield [n]
    for some in together.values():
        yield from run.divide(some, packed)
