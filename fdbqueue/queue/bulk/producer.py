"""A producer: messages that threads send one by one, enqueued together.

One thread of its own enqueues what was sent meanwhile, in one transaction after another. So the
messages of many threads share commits, and rows.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Generic, Self, TypedDict
from weakref import WeakSet

from ...errors import (
    InvalidArgument,
    InvalidInput,
    OperationTimedOut,
    PayloadTooLarge,
    ProducerClosed,
    QueueError,
    Unfinished,
)
from ...messages.transaction_budget import weight
from ...schema.envelope import Envelope
from ...store import binding, combine, world
from ...store.binding import fdb
from ...values import durations
from ...values.content import check_count
from ...values.durations import Seconds
from ...values.model import NewMessage, T
from ...values.options import QueueOptions
from ..enqueue import MAX_BATCH, Enqueuing
from ..validation import draft
from .back_pressure import ROOM_SECONDS
from .pending import PendingMessages, Sent

log = logging.getLogger("fdbqueue.producer")

BATCH = 1_000
PENDING = 10_000
PENDING_BYTES = 64_000_000


class ProducerTerms(TypedDict, total=False):
    """What ``Queue.producer`` takes besides the database."""

    linger: Seconds | None
    max_batch: int
    max_pending: int
    max_pending_bytes: int


class Producer(Generic[T]):
    """Enqueues messages that threads send one by one; threads share commits.

    A context manager; at its end it is closed. All threads of a process can share one::

        with queue.producer(db) as producer:
            futures = [producer.send(payload) for payload in payloads]
        ids = [future.result() for future in futures]

    db: where to enqueue; a transaction of yours takes ``Queue.enqueue``.
    linger: seconds that a message waits for others to share its transaction, 0 to 60. None to wait
        for threads whose messages were stored just now, for a quarter of the time that took and
        at most 0.02.
        Messages that are sent during a commit share the next one in any case.
    max_batch: messages in one transaction at most, 1 to 10,000; it also ends at 4 MB.
    max_pending: how many messages that are not stored yet are held in memory at most.
    max_pending_bytes: how many bytes these have at most, with 1,000 for each message. A single
        message of any size is held if there is no other.

    A message waits for its transaction as long as the queue's ``within`` says, or 30 seconds. The
    transaction, with its retries, may take as long again.

    Exactly once: a message whose future has its id is stored once, even if the outcome of a commit
    was unknown. One whose future has an error is not stored; only ``OutcomeUnknown`` leaves that
    open. If the process is killed, each message whose future was not done is stored once or not
    at all.

    Order: if one ``send`` returned before another began, in the same thread or in another, its
    message goes first. So each thread's messages of one level are delivered in the order in which
    it sent them, if all are stored. Producers know nothing of each other.

    A forked process has the producer without the messages sent before the fork. At the end of the
    interpreter, a producer that was not closed is.

    Raises ``QueueNotFound``, ``InvalidArgument``, ``OperationTimedOut``.
    """

    def __init__(
        self,
        queue: Enqueuing[T],
        db: fdb.Database,
        *,
        linger: Seconds | None = None,
        max_batch: int = BATCH,
        max_pending: int = PENDING,
        max_pending_bytes: int = PENDING_BYTES,
    ) -> None:
        if isinstance(db, fdb.Transaction):
            raise InvalidArgument(
                argument="db", value=db, problem="must be a database: a producer has transactions"
            )
        own = queue._keys.once.timeout
        self._timeout = ROOM_SECONDS if own is None else own
        self._queue = queue.within(self._timeout)
        self._db = db
        wait = None if linger is None else durations.within(linger, 0.0, 60.0)
        if wait is None and linger is not None:
            raise InvalidArgument(argument="linger", value=linger, problem="must be 0 to 60 s")
        self._bounds = (
            wait,
            check_count("max_batch", max_batch, MAX_BATCH),
            check_count("max_pending", max_pending, 2**31),
            check_count("max_pending_bytes", max_pending_bytes, 2**63),
        )
        self._options = self._read_options()
        self._begin()
        _close_at_exit()
        with _finding:
            _producers.add(self)

    def _begin(self) -> None:
        self._pending = PendingMessages(*self._bounds)
        self._failed = 0
        self._error: Exception | None = None
        self._starting = world.Lock()
        self._thread: world.Thread | None = None
        self._storer = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Producer({self._queue!r})"

    @property
    def pending(self) -> int:
        """How many messages were sent and are neither stored nor failed."""
        return self._pending.messages

    def send(self, message: NewMessage[T] | T, *, room: Seconds | None = None) -> Future[str]:
        """Send one message; returns a future of its id.

        message: a ``NewMessage``, or just a payload. Delays and times to live count from now.
        room: seconds to wait while the producer holds as much as it may; None for as long as a
            message waits for its transaction.

        The future's ``result`` waits until the message is stored. Its ``cancel`` succeeds until the
        message's transaction begins. Its callbacks run in the producer's thread, which waits for
        them; there ``send`` does not wait.

        Usually no round trip. Conflicts as ``Queue.enqueue``. Raises ``ProducerFull``,
        ``ProducerClosed``, and for its arguments what ``Queue.enqueue`` raises for them; the future
        raises ``QueueFull``, ``OperationTimedOut``, ``OutcomeUnknown``, ``ProducerClosed`` and the
        like.
        """
        binding.check_process()
        patience = self._timeout if room is None else durations.patience("room", room)
        given = draft(message, self._queue._clock.now_ms(self._db), self._queue._serializer)
        try:
            _check(self._options, given.envelope)
        except InvalidInput:
            # The options may have changed since they were read.
            self._options = self._read_options()
            _check(self._options, given.envelope)
        if self._thread is None:
            self._start()
        sent = Sent(given, weight(given.envelope))
        self._pending.put(sent, 0.0 if self._called_back() else patience)
        return sent.future

    def flush(self, timeout: Seconds | None = None) -> None:
        """Wait until all messages sent before are stored, or have failed; they do not linger.

        timeout: seconds; None for as long as it takes. Raises ``Unfinished``. Errors of
        messages are in their futures.
        """
        limit = durations.limit("timeout", timeout)
        left = 0 if self._called_back() else self._pending.wait(limit)
        if left:
            problem = (
                f"{left:,} messages are not stored yet; their futures tell what becomes of them"
            )
            raise Unfinished(messages=left, problem=problem)

    def close(self, timeout: Seconds | None = None) -> None:
        """Take no more messages, and wait until all are stored, or have failed.

        timeout: seconds; None for as long as it takes, which each message's own deadline bounds.
            After that, messages whose transaction has not begun fail with ``ProducerClosed``, and
            the call raises ``Unfinished``.

        Errors of messages are in their futures. May be called again.
        """
        limit = durations.limit("timeout", timeout)
        self._pending.close()
        try:
            self.flush(limit)
        except Unfinished:
            left = self._pending.give_up()
            _fail([sent for sent in left if _begins(sent)], ProducerClosed())
            self._pending.done(left)
            raise
        with _finding:
            _producers.discard(self)

    def _read_options(self) -> QueueOptions:
        return self._queue._read(self._db, self._queue._options)

    def _called_back(self) -> bool:
        """Whether this is the producer's thread, in a callback of a future: it cannot wait for
        itself."""
        return world.get_ident() == self._storer

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                # A daemon: the end of the interpreter closes the producer.
                name = f"fdbqueue-producer-{self._queue.name}"
                thread = world.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        """Store one batch after another until the producer is closed."""
        pending = self._pending
        with self._starting:
            if self._storer:
                return  # Whoever started the other thread was interrupted.
            self._storer = world.get_ident()
        while batch := pending.take():
            self._settle(batch)
            pending.done(batch)
            del batch  # Nothing of it stays in memory while there is no other.

    def _settle(self, batch: Sequence[Sent]) -> None:
        """Let each future of a batch know what became of its message."""
        begun = [sent for sent in batch if _begins(sent)]
        try:
            if begun:
                combine.in_parts(begun, self._store, self._lose)
        except BaseException as error:
            log.exception("%s: the producer met an error it does not know", self._queue.name)
            # An error that escaped would end the thread, and every later future would wait for
            # ever.
            _fail(begun, error)
        if self._failed:
            what = self._queue.name, self._failed, self._error
            log.warning("%s: %d messages were not stored: %s", *what)
            self._failed, self._error = 0, None

    def _store(self, batch: Sequence[Sent]) -> None:
        batch = self._timely(batch)
        if not batch:
            return
        if self._pending.given_up:
            raise ProducerClosed
        # A message alone may wait for room; the first of several finds out whether there is any.
        alone = len(batch) == 1
        room = max(0.0, batch[0].at + self._timeout - world.monotonic()) if alone else 0.0
        admitted = self._queue._admit(self._db, [sent.given for sent in batch], room)
        # Before the futures: senders that wait for them send the next messages the moment they are
        # told.
        self._pending.expect(len(batch))
        for sent, message_id in zip(batch, admitted.ids, strict=True):
            _tell(sent.future, message_id)

    def _timely(self, batch: Sequence[Sent]) -> Sequence[Sent]:
        """The messages that have not waited for too long; the others fail."""
        # A queue that was full for long must not store what its sender has given up by now.
        since = world.monotonic() - self._timeout
        late = [sent for sent in batch if sent.at < since and not sent.future.done()]
        if late:
            self._lose(late, OperationTimedOut(seconds=self._timeout))
        return [sent for sent in batch if sent.at >= since]

    def _lose(self, batch: Sequence[Sent], error: Exception) -> None:
        self._failed, self._error = self._failed + len(batch), error
        _fail(batch, error)


def _check(options: QueueOptions, envelope: Envelope) -> None:
    """Raise ``InvalidInput`` if a queue with these options takes no such message."""
    options.level(envelope.priority)
    if (size := len(envelope.payload)) > options.max_payload:
        raise PayloadTooLarge(size=size, limit=options.max_payload)


def _begins(sent: Sent) -> bool:
    """Whether a message is to be stored; else it was cancelled. From now on it cannot be."""
    try:
        return sent.future.set_running_or_notify_cancel()
    except RuntimeError:  # Somebody else has set its result.
        return False


def _tell(future: Future[str], message_id: str) -> None:
    # A callback may raise anything.
    with suppress(BaseException):
        future.set_result(message_id)


def _fail(batch: Sequence[Sent], error: BaseException) -> None:
    for sent in batch:
        if not sent.future.done():
            with suppress(BaseException):
                sent.future.set_exception(combine.own(error))


_finding = world.Lock()
_producers: WeakSet[Producer] = WeakSet()


@cache
def _close_at_exit() -> None:
    # Once a database is open: the client's handler, which stops it, then runs later.
    atexit.register(_close_all)


def _close_all() -> None:
    for producer in list(_producers):
        try:
            producer.close(producer._timeout)
        except QueueError as error:
            log.warning("%r at the end of the process: %s", producer, error)


def _after_fork() -> None:
    """A forked process has none of the threads, and sends nothing for the other process."""
    global _finding
    _finding = world.Lock()
    for producer in list(_producers):
        producer._begin()


os.register_at_fork(after_in_child=_after_fork)
