"""Staging: rows of many tasks, each of which may run twice, are staged first and then published.

A *sink* is a stream of numbered batches. The tasks of a batch stage their rows, each attempt under
a random name, so that attempts never meet. Then one transaction fixes the list of attempts that
count; a second one finds that list and follows it. Their rows are enqueued in the order of the
list, in bounded transactions that read and advance the batch's progress together with the
messages. So tasks and drivers may run twice, in any order, at the same time, and be killed
anywhere, and commits may have unknown outcomes: each step finds what is left to do, and does it.

An attempt also records how many rows it has, and when, so that rows of a dead driver can be seen
and removed.

The last step removes everything staged up to its batch. Staging reads the state of the sink with a
conflict and writes nothing for a fixed batch, so late attempts leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import ceil
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...errors import BatchLost, CorruptData, QueueReplaced, SinkBehind
from ...schema import change_counters
from ...schema.codec import pack, unpack
from ...schema.envelope import Envelope
from ...schema.keys import QueueKeys
from ...schema.scope import Scope
from ...schema.streams import SinkState, StagedAttempt, StagedPiece, StagedRun, StagingAttempt
from ...store.binding import fdb, transactional
from ...values.states import ENQUEUE
from .. import place, transitions
from ..enqueue import admission, bounds
from ..enqueue.admission import Draft
from ..enqueue.bounds import Room
from ..run import append, fill, most_rows
from .packing import runs

NAME_BYTES = 16
STEP_ROWS = 5_000
STEP_BYTES = 4_000_000
"""How many rows of READY, and bytes of envelopes, one transaction writes; a larger row comes alone.
"""
PART_ATTEMPTS = 1_000
"""How many attempts one value of the list holds."""

_STEP_PIECES = 60
_FILLED = 0.1
"""The largest share of a queue's bounds that one step fills."""


class StagedPage(Struct, frozen=True):
    """What one transaction enqueues, and the place behind it; None at the end."""

    runs: list[StagedRun]
    following: tuple[int, int, int] | None

    @property
    def messages(self) -> int:
        """How many rows were staged for it."""
        return sum(run.messages for run in self.runs)


@transactional
def state(tr: fdb.Transaction, keys: QueueKeys, sink: str) -> SinkState:
    """How far a sink has come. One round trip; conflicts with its advance."""
    return SinkState.unpack(tr.get(keys.sink(sink)).value)


def fixed(state: SinkState, batch: int) -> bool:
    """Whether the list of attempts that count is fixed."""
    return batch <= max(state.done, state.batch)


@transactional
def stage(
    tr: fdb.Transaction,
    scope: Scope,
    sink: str,
    batch: int,
    attempt: StagingAttempt,
    pieces: Sequence[bytes],
) -> bool:
    """Write the latest pieces of an attempt, and its totals with them; may happen twice.

    Returns whether the batch is still open; otherwise nothing is written. One round trip; conflicts
    with the transaction that fixes the batch. Raises ``BatchLost`` if earlier pieces are gone.
    """
    keys, first = scope.keys, attempt.pieces - len(pieces)
    record = keys.attempt(sink, batch, attempt.name)
    before = tr.get(record)
    # Read with a conflict: an attempt that stages while the batch is fixed is not among those that
    # count, and must leave nothing.
    if fixed(state(tr, keys, sink), batch):
        return False
    # Its first pieces were removed as abandoned, days ago: the rest alone would be half an attempt.
    if first and not before.present():
        raise lost(sink, batch)
    for n, piece in enumerate(pieces, first):
        tr[keys.staged(sink, batch, attempt.name, n)] = piece
    told = StagedAttempt(attempt.pieces, attempt.rows, attempt.size, scope.now_ms(tr))
    tr[record] = told.pack()
    return True


@transactional
def discard(
    tr: fdb.Transaction, keys: QueueKeys, sink: str, batch: int, attempts: Sequence[bytes]
) -> None:
    """Remove the rows of attempts, unless the batch is fixed. As ``stage``."""
    if not fixed(state(tr, keys, sink), batch):
        for attempt in attempts:
            remove(tr, keys, sink, batch, attempt)


def remove(tr: fdb.Transaction, keys: QueueKeys, sink: str, batch: int, attempt: bytes) -> None:
    """Remove the rows of an attempt. Writes blindly."""
    staged = keys.staged.under(sink, batch, attempt)
    tr.clear_range(staged.start, staged.stop)
    del tr[keys.attempt(sink, batch, attempt)]


@transactional
def fix(
    tr: fdb.Transaction, scope: Scope, sink: str, batch: int, attempts: Sequence[StagingAttempt]
) -> tuple[SinkState, list[StagingAttempt]]:
    """Fix which attempts count in a batch; may happen twice, and the first time holds.

    Returns the state of the sink, and the attempts that count; none if the batch is published. One
    or two round trips; conflicts with tasks that stage. Raises ``SinkBehind`` if the previous batch
    is not fully published, ``QueueReplaced`` and ``BatchLost`` if staged rows are gone, and
    ``QueueFull`` if the queue rejects what it has no room for, and has too little for all rows.
    """
    keys = scope.keys
    found = state(tr, keys, sink)
    # A repeated call, or one of an older driver: what is done stays done.
    if batch <= found.done or batch < found.batch:
        return found, []
    if found.batch == batch:
        every = keys.counting.under(sink)
        stored = tr.get_range(every.start, every.stop)
        return found, [
            # The list that was fixed first holds: a second driver may have other attempts of the
            # same rows.
            each
            for kv in stored
            for each in unpack(kv.value, list[StagingAttempt], "attempts")
        ]
    if found.batch >= 0:
        raise SinkBehind(sink=sink, batch=batch, before=found.batch)
    counting = [each for each in attempts if each.rows]
    _check_there(tr, scope, sink, batch, counting)
    if scope.options.bounds.when_full == "reject":
        whole = bounds.Load(sum(each.rows for each in counting), sum(e.size for e in counting))
        # Before the batch is fixed: rejected halfway, part of its rows would be enqueued already.
        bounds.check_room(tr, scope, bounds.reads(tr, scope), whole)
    for n, begin in enumerate(range(0, len(counting), PART_ATTEMPTS)):
        part = counting[begin : begin + PART_ATTEMPTS]
        tr[keys.counting(sink, n)] = pack(part)
    count, now_ms = sum(each.rows for each in counting), scope.now_ms(tr)
    begun = SinkState(done=found.done, batch=batch, rows=count, changed_at_ms=now_ms)
    if not counting:
        begun = _ended(tr, keys, sink, begun)
    tr[keys.sink(sink)] = begun.pack()
    return begun, counting


def _check_there(
    tr: fdb.Transaction, scope: Scope, sink: str, batch: int, counting: Sequence[StagingAttempt]
) -> None:
    """Check that the rows of all attempts are there, and stay until they are fixed."""
    if any(each.queue != scope.identity for each in counting):
        raise QueueReplaced(name=scope.name)
    keys = scope.keys
    every = keys.attempt.under(sink, batch)
    mode = fdb.StreamingMode.want_all
    reads = tr.snapshot.get_range(every.start, every.stop, streaming_mode=mode)
    there = {keys.attempt.parse(kv.key)[2]: StagedAttempt.unpack(kv.value).pieces for kv in reads}
    for each in counting:
        # Not the range: attempts that do not count may still be staging.
        tr.add_read_conflict_key(keys.attempt(sink, batch, each.name))
        if there.get(each.name) != each.pieces:
            raise lost(sink, batch)


@transactional
def page(
    tr: fdb.Transaction,
    scope: Scope,
    sink: str,
    found: SinkState,
    attempts: Sequence[StagingAttempt],
    share: float = 1.0,
) -> StagedPage:
    """The next rows, up to a share of what one transaction enqueues.

    Snapshot reads, usually in one round trip, since rows of a fixed batch do not change. Raises
    ``CorruptData`` if some are gone.
    """
    limits = _limits(scope, share)
    load = _Load(limits)
    pieces = _pieces(tr, scope.keys, sink, found, attempts, limits.rows)
    for piece, unit in _units(pieces):
        first = found.place[2] if piece == found.place[:2] else 0
        end = 0
        for run in unit:
            begin, end = end, end + run.messages
            cut = limits.exact or begin < first < end
            for each in run.alone if cut else [run]:
                if begin >= first:
                    if not load.takes(each):
                        return StagedPage(load.runs, (*piece, begin))
                    load.add(each)
                begin += each.messages
    return StagedPage(load.runs, None)


def publish(
    tr: fdb.Transaction,
    scope: Scope,
    sink: str,
    found: SinkState,
    page: StagedPage,
    room: Room,
) -> SinkState:
    """Enqueue the rows of a page and advance the sink; returns how far it has come.

    ``found`` was read in the same transaction, with a conflict. Also conflicts as
    ``admission.admit``. Raises ``QueueFull``, before anything is written.
    """
    # In one transaction with the place behind them: however often this is repeated, each row comes
    # once.
    new = _enqueue(tr, scope, page, room) if page.runs else 0
    following = replace(
        found,
        published=found.published + page.messages,
        new=found.new + new,
        changed_at_ms=scope.now_ms(tr),
    )
    if page.following is not None:
        following = replace(following, place=page.following)
    else:
        following = _ended(tr, scope.keys, sink, following)
    tr[scope.keys.sink(sink)] = following.pack()
    return following


def _ended(tr: fdb.Transaction, keys: QueueKeys, sink: str, found: SinkState) -> SinkState:
    until = (keys.staged.before(sink, found.batch + 1), keys.attempt.before(sink, found.batch + 1))
    for every in (keys.counting.under(sink), *until):
        tr.clear_range(every.start, every.stop)
    return replace(found, place=(0, 0, 0), done=found.batch, batch=-1)


@transactional
def forget(tr: fdb.Transaction, keys: QueueKeys, sink: str) -> None:
    """Remove a sink with its staged rows. Writes blindly."""
    del tr[keys.sink(sink)]
    for every in (keys.counting.under(sink), keys.staged.under(sink), keys.attempt.under(sink)):
        tr.clear_range(every.start, every.stop)


@transactional
def sweep(tr: fdb.Transaction, keys: QueueKeys, first: str, last: str) -> None:
    """Remove all sinks named from ``first`` to before ``last``. Writes blindly."""
    for kind in (keys.counting, keys.staged, keys.attempt):
        tr.clear_range(kind.begin(first), kind.begin(last))


@transactional
def sinks(tr: fdb.Transaction, keys: QueueKeys) -> dict[str, SinkState]:
    """The sinks of a queue, and how far they have come. A snapshot read: no conflicts."""
    every = keys.sink.rows
    found = tr.snapshot.get_range(every.start, every.stop)
    named = ((keys.counting.parse(kv.key), kv.value) for kv in found)
    return {name: SinkState.unpack(value) for (name, *part), value in named if not part}


class _Limits(NamedTuple):
    """How much one transaction enqueues; ``exact`` if each message counts by itself."""

    rows: int
    size: int
    exact: bool


class _Load:
    """What one transaction enqueues so far."""

    def __init__(self, limits: _Limits) -> None:
        self.runs: list[StagedRun] = []
        self._limits = limits
        self._messages = self._rows = self._size = 0
        self._plain = True

    def takes(self, run: StagedRun) -> bool:
        """Whether there is room."""
        if not self.runs:
            return True
        if self._size + run.stored_bytes > self._limits.size:
            return False
        # Each message has a row of its own as soon as one needs more than that.
        plain = self._plain and run.plain
        rows = self._rows + most_rows(run.messages) if plain else self._messages + run.messages
        return rows <= self._limits.rows

    def add(self, run: StagedRun) -> None:
        """Add a run."""
        self.runs.append(run)
        self._messages += run.messages
        self._rows += most_rows(run.messages)
        self._size += run.stored_bytes
        self._plain = self._plain and run.plain


def _limits(scope: Scope, share: float) -> _Limits:
    """Small steps for a queue with bounds: one larger than the room that consumers make would wait
    for ever."""
    options = scope.options
    most, size = max(1, int(STEP_ROWS * share)), int(STEP_BYTES * share)
    exact = share < 1 or options.history_seconds is not None or options.ordered
    room = min(_FILLED, 1 - options.bounds.resume_at)
    if options.bounds.messages is not None:
        most, exact = max(1, min(most, int(options.bounds.messages * room))), True
    if options.bounds.bytes is not None:
        size, exact = min(size, int(options.bounds.bytes * room)), True
    return _Limits(most, size, exact)


def _units(
    pieces: Iterator[tuple[tuple[int, int], StagedPiece]],
) -> Iterator[tuple[tuple[int, int], list[StagedRun]]]:
    """The runs of each piece, or of a row in several pieces, with the place of the first piece."""
    for where, piece in pieces:
        others = islice(pieces, piece.parts - 1)
        yield where, runs([piece, *(other for _, other in others)])


def _pieces(
    tr: fdb.Transaction,
    keys: QueueKeys,
    sink: str,
    found: SinkState,
    attempts: Sequence[StagingAttempt],
    max_rows: int,
) -> Iterator[tuple[tuple[int, int], StagedPiece]]:
    """The pieces from the place of a sink on, read about a step's worth at a time."""
    for window in _windows(attempts, found.place, max_rows):
        pages = []
        for n, first, end in window:
            begin = keys.staged(sink, found.batch, attempts[n].name, first)
            stop = keys.staged(sink, found.batch, attempts[n].name, end)
            mode = fdb.StreamingMode.want_all
            pages.append(tr.snapshot.get_range(begin, stop, streaming_mode=mode))
        for (n, first, end), reads in zip(window, pages, strict=True):
            there = reads.to_list()
            if len(there) != end - first:
                raise CorruptData(what=f"what is staged for {sink!r}", problem="some of it is gone")
            for number, kv in enumerate(there, first):
                yield (n, number), StagedPiece.unpack(kv.value)


def _windows(
    attempts: Sequence[StagingAttempt], place: tuple[int, int, int], max_rows: int
) -> Iterator[list[tuple[int, int, int]]]:
    """Pieces to read together: the attempt, its first piece, and the piece behind the last."""
    window: list[tuple[int, int, int]] = []
    pieces, rows_left = _STEP_PIECES, float(max_rows)
    for n in range(place[0], len(attempts)):
        attempt = attempts[n]
        first = place[1] if n == place[0] else 0
        each = attempt.rows / attempt.pieces
        while first < attempt.pieces:
            count = min(attempt.pieces - first, pieces, max(1, ceil(rows_left / each)))
            window.append((n, first, first + count))
            first += count
            pieces -= count
            rows_left -= count * each
            if pieces <= 0 or rows_left <= 0:
                yield window
                window, pieces, rows_left = [], _STEP_PIECES, float(max_rows)
    if window:
        yield window


def _enqueue(tr: fdb.Transaction, scope: Scope, page: StagedPage, room: Room) -> int:
    options = scope.options
    closer = options.bounds.some or options.ordered
    closer = closer or (scope.index is not None and scope.index.selective)
    if not closer and options.history_seconds is None and all(run.plain for run in page.runs):
        _append(tr, scope, page.runs)
        return page.messages
    drafts = [
        Draft(Envelope.unpack(envelope), run.due_ms, run.dedup_id)
        for run in page.runs
        for envelope in run.envelopes
    ]
    return admission.admit(tr, scope, drafts, room=room).new


def _append(tr: fdb.Transaction, scope: Scope, taken: Sequence[StagedRun]) -> None:
    """Append plain messages, whose envelopes stay packed."""
    levels: dict[int, list[StagedRun]] = {}
    for each in taken:
        levels.setdefault(each.level, []).append(each)
    ends = {level: place.reads(tr, scope.keys, level) for level in levels}
    numbers, sizes = {}, {}
    for level, some in levels.items():
        packed = [envelope for each in some for envelope in each.envelopes]
        rows = fill(range(len(packed)), packed)
        append(tr, scope, level, rows, (), ends[level])
        numbers[level], sizes[level] = len(packed), sum([each.size for each in some])
    if numbers:
        transitions.record(tr, scope, ENQUEUE, (), numbers, sizes)
        change_counters.announce(tr, scope, ())


def lost(sink: str, batch: int) -> BatchLost:
    """What is raised where staged rows are gone."""
    problem = (
        "has lost rows that were staged for it, by fdbq stream forget or because they were days "
        "old: write them again"
    )
    return BatchLost(batch=batch, what=f"sink {sink!r}", problem=problem)
