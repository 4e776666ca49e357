"""Sinks: enqueue rows of many tasks, each row once, however often a task or a driver runs.

``messages/streams/staging.py`` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from ...consumers import wakeups
from ...errors import (
    InvalidArgument,
    PayloadTooLarge,
    QueueFull,
    QueueNotFound,
    SinkUnfinished,
    TransactionTooLarge,
)
from ...messages.enqueue import level_order
from ...messages.enqueue.bounds import Room
from ...messages.streams import staging, undecided
from ...messages.streams.packing import Packer
from ...schema.envelope import PLAIN_INLINE_LIMIT, Envelope
from ...schema.streams import SinkState, StagedRun, StagingAttempt
from ...store import world
from ...store.binding import fdb
from ...values import compression
from ...values.content import check_headers, check_payload
from ...values.durations import Seconds
from ...values.model import BYTES, Headers, NewMessage
from ...values.options import QueueOptions, check_name
from ..bulk import back_pressure
from ..queue_base import Handle, Transactor
from ..validation import draft

ROOM_SECONDS = 3600.0
FLUSH_PIECES = 40
"""How many pieces of 90 kB one transaction stages."""
ANONYMOUS_DAYS = undecided.KEPT_DAYS
"""How long staged rows of an interrupted write without a name are kept."""

_DAY_MS = 24 * 3600 * 1000
_SLOW_SECONDS = 1.0
"""An enqueuing transaction that takes longer is too large: it must end within five seconds."""
_ANONYMOUS = "write:"


def anonymous(now_ms: int) -> str:
    """A name for a sink that is used for one batch only."""
    return f"{_ANONYMOUS}{now_ms:012x}:{world.urandom(8).hex()}"


class Sink:
    """A stream of numbered batches into a queue, under a name; get it from ``Queue.streams``."""

    def __init__(self, queue: Handle, name: str) -> None:
        self._queue = queue
        self._keys = queue._keys
        self.name = check_name(name)

    def state(self, tr: Transactor) -> SinkState:
        """How far the sink has come. One round trip. Raises ``QueueNotFound``."""

        def read(tr: fdb.Transaction) -> SinkState:
            self._queue._scope(tr)
            return staging.state(tr, self._keys, self.name)

        return self._queue._read(tr, read)

    def stage(
        self,
        db: fdb.Database,
        batch: int,
        content_type: str = BYTES,
    ) -> Stager:
        """Begin an attempt to stage rows of a batch. Raises ``QueueNotFound``.

        content_type: the type of the payloads, which are bytes.
        """

        def read(tr: fdb.Transaction) -> tuple[QueueOptions, str, SinkState]:
            scope = self._queue._scope(tr)
            return scope.options, scope.identity, staging.state(tr, scope.keys, self.name)

        options, identity, state = self._queue._read(db, read)
        # Bound to this very queue: rows that were staged go with it, and a new one of its name must
        # not seem to have them.
        queue = self._queue._only(identity)
        fixed = staging.fixed(state, batch)
        return Stager(db, Sink(queue, self.name), options, identity, batch, content_type, fixed)

    def publish(
        self,
        db: fdb.Database,
        batch: int,
        attempts: Iterable[StagingAttempt],
        *,
        room: Seconds = ROOM_SECONDS,
        progress: Callable[[SinkState], object] | None = None,
    ) -> SinkState:
        """Enqueue the staged rows of attempts, in order; returns how far the sink has come.

        batch: 0 or more; batches are published in ascending order. A published batch is not
            published again, and the first list of attempts for a batch holds.
        room: seconds to wait for room in a full queue whose ``bounds.when_full`` is "block", each
            time.
        progress: called after each transaction with how far the sink has come; stops by returning
            False, and ``finish`` goes on.

        Spans transactions of up to about 5,000 rows, of one message or a block, and 4 MB. Messages
        become ready as they are enqueued.
        Conflicts as ``Queue.enqueue_many``. Raises ``QueueFull`` and ``SinkBehind`` before anything
        is enqueued, ``SinkUnfinished`` later.
        """
        counting = list(attempts)
        queue = self._queue
        fix = partial(_fix, sink=self, batch=batch, attempts=counting)
        state, counting = queue._run(db, fix)
        pace = _Pace()
        while state.batch == batch:
            step = partial(_step, sink=self, batch=batch, attempts=counting, pace=pace)

            def publish(known: Room, step: Callable[..., SinkState] = step) -> SinkState:
                return queue._run(db, partial(step, known=known))

            try:
                state = back_pressure.patiently(queue, db, publish, room)
            except TransactionTooLarge:
                if not pace.slow_down():
                    raise
                continue
            except QueueFull as error:
                raise SinkUnfinished(
                    sink=self.name, published=state.published, rows=state.rows, problem=str(error)
                ) from error
            if not staging.fixed(state, batch):
                problem = "the sink was removed meanwhile"
                raise SinkUnfinished(sink=self.name, published=0, rows=0, problem=problem)
            pace.end()
            if progress is not None and progress(state) is False:
                break
        return state

    def finish(
        self,
        db: fdb.Database,
        *,
        room: Seconds = ROOM_SECONDS,
        progress: Callable[[SinkState], object] | None = None,
    ) -> SinkState:
        """Enqueue the rest of a batch that is partly published, if any; as ``publish``."""
        state = self.state(db)
        if state.batch < 0:
            return state
        # Without attempts: the batch is fixed, so those of the first list hold.
        return self.publish(db, state.batch, (), room=room, progress=progress)

    def discard(
        self,
        db: fdb.Database,
        batch: int,
        attempts: Iterable[StagingAttempt],
    ) -> None:
        """Remove the staged rows of attempts, unless the batch is fixed."""
        names = [each.name for each in attempts]

        def remove(tr: fdb.Transaction) -> None:
            scope = self._queue._scope(tr)
            staging.discard(tr, scope.keys, self.name, batch, names)

        with suppress(QueueNotFound):  # the rows are gone with the queue
            self._queue._run(db, remove)

    def forget(self, tr: Transactor) -> None:
        """Remove the sink with its staged rows; its batches then start over."""

        def remove(tr: fdb.Transaction) -> None:
            self._queue._scope(tr)
            staging.forget(tr, self._keys, self.name)

        self._queue._run(tr, remove)


class Stager:
    """One attempt to stage rows of a batch: takes rows one by one, and writes them in pieces."""

    def __init__(
        self,
        db: fdb.Database,
        sink: Sink,
        options: QueueOptions,
        identity: str,
        batch: int,
        content_type: str,
        fixed: bool,
    ) -> None:
        self._content_type = content_type
        self._db = db
        self._sink = sink
        self._batch = batch
        self._options = options
        self._now_ms = sink._queue._clock.now_ms(db)
        self._name = world.urandom(staging.NAME_BYTES)
        self._packer = Packer()
        self._written = 0
        self._size = 0
        self._inline = PLAIN_INLINE_LIMIT
        if options.compression != "none":
            self._inline = min(self._inline, compression.COMPRESSED_FROM - 1)
        self._largest = min(options.max_payload, options.bounds.bytes or options.max_payload)
        self._levels = [options.level(each) for each in range(options.max_priority + 1)]
        self._identity = identity
        self.fixed = fixed
        """Whether the batch is fixed; then nothing is staged."""

    def plain(self, payload: bytes, priority: int, headers: Headers | None = None) -> None:
        """Stage a message without further options. Raises ``InvalidPayload``,
        ``InvalidArgument``."""
        size = len(payload)
        if size > self._inline:
            self.add(NewMessage(payload, priority, headers))
            return
        if size > self._largest:
            raise PayloadTooLarge(size=size, limit=self._largest)
        if type(priority) is not int or not 0 <= priority < len(self._levels):
            # It raises: the list is only the quick way for what is right.
            self._options.level(priority)
        checked = check_headers(headers) if headers else {}
        if self._options.ordered:
            level_order.check_sortable(self._options, checked, None)
        kind = self._content_type
        packed = Envelope(payload, self._now_ms, priority, checked, content_type=kind).pack()
        self._size += size
        self._packer.add_plain(self._levels[priority], size, packed)
        if len(self._packer.pieces) >= FLUSH_PIECES:
            self._flush()

    def add(self, message: NewMessage) -> None:
        """Stage any message. Raises what ``Queue.enqueue`` raises for its arguments."""
        typed = replace(message, content_type=self._content_type)
        made = draft(typed, self._now_ms, None)
        if made.on_conflict != "keep":
            raise InvalidArgument(
                argument="on_conflict",
                value=made.on_conflict,
                problem="a sink stages messages, which replace none: use enqueue_many",
            )
        envelope = made.envelope
        check_payload(envelope.payload, self._largest)
        level = self._options.level(envelope.priority)
        if self._options.ordered:
            level_order.check_sortable(self._options, envelope.headers, envelope.gate)
        packed = envelope.pack()
        self._size += envelope.size
        self._packer.add(
            StagedRun(level, envelope.size, [packed], made.due_ms, made.dedup_id, False)
        )
        if len(self._packer.pieces) >= FLUSH_PIECES:
            self._flush()

    def finish(self) -> StagingAttempt:
        """Stage the last rows; returns what to publish or discard."""
        self._packer.close()
        self._flush()
        return self._attempt()

    def discard(self) -> None:
        """Give up the attempt, and remove its rows."""
        self._packer = Packer()
        self._sink.discard(self._db, self._batch, [self._attempt()])

    def _attempt(self) -> StagingAttempt:
        rows = self._packer.rows
        return StagingAttempt(self._name, self._written, rows, self._size, self._identity)

    def _flush(self) -> None:
        full, self._packer.pieces = self._packer.pieces, []
        for begin in range(0, len(full), FLUSH_PIECES):
            # Some run has fixed the batch: rows that come now would never count.
            if self.fixed:
                break
            pieces = full[begin : begin + FLUSH_PIECES]
            self._written += len(pieces)
            stage = partial(
                _stage,
                sink=self._sink,
                batch=self._batch,
                attempt=self._attempt(),
                pieces=pieces,
            )
            self.fixed = not self._sink._queue._run(self._db, stage, wrote=bool)


class _Pace:
    """How much one transaction enqueues: less after one that was too large or too slow."""

    def __init__(self) -> None:
        self.share = 1.0
        self._began: float | None = None

    def begin(self) -> None:
        """An attempt begins; one that has not ended has failed."""
        self.end()
        self._began = world.monotonic()

    def end(self) -> None:
        """The attempt is over."""
        if self._began is not None and world.monotonic() - self._began > _SLOW_SECONDS:
            self.slow_down()
        self._began = None

    def slow_down(self) -> bool:
        """Enqueue less from now on; returns False if it is one row already."""
        self.share /= 2
        return self.share * staging.STEP_ROWS >= 1


def _stage(
    tr: fdb.Transaction, sink: Sink, batch: int, attempt: StagingAttempt, pieces: Sequence[bytes]
) -> bool:
    return staging.stage(tr, sink._queue._scope(tr), sink.name, batch, attempt, pieces)


def _fix(
    tr: fdb.Transaction, sink: Sink, batch: int, attempts: Sequence[StagingAttempt]
) -> tuple[SinkState, list[StagingAttempt]]:
    scope = sink._queue._scope(tr)
    old = anonymous(scope.now_ms(tr) - ANONYMOUS_DAYS * _DAY_MS)
    # Each write tidies what earlier ones left behind: there is no other process to do it.
    staging.sweep(tr, scope.keys, _ANONYMOUS, old)
    undecided.expire(tr, scope, b"")
    return staging.fix(tr, scope, sink.name, batch, attempts)


def _step(
    tr: fdb.Transaction,
    sink: Sink,
    batch: int,
    attempts: Sequence[StagingAttempt],
    pace: _Pace,
    known: Room,
) -> SinkState:
    """Enqueue the next rows."""
    pace.begin()
    scope = sink._queue._scope(tr)
    found = staging.state(tr, scope.keys, sink.name)
    # Another driver has published it to its end, while this one waited for room.
    if found.batch != batch:
        return found
    page = staging.page(tr, scope, sink.name, found, attempts, pace.share)
    waiting = wakeups.reads(tr, scope.keys, page.messages)
    following = staging.publish(tr, scope, sink.name, found, page, known)
    if following.new > found.new:
        wakeups.wake(tr, scope.keys, waiting)
    return following
