"""Acknowledgements of plain handlers share commits, and each stays exact."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from fdbqueue import Credit, Depth, Message, Queue, Take, Worker
from fdbqueue.errors import InvalidArgument
from fdbqueue.messages import settle
from fdbqueue.store.binding import fdb
from fdbqueue.values.states import Outcome
from fdbqueue.worker import shared_state
from fdbqueue.worker.consumer import QueueConsumer
from tests.flaky import (
    CONFLICT,
    TIMED_OUT_COMMITTED,
    TIMED_OUT_LOST,
    UNKNOWN_COMMITTED,
    UNKNOWN_LOST,
    FlakyDatabase,
)
from tests.patience import DEADLINE, eventually
from tests.schemes import forced
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue(lease=60, backoff=None)


class Together:
    """A handler that returns when as many run as are wanted, and counts what it is given."""

    def __init__(self, count: int) -> None:
        self.handled: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(count)

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.handled[message.payload] += 1
        self._barrier.wait(DEADLINE)


def payloads(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def flaky(db: Database, plan: Iterable[str | None] = ()) -> Any:
    return FlakyDatabase(db, plan)


@pytest.mark.parametrize("scheme", ["auto", "first"])
def test_handlers_that_finish_together_share_a_commit_that_takes_the_next_messages(
    db: Database, space: fdb.Subspace, scheme: str
) -> None:
    # Given messages for eight handlers that always finish together
    queue = forced(Queue.create(db, "many", root=space), scheme)
    queue.enqueue_many(db, payloads(160))
    handler, counted = Together(8), flaky(db)
    # When a worker handles all
    with Worker(counted, 8).add(queue, handler):
        eventually(lambda: queue.depth(db).done == 160)
    # Then eight share a commit, as a rule
    assert counted.commits < 160 / 2
    assert set(handler.handled.values()) == {1}


def test_a_commit_takes_more_messages_than_there_are_handlers_while_these_are_fast(
    db: Database, queue: Queue
) -> None:
    # Given a worker that holds four messages as long as nobody knows how fast its handlers are
    queue.enqueue_many(db, payloads(1_000))
    counted, handled = flaky(db), Counter[bytes]()

    def handle(message: Message) -> None:
        handled[message.payload] += 1

    with Worker(counted, 2).add(queue, handle):
        eventually(lambda: queue.depth(db).done == 1_000)
    # Then most of its commits carried more
    assert counted.commits < 1_000 / 4
    assert set(handled.values()) == {1}
    assert len(handled) == 1_000


@pytest.mark.parametrize("options", [{"prefetch": 2}, {"credit": Credit(messages=4)}])
def test_a_worker_holds_no_more_than_it_was_told_however_fast_its_handlers_are(
    db: Database, queue: Queue, options: dict[str, Any]
) -> None:
    queue.enqueue_many(db, payloads(200))
    most = 0

    def handle(message: Message) -> None:
        nonlocal most
        most = max(most, queue.depth(db).leased)

    worker = Worker(db, 2, prefetch=options.get("prefetch"))
    with worker.add(queue, handle, take=Take(credit=options.get("credit"))):
        eventually(lambda: queue.depth(db).done == 200)
    # Besides four in hand, up to four that are finished may wait for their acknowledgement
    assert most <= 8


def test_what_was_taken_ahead_goes_to_others_when_handlers_become_slow(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker whose handlers were fast
    monkeypatch.setattr(shared_state, "AHEAD_WAITS_SECONDS", 0.3)
    gate = threading.Event()

    def handle(message: Message) -> None:
        assert message.payload != b"slow" or gate.wait(DEADLINE)

    try:
        with Worker(db, 2).add(queue, handle):
            queue.enqueue_many(db, payloads(300))
            eventually(lambda: queue.depth(db).done == 300)
            # When messages come for which they take long
            queue.enqueue_many(db, [b"slow"] * 100)
            eventually(lambda: queue.depth(db).leased > 4)
            # Then it gives back what it cannot begin soon, with all attempts
            eventually(lambda: queue.depth(db).leased <= 4)
            free = take(db, queue)
            assert (free.payload, free.message.attempts) == (b"slow", 0)
            queue.release(db, free)
            gate.set()
            eventually(lambda: queue.depth(db).done == 400)
    finally:
        gate.set()


def test_a_message_is_not_acknowledged_with_its_neighbour_before_its_own_handler_returns(
    db: Database, queue: Queue
) -> None:
    gate = threading.Event()

    def handle(message: Message) -> None:
        assert message.payload != b"0" or gate.wait(DEADLINE)

    queue.enqueue_many(db, payloads(30))
    try:
        with Worker(db, 4).add(queue, handle):
            eventually(lambda: queue.depth(db).done == 29)
            assert queue.depth(db).leased == 1
            gate.set()
            eventually(lambda: queue.depth(db).done == 30)
    finally:
        gate.set()


def test_who_lost_a_lease_does_not_keep_others_from_their_acknowledgement(
    db: Database, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    # Given four messages that are handled at once
    ids = queue.enqueue_many(db, payloads(4))
    handler = Together(5)
    with Worker(db, 4, prefetch=0).add(queue, handler):
        eventually(lambda: sum(handler.handled.values()) == 4)
        # When one of them is taken away, and all finish
        lost = next(each for each in queue.admin.leases(db) if each.delivery.id == ids[2])
        queue.release(db, lost.delivery, delay=3600)
        handler._barrier.wait(DEADLINE)
        # Then the others are done
        eventually(lambda: queue.depth(db).done == 3)
    assert queue.depth(db) == Depth(enqueued=4, done=3, scheduled=1)
    assert "was lost" in caplog.text


def test_a_shared_commit_that_fails_falls_back_to_one_by_one(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that can never be acknowledged
    done = settle.settle

    def fail(tr: Any, scope: Any, ending: settle.Ending) -> int:
        if any(each.payload == b"2" for each in ending.deliveries):
            raise InvalidArgument(argument="delivery", value=b"2", problem="is broken")
        return done(tr, scope, ending)

    monkeypatch.setattr(settle, "settle", fail)
    queue.enqueue_many(db, payloads(8))
    handler = Together(4)
    with Worker(db, 4).add(queue, handler):
        # Then the others are, and the worker goes on
        eventually(lambda: queue.depth(db).done == 7)
        assert queue.depth(db).leased == 1
    assert set(handler.handled.values()) == {1}


@pytest.mark.parametrize(
    "fault", [CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST, TIMED_OUT_COMMITTED, TIMED_OUT_LOST]
)
@pytest.mark.promise(2)
def test_whatever_becomes_of_a_shared_commit_each_message_is_handled_and_counted_once(
    db: Database, queue: Queue, fault: str
) -> None:
    queue.enqueue_many(db, payloads(40))
    handler, counts = Together(1), Counts()
    faults = itertools.cycle([None, None, fault])

    def of_this_commit() -> str | None:
        """Only the fetcher's fail, whatever others commit meanwhile."""
        fetches = threading.current_thread().name == "fdbqueue-fetcher"
        return next(faults) if fetches else None

    plan = iter(of_this_commit, "no fault")
    with Worker(flaky(db, plan), 4, metrics=counts).add(queue, handler):
        eventually(lambda: queue.depth(db).done == 40)
    assert queue.depth(db) == Depth(enqueued=40, done=40)
    assert handler.handled == Counter(payloads(40))
    assert counts.outcomes == {Outcome.DONE: 40}


def test_what_handlers_have_finished_is_acknowledged_when_the_worker_stops(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, payloads(200))
    handler = Together(1)
    with Worker(db, 4).add(queue, handler):
        eventually(lambda: handler.handled.total() >= 4)
    assert queue.depth(db).done == handler.handled.total()
    assert queue.depth(db).leased == 0


class Counts:
    """Counts outcomes, as the metrics of a worker do."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self._lock = threading.Lock()

    def ended(self, queue: str, ended: Any, began_ms: int, seconds: float, _: str) -> None:
        with self._lock:
            self.outcomes.update(outcome for _, outcome in ended)


def test_messages_that_are_acknowledged_return_their_credit_in_the_same_transaction(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, payloads(4))
    consumer = QueueConsumer(db, queue, "one", 0, None)
    credit = Credit(messages=2)
    held = consumer.fetch(credit, 2).deliveries
    fetched = consumer.settle_and_fetch(credit, 2, held)
    assert fetched is not None
    assert [each.payload for each in fetched.deliveries] == [b"2", b"3"]
    assert queue.depth(db) == Depth(enqueued=4, done=2, leased=2)


def test_who_meets_a_conflict_takes_the_messages_after_a_rest(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, payloads(2))
    consumer = QueueConsumer(db, queue, "one", 0, None)
    consumer.join()
    consumer.db = flaky(db, [CONFLICT, CONFLICT])
    found = consumer.fetch(Credit(messages=2), 2).deliveries
    assert [each.payload for each in found] == payloads(2)
