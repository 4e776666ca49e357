"""A producer: what threads send one by one is stored together, in order, and once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any, cast

import pytest

from fdbqueue import Bounds, NewMessage, Producer, Queue
from fdbqueue.errors import (
    InvalidArgument,
    InvalidPayload,
    OperationTimedOut,
    OutcomeUnknown,
    PayloadTooLarge,
    ProducerClosed,
    ProducerFull,
    QueueError,
    QueueFull,
    QueueNotFound,
    StoreForked,
    Unfinished,
)
from fdbqueue.store import binding, world
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.audit import sound
from tests.flaky import (
    TIMED_OUT_COMMITTED,
    TIMED_OUT_LOST,
    CuttableDatabase,
    FlakyDatabase,
)
from tests.patience import DEADLINE, eventually
from tests.taking import ready

Database = fdb.Database


class HeldDatabase:
    """The database, where commits of producers can be held up, and meet ``planned`` faults."""

    def __init__(self, db: Database) -> None:
        self.planned: list[str | None] = []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Semaphore(0)
        """Released by each commit that begins while they are held up."""
        self._flaky = FlakyDatabase(db, self._faults(), self._before)

    @property
    def db(self) -> Database:
        return cast("Database", self._flaky)

    @property
    def commits(self) -> int:
        return self._flaky.commits

    def _faults(self) -> Iterator[str | None]:
        while True:
            yield self.planned.pop(0) if self.planned and _is_producer() else None

    def _before(self) -> None:
        if _is_producer() and not self.open.is_set():
            self.asked.release()
            assert self.open.wait(DEADLINE)

    def hold(self) -> None:
        """Hold up commits from now on."""
        self.open.clear()

    def begun(self) -> None:
        """Wait until a commit is held up."""
        assert self.asked.acquire(timeout=DEADLINE)


def _is_producer() -> bool:
    return threading.current_thread().name.startswith("fdbqueue-producer")


@pytest.fixture
def held(db: Database) -> Iterator[HeldDatabase]:
    held = HeldDatabase(db)
    yield held
    held.open.set()


def stored(db: Database, queue: Queue) -> dict[str, bytes]:
    return {message.id: message.payload for message in queue.browse(db)}


def results(futures: Sequence[Future[str]]) -> list[str | type[BaseException]]:
    """What became of messages: their ids, or the types of their errors."""

    def one(future: Future[str]) -> str | type[BaseException]:
        try:
            return future.result(DEADLINE)
        except (QueueError, CancelledError, fdb.FDBError) as error:
            return type(error)

    return [one(future) for future in futures]


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def in_thread(work: Callable[[], object]) -> Future[Any]:
    """What a thread returns, or raises."""
    future: Future[Any] = Future()

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=body, daemon=True).start()
    return future


# -- together ---------------------------------------------------------------------------------


def test_what_is_sent_during_a_commit_shares_the_next_one(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    with queue.producer(held.db) as producer:
        # Given a commit under way
        held.hold()
        first = producer.send(b"first")
        held.begun()
        before = held.commits
        # When messages are sent meanwhile
        futures = [producer.send(payload) for payload in numbers(100)]
        held.open.set()
        # Then one commit stores them
        ids = [future.result(DEADLINE) for future in futures]
        assert held.commits == before + 1
    assert stored(db, queue) == dict(
        zip([first.result(), *ids], [b"first", *numbers(100)], strict=True)
    )
    assert ready(db, queue) == [b"first", *numbers(100)]
    sound(db, queue)


def test_what_one_thread_waits_for_goes_before_what_another_then_sends(
    db: Database, queue: Queue
) -> None:
    with queue.producer(db, max_batch=3) as producer:
        for payload in numbers(20):
            in_thread(partial(producer.send, payload)).result(DEADLINE)
    assert ready(db, queue) == numbers(20)


def test_messages_of_all_kinds_are_stored_as_enqueue_stores_them(
    db: Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "all", root=space, history_seconds=86_400)
    given: list[Any] = [
        b"plain",
        NewMessage(b"urgent", priority=9, headers={"a": 1}),
        NewMessage(b"large" * 40_000),
        NewMessage(b"unique", unique="u"),
        NewMessage(b"once", dedup_id="d"),
        NewMessage(b"mortal", ttl=60),
        NewMessage(b"key 1", key="k"),
        NewMessage(b"key 2", key="k"),
        NewMessage(b"late", delay=3600),
        bytearray(b"bytes that may change"),
        NewMessage(b"<a/>", content_type="text/xml"),
    ]
    with queue.producer(db) as producer:
        futures = [producer.send(message) for message in given]
        given[9][:] = b"bytes that have changed"
        same = [
            producer.send(NewMessage(b"x", unique="u")),
            producer.send(NewMessage(b"y", dedup_id="d")),
        ]
    ids = [future.result() for future in futures]
    assert [future.result() for future in same] == [ids[3], ids[4]]
    messages = [queue.get(db, each) for each in ids]
    assert all(each is not None for each in messages)
    told = [each.message for each in messages if each is not None]
    assert told[0].payload == b"plain"
    assert told[1].priority == 9
    assert told[1].headers == {"a": 1}
    assert told[3].unique == "u"
    assert told[5].expires_at_ms == told[5].enqueued_at_ms + 60_000
    assert [each.key for each in told[6:8]] == ["k", "k"]
    assert told[9].payload == b"bytes that may change"
    assert told[10].content_type == "text/xml"
    depth = queue.depth(db)
    assert (depth.enqueued, depth.scheduled) == (len(given), 1)
    enqueued = [
        event.id for event in queue.history(db) if event.transition in ("enqueue", "schedule")
    ]
    assert sorted(enqueued) == sorted(ids)
    sound(db, queue)


def test_a_serializer_works_in_the_sender(db: Database, space: fdb.Subspace) -> None:
    queue = Queue.create(db, "json", root=space)
    with queue.producer(db) as producer:
        value = {"a": [1]}
        future = producer.send(value)
        value["a"].append(2)
        with pytest.raises(InvalidPayload):
            producer.send({"a": object()})
    found = queue.get(db, future.result())
    assert found is not None
    assert queue.value(found.message) == {"a": [1]}


def test_a_batch_has_so_many_messages_and_bytes_at_most(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    with Producer(queue, held.db, max_batch=10) as producer:
        held.hold()
        futures = [producer.send(b"first")]
        held.begun()
        before = held.commits
        futures += [producer.send(payload) for payload in numbers(25)]
        held.open.set()
        producer.flush(DEADLINE)
        assert held.commits == before + 3
        # More than a transaction takes
        held.hold()
        futures += [producer.send(b"next")]
        held.begun()
        before = held.commits
        futures += [producer.send(b"x" * 2_500_000) for _ in range(6)]
        held.open.set()
        producer.flush(DEADLINE)
        assert held.commits == before + 6
    assert len(stored(db, queue)) == len({future.result() for future in futures}) == 33
    sound(db, queue)


def test_a_message_lingers_until_the_batch_is_full_or_somebody_waits_for_all(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    with Producer(queue, held.db, linger=60, max_batch=5) as producer:
        before = held.commits
        for _ in range(3):
            for payload in numbers(4):
                producer.send(payload)
            producer.flush(DEADLINE)
        assert held.commits == before + 3
        full = [producer.send(payload) for payload in numbers(5)]
        wait(full, 30)  # as ``linger`` is longer, only a full batch is stored by then
        assert all(future.done() for future in full)
        producer.send(b"last")
    assert held.commits == before + 5
    assert len(stored(db, queue)) == 18


# -- once -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [TIMED_OUT_COMMITTED, TIMED_OUT_LOST])
def test_a_commit_that_timed_out_is_told_as_it_ended_and_hits_no_other(
    db: Database, queue: Queue, held: HeldDatabase, fault: str
) -> None:
    with queue.producer(held.db) as producer:
        held.planned += [fault]
        first = producer.send(b"first")
        assert results([first]) == (
            [OperationTimedOut] if fault == TIMED_OUT_LOST else [*stored(db, queue)]
        )
        second = producer.send(b"second")
    assert stored(db, queue)[second.result()] == b"second"
    assert len(stored(db, queue)) == (1 if fault == TIMED_OUT_LOST else 2)


def test_an_outcome_that_nobody_can_tell_is_an_error_and_nothing_is_sent_again(
    db: Database, queue: Queue
) -> None:
    cuttable = CuttableDatabase(db)
    with queue.producer(cast("Database", cuttable)) as producer:
        producer.send(b"first").result(DEADLINE)
        cuttable.cut = True
        # The store is gone after the transaction began: its outcome stays unknown.
        error = producer.send(b"second").exception(DEADLINE)
        assert isinstance(error, OutcomeUnknown | fdb.FDBError)
        cuttable.cut = False
        producer.send(b"third").result(DEADLINE)
    assert ready(db, queue) == [b"first", b"third"]


def test_messages_that_waited_for_too_long_are_not_tried_any_more(
    db: Database, queue: Queue, held: HeldDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = 0.0
    monkeypatch.setattr("fdbqueue.queue.bulk.pending.world", _Later(lambda: late))
    monkeypatch.setattr("fdbqueue.queue.bulk.producer.world", _Later(lambda: late))
    with queue.within(1000).producer(held.db) as producer:
        # Given messages behind a slow commit
        held.hold()
        first = producer.send(b"first")
        held.begun()
        old = [producer.send(payload) for payload in numbers(3)]
        late = 1001.0
        young = producer.send(b"young")
        # When it ends
        held.open.set()
        # Then those that waited for too long are refused, and the others stored
        assert results(old) == [OperationTimedOut] * 3
        ids = [first.result(DEADLINE), young.result(DEADLINE)]
    assert stored(db, queue) == dict(zip(ids, [b"first", b"young"], strict=True))


class _Later:
    """The world at a later moment."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def monotonic(self) -> float:
        return time.monotonic() + self._seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(world, name)


# -- one bad message --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (NewMessage(b"x", priority=10), InvalidArgument),
        (NewMessage(b"x", priority=cast("int", "high")), InvalidArgument),
        (b"x" * 101, PayloadTooLarge),
        (NewMessage(b"x" * 101, unique="u"), PayloadTooLarge),
        (cast("bytes", {"text"}), InvalidPayload),
        (NewMessage(b"x", headers=cast("Any", {"a": object()})), InvalidArgument),
        (NewMessage(b"x", delay=-1), InvalidArgument),
        (NewMessage(b"x", ttl=0), InvalidArgument),
    ],
)
def test_an_invalid_message_is_refused_at_once_and_no_other(
    db: Database, space: fdb.Subspace, message: Any, error: type[Exception]
) -> None:
    queue = Queue.create(db, "small", root=space, max_payload=100)
    with queue.producer(db) as producer:
        first = producer.send(b"first")
        with pytest.raises(error):
            producer.send(message)
        second = producer.send(b"second")
    assert stored(db, queue) == {first.result(): b"first", second.result(): b"second"}


def test_what_the_queue_takes_now_is_taken_and_what_it_took_before_fails_alone(
    db: Database, space: fdb.Subspace, held: HeldDatabase
) -> None:
    queue = Queue.create(db, "small", root=space, max_payload=100)
    with queue.producer(held.db) as producer:
        queue.set_options(db, max_payload=1000)
        large = producer.send(b"x" * 1000)
        producer.flush(DEADLINE)
        held.hold()
        futures = [producer.send(b"first")]
        held.begun()
        # The producer does not know yet.
        queue.set_options(db, max_payload=10)
        futures += [producer.send(b"y" * size) for size in (5, 11, 6, 7, 12, 8)]
        held.open.set()
        told = results(futures)
    assert large.result() in stored(db, queue)
    assert [each is PayloadTooLarge for each in told] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    assert ready(db, queue)[1:] == [b"first", *(b"y" * size for size in (5, 6, 7, 8))]
    sound(db, queue)


def test_a_full_queue_takes_the_first_messages_and_refuses_the_others(
    db: Database, space: fdb.Subspace, held: HeldDatabase
) -> None:
    queue = Queue.create(db, "full", root=space, bounds=Bounds(messages=10))
    with queue.producer(held.db) as producer:
        held.hold()
        futures = [producer.send(b"0")]
        held.begun()
        futures += [producer.send(payload) for payload in numbers(29, 1)]
        held.open.set()
        told = results(futures)
    assert told[10:] == [QueueFull] * 20
    assert list(stored(db, queue).items()) == list(zip(told[:10], numbers(10), strict=True))
    sound(db, queue)


def test_a_producer_waits_for_room_and_keeps_the_order(db: Database, space: fdb.Subspace) -> None:
    queue = Queue.create(
        db, "full", root=space, bounds=Bounds(messages=10, when_full="block", resume_at=0.5)
    )
    with queue.within(DEADLINE).producer(db) as producer:
        futures = [producer.send(payload) for payload in numbers(60)]
        taken: list[bytes] = []
        while len(taken) < 60:
            found = queue.receive_many(db, 5, wait=1)
            queue.ack(db, found)
            taken += [each.payload for each in found]
            assert queue.depth(db).ready <= 10
        assert results(futures) == [future.result() for future in futures]
    assert taken == numbers(60)


def test_a_queue_that_drops_its_oldest_keeps_the_last_of_many(
    db: Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(
        db, "latest", root=space, bounds=Bounds(messages=10, when_full="drop-oldest")
    )
    with queue.producer(db) as producer:
        futures = [producer.send(payload) for payload in numbers(60)]
    assert len({future.result() for future in futures}) == 60
    assert ready(db, queue) == numbers(10, 50)
    sound(db, queue)


def test_a_queue_that_is_gone_is_an_error_of_each_message(
    db: Database, space: fdb.Subspace, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(QueueNotFound):
        Queue("nowhere", space).producer(db)
    with queue.producer(db) as producer:
        producer.send(b"x").result(DEADLINE)
        queue.delete(db)
        with caplog.at_level(logging.WARNING, "fdbqueue.producer"):
            futures = [producer.send(b"x") for _ in range(9)]
            assert results(futures) == [QueueNotFound] * 9
            producer.flush(DEADLINE)
        assert len({id(future.exception()) for future in futures}) == 9
        assert "9 messages were not stored: there is no queue 'orders'" in caplog.text
        Queue.create(db, "orders", root=space)
        assert producer.send(b"again").result(DEADLINE)


# -- bounds -----------------------------------------------------------------------------------


def test_a_sender_waits_while_the_producer_is_full(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    with queue.producer(held.db, max_pending=3) as producer:
        # Given a producer that holds as much as it may
        held.hold()
        producer.send(b"0")
        held.begun()
        producer.send(b"1")
        producer.send(b"2")
        # When more is sent, then it is an error after a while, or waits
        with pytest.raises(ProducerFull, match="holds 3 messages") as full:
            producer.send(b"x", room=0.01)
        assert (full.value.messages, full.value.max_messages) == (3, 3)
        assert isinstance(full.value, TimeoutError)
        with pytest.raises(ProducerFull):
            producer.send(b"x", room=0)
        waiting = []
        for payload in numbers(5, 3):
            waiting.append(in_thread(partial(producer.send, payload)))
            eventually(lambda: len(producer._pending._line) == len(waiting))
        assert producer.pending == 3
        held.open.set()
        for each in waiting:
            each.result(DEADLINE).result(DEADLINE)
    # First come, first served
    assert ready(db, queue) == numbers(8)
    assert producer.pending == 0


def test_the_bytes_of_a_producer_are_bounded_but_for_a_single_message(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    with queue.producer(held.db, max_pending_bytes=5_000) as producer:
        assert producer.send(b"x" * 100_000).result(DEADLINE)
        held.hold()
        producer.send(b"0" * 2_000)
        held.begun()
        with pytest.raises(ProducerFull):
            producer.send(b"x" * 2_000, room=0)
        producer.send(b"1")
        # A large message that waits is not overtaken by small ones that would fit.
        large = in_thread(lambda: producer.send(b"2" * 3_000))
        eventually(lambda: producer._pending._line)
        small = in_thread(lambda: producer.send(b"3"))
        eventually(lambda: len(producer._pending._line) == 2)
        held.open.set()
        for each in (large, small):
            each.result(DEADLINE).result(DEADLINE)
    assert [each[:1] for each in ready(db, queue)] == [b"x", b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "terms",
    [
        {"linger": -1},
        {"linger": 61},
        {"linger": "soon"},
        {"max_batch": 0},
        {"max_batch": 10_001},
        {"max_pending": 0},
        {"max_pending_bytes": 0},
    ],
    ids=str,
)
def test_terms_are_checked(db: Database, queue: Queue, terms: Any) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(terms))):
        queue.producer(db, **terms)
    with pytest.raises(InvalidArgument, match="must be a database"):
        Producer(queue, cast("Database", db.create_transaction()))


# -- the end ----------------------------------------------------------------------------------


def test_closing_stores_everything_and_then_refuses(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    producer = queue.producer(held.db, linger=60, max_pending=3)
    held.hold()
    futures = [producer.send(payload) for payload in numbers(3)]
    blocked = in_thread(lambda: producer.send(b"x"))
    eventually(lambda: producer._pending._line)
    closing = [in_thread(producer.close) for _ in range(2)]
    with pytest.raises(ProducerClosed):
        blocked.result(DEADLINE)
    with pytest.raises(ProducerClosed):
        producer.send(b"x")
    held.open.set()
    for each in closing:
        each.result(DEADLINE)
    producer.close()
    assert [future.result(0) for future in futures] == [*stored(db, queue)]
    assert ready(db, queue) == numbers(3)


def test_closing_within_a_time_fails_what_was_not_begun(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    producer = queue.producer(held.db, max_batch=2)
    held.hold()
    futures = [producer.send(b"0")]
    held.begun()
    futures += [producer.send(payload) for payload in numbers(5, 1)]
    assert futures[-1].cancel()
    with pytest.raises(Unfinished, match="6 messages") as open_:
        producer.close(0.01)
    assert isinstance(open_.value, TimeoutError)
    assert results(futures[1:]) == [ProducerClosed] * 4 + [CancelledError]
    # What was begun is told as it ends.
    assert not futures[0].done()
    held.open.set()
    producer.close(DEADLINE)
    assert stored(db, queue) == {futures[0].result(0): b"0"}


def test_closing_ends_a_batch_of_which_only_a_part_was_tried(
    db: Database, space: fdb.Subspace, held: HeldDatabase
) -> None:
    queue = Queue.create(db, "full", root=space, bounds=Bounds(messages=1))
    producer = queue.producer(held.db)
    held.hold()
    futures = [producer.send(payload) for payload in numbers(6)]
    held.begun()
    with pytest.raises(Unfinished):
        producer.close(0.01)
    held.open.set()
    producer.close(DEADLINE)
    told = results(futures)
    assert [each for each in told if isinstance(each, str)] == [*stored(db, queue)] == told[:1]
    assert {*told[1:]} <= {QueueFull, ProducerClosed}
    assert told[-1] is ProducerClosed


def test_an_exception_in_the_block_does_not_lose_what_was_sent(db: Database, queue: Queue) -> None:
    def fail(producer: Producer[Any]) -> None:
        with producer:
            producer.send(b"sent")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(queue.producer(db, linger=60))
    assert ready(db, queue) == [b"sent"]


def test_flushing_waits_for_what_was_sent_before_only(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    with queue.producer(held.db, max_batch=1) as producer:
        producer.flush(0)
        held.hold()
        first = producer.send(b"first")
        held.begun()
        with pytest.raises(Unfinished, match="1 messages"):
            producer.flush(0.01)
        flushing = in_thread(lambda: producer.flush(DEADLINE))
        eventually(lambda: producer._pending._wanted == 1)
        producer.send(b"second")
        held.open.set()
        flushing.result(DEADLINE)
        assert first.done()
    assert ready(db, queue) == [b"first", b"second"]


def test_a_message_is_cancelled_until_its_transaction_begins(
    db: Database, queue: Queue, held: HeldDatabase
) -> None:
    with queue.producer(held.db) as producer:
        held.hold()
        begun = producer.send(b"begun")
        held.begun()
        futures = [producer.send(payload) for payload in numbers(4)]
        assert not begun.cancel()
        assert futures[1].cancel()
        held.open.set()
    assert results(futures)[1] is CancelledError
    assert ready(db, queue) == [b"begun", b"0", b"2", b"3"]
    assert queue.depth(db).enqueued == 4


def test_callbacks_can_send_and_never_block_or_stop_the_producer(
    db: Database, queue: Queue
) -> None:
    told: list[object] = []
    with queue.producer(db, max_pending=1) as producer:

        def again(future: Future[str]) -> None:
            try:
                producer.send(b"no room: the first is not done yet", room=DEADLINE)
            except ProducerFull as error:
                told.append(type(error))
            producer.flush()
            told.append(future.result(0))
            raise SystemExit

        future = producer.send(b"first")
        future.add_done_callback(again)
        future.result(DEADLINE)
        producer.flush(DEADLINE)
        producer.send(b"second").add_done_callback(lambda _: producer.close())
        producer.flush(DEADLINE)
        with pytest.raises(ProducerClosed):
            producer.send(b"third")
    assert told == ([ProducerFull, future.result()] if told else [])
    assert ready(db, queue) == [b"first", b"second"]


def test_a_fork_after_the_client_was_opened_is_a_clear_error(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with queue.producer(db) as producer:
        monkeypatch.setattr(binding, "forked", True)
        with pytest.raises(StoreForked):
            producer.send(b"x")


# -- time -------------------------------------------------------------------------------------


def test_delays_and_times_to_live_count_from_the_moment_of_sending(
    db: Database, space: fdb.Subspace, held: HeldDatabase
) -> None:
    clock = ManualClock()
    queue = Queue.create(db, "timed", root=space, clock=clock)
    with queue.producer(held.db) as producer:
        held.hold()
        producer.send(b"first")
        held.begun()
        mortal = producer.send(NewMessage(b"mortal", ttl=50))
        late = producer.send(NewMessage(b"late", delay=50))
        clock.seconds += 30
        held.open.set()
        producer.flush(DEADLINE)
    for future in (mortal, late):
        assert queue.get(db, future.result()) is not None
    clock.seconds += 21
    assert [each.payload for each in queue.receive_many(db, 9)] == [b"first", b"late"]
