from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import tenacity

from fdbqueue import Depth, Fail, Message, NewMessage, Queue, Run, Subscription, Take
from fdbqueue.consumers import wakeups
from fdbqueue.consumers.consumer_states import ConsumerState
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from fdbqueue.store.connection import ConnectionState
from fdbqueue.store.embedded import StoreFull
from fdbqueue.testing import ManualClock
from fdbqueue.worker import Reject, Retry, Worker
from tests.flaky import UNKNOWN_COMMITTED, CuttableDatabase, FlakyDatabase
from tests.patience import DEADLINE, eventually
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue(max_attempts=3, lease=60, backoff=None)


def pass_time(db: Database, queue: Queue, clock: ManualClock, seconds: float) -> None:
    """Move the clocks; who sleeps by the real ones is told."""
    clock.seconds += seconds
    wakeups.ring(db, queue._keys)


class Recorder:
    """A handler that writes down what it is given, and waits at a gate if it is shut."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()
        self._changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self._changed:
            self.handled.append(message.payload)
            self._changed.notify_all()
        assert self.gate.wait(DEADLINE)

    def wait_for(self, count: int) -> list[bytes]:
        """What it was given, once that is ``count`` messages."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.handled) >= count, DEADLINE)
            return list(self.handled)


INTERESTED = ConsumerState.INTERESTED


@pytest.fixture(params=["any message", "what a selector matches"])
def subscription(request: pytest.FixtureRequest, db: Database, queue: Queue) -> Subscription | None:
    """What a worker consumes: the queue, or a subscription."""
    wanted = request.param == "what a selector matches"
    return queue.subscriptions.open(db, "wanted", selector="priority >= 0") if wanted else None


def total(db: Database, key: bytes) -> int:
    return int.from_bytes(db[key] or b"", "little")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.gate.set()


def test_messages_that_are_there_and_that_come_are_handled_and_acknowledged(
    db: Database, queue: Queue, recorder: Recorder
) -> None:
    queue.enqueue(db, b"before")
    with Worker(db, 2).add(queue, recorder):
        recorder.wait_for(1)
        queue.enqueue_many(db, [b"after", b"and again"])
        recorder.wait_for(3)
        eventually(lambda: queue.depth(db) == Depth(enqueued=3, done=3))


def test_a_worker_that_stops_leaves_no_trace_but_what_it_did(
    db: Database, queue: Queue, recorder: Recorder, space: fdb.Subspace
) -> None:
    with Worker(db, 1).add(queue, recorder):
        eventually(lambda: queue.admin.consumers(db))
    assert queue.admin.consumers(db) == []


def test_an_unknown_commit_of_a_transactional_handler_counts_once(
    db: Database, queue: Queue, space: fdb.Subspace
) -> None:
    count = space.pack(("count",))

    def handle(tr: fdb.Transaction, message: Message) -> None:
        tr.add(count, (1).to_bytes(8, "little"))

    queue.enqueue_many(db, [b"x"] * 20)
    flaky = FlakyDatabase(db, [None, UNKNOWN_COMMITTED] * 500)
    worker = Worker(flaky, 2)  # type: ignore[arg-type]
    with worker.add(queue, handle):
        eventually(lambda: queue.depth(db).done == 20)
    assert total(db, count) == 20
    assert queue.depth(db) == Depth(enqueued=20, done=20)


def test_a_batch_handler_is_given_what_is_there_and_settles_it_as_one(
    db: Database, queue: Queue
) -> None:
    batches: list[list[bytes]] = []

    def handle(messages: list[Message]) -> None:
        batches.append([message.payload for message in messages])

    queue.enqueue_many(db, [b"%d" % n for n in range(10)])
    with Worker(db, 1).add(queue, handle, run=Run(batch=4)):
        eventually(lambda: queue.depth(db).done == 10)
    assert [payload for batch in batches for payload in batch] == [b"%d" % n for n in range(10)]
    assert max(map(len, batches)) == 4


class Failing:
    """A handler that fails the first times, as often as it is told."""

    def __init__(self, times: int, error: Callable[[], BaseException] = lambda: ValueError("no")):
        self.left = times
        self.error = error

    def __call__(self, message: Message) -> None:
        self.left -= 1
        if self.left >= 0:
            raise self.error()


def test_a_message_whose_handler_fails_is_tried_again(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, Failing(2)):
        eventually(lambda: queue.depth(db).done == 1)


def test_at_the_queues_maximum_of_attempts_it_becomes_a_dead_letter(
    db: Database, queue: Queue
) -> None:
    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, Failing(99)):
        eventually(lambda: queue.depth(db).dead == 1)
    (letter,) = queue.dead.list(db)
    assert "ValueError: no" in str(letter)


def test_the_workers_own_maximum_of_attempts_and_backoff_come_first(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue(db, b"a")
    worker = Worker(db, 1)
    with worker.add(
        queue, Failing(99), fail=Fail(max_attempts=2, backoff=tenacity.wait_fixed(3600))
    ):
        eventually(lambda: queue.depth(db).retrying == 1)
        pass_time(db, queue, clock, 3601)
        eventually(lambda: queue.depth(db).dead == 1)


def test_a_handler_says_when_to_try_again_or_that_it_never_will(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, Failing(99, lambda: Retry("later", seconds=3600))):
        eventually(lambda: queue.depth(db).retrying == 1)
    queue.enqueue(db, b"b")
    with Worker(db, 1).add(queue, Failing(99, lambda: Reject("poison"))):
        eventually(lambda: queue.depth(db).dead == 1)


def test_a_handler_may_drop_a_message(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, Failing(99, lambda: Reject("poison", drop=True))):
        eventually(lambda: (depth := queue.depth(db)).leased + depth.ready == 0)
    assert queue.dead.list(db) == []
    assert queue.depth(db).dead == 0
    assert queue.depth(db).enqueued == 1


def test_a_paused_queue_is_taken_from_again_when_it_is_resumed(
    db: Database, queue: Queue, recorder: Recorder
) -> None:
    queue.admin.pause(db)
    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, recorder):
        eventually(lambda: [c for c in queue.admin.consumers(db) if c.state == 2])
        assert recorder.handled == []
        queue.admin.resume(db)
        recorder.wait_for(1)


def test_an_effect_whose_lease_is_lost_is_not_committed(
    db: Database, queue: Queue, space: fdb.Subspace, clock: ManualClock
) -> None:
    effects, entered, stolen = [], threading.Event(), threading.Event()

    def handle(tr: fdb.Transaction, message: Message) -> None:
        tr[space.pack(("effect", message.deaths))] = b""
        effects.append(message.deaths)
        if message.deaths == 0:
            entered.set()
            assert stolen.wait(DEADLINE)

    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, handle):
        assert entered.wait(DEADLINE)
        clock.seconds += 71
        thief = take(db, queue)
        assert thief.message.deaths == 1
        stolen.set()
        queue.release(db, thief)
        eventually(lambda: queue.depth(db).done == 1)
    found = db.get_range(space.range(("effect",)).start, space.range(("effect",)).stop)
    assert [space.unpack(kv.key)[1] for kv in found] == [1]
    assert sorted(effects) == [0, 1]


def test_a_transactional_handler_is_not_run_again_because_its_lease_is_extended(
    db: Database, space: fdb.Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "brief", root=space, lease=0.3, clock=clock)
    every = queue._keys.until.rows
    runs: list[bytes] = []

    def handle(tr: fdb.Transaction, message: Message) -> None:
        runs.append(message.payload)
        until = None

        def extended() -> bool:
            return any(kv.value != until for kv in db.get_range(every.start, every.stop))

        for _ in range(2):
            eventually(extended)
            until = db.get_range(every.start, every.stop)[0].value

    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, handle):
        eventually(lambda: queue.depth(db).done == 1)
    assert runs == [b"a"]


def test_a_graceful_stop_finishes_what_is_in_hand_and_gives_back_the_rest(
    db: Database, queue: Queue, recorder: Recorder
) -> None:
    recorder.gate.clear()
    queue.enqueue_many(db, [b"%d" % n for n in range(5)])
    worker = Worker(db, 1, prefetch=4).add(queue, recorder)
    running = threading.Thread(target=worker.run)
    running.start()
    recorder.wait_for(1)
    eventually(lambda: queue.depth(db).leased == 5)
    worker.stop()
    eventually(lambda: queue.depth(db).ready == 4)
    assert running.is_alive(), "one message is still in hand"
    recorder.gate.set()
    running.join(DEADLINE)
    assert not running.is_alive()
    assert recorder.handled == [b"0"]
    assert queue.depth(db) == Depth(enqueued=5, ready=4, done=1, ready_bytes=4)
    assert [message.attempts for message in queue.peek(db, 9)] == [0, 0, 0, 0]


def test_the_second_stop_gives_back_what_is_in_hand_at_once(
    db: Database, queue: Queue, recorder: Recorder
) -> None:
    recorder.gate.clear()
    queue.enqueue(db, b"a")
    worker = Worker(db, 1).add(queue, recorder)
    running = threading.Thread(target=worker.run)
    running.start()
    recorder.wait_for(1)
    worker.stop()
    worker.stop()
    running.join(DEADLINE)
    assert not running.is_alive()
    again = take(db, queue)
    assert again.attempt == 1, "no attempt has failed"
    queue.ack(db, again)


def test_what_is_not_finished_by_the_deadline_of_a_stop_is_given_back(
    db: Database, queue: Queue, recorder: Recorder
) -> None:
    recorder.gate.clear()
    queue.enqueue(db, b"a")
    with Worker(db, 1, shutdown=0.1).add(queue, recorder):
        recorder.wait_for(1)
    assert queue.depth(db) == Depth(enqueued=1, ready=1, ready_bytes=1)


@pytest.mark.parametrize(
    "error",
    [None, StoreFull("store.fdbq", "database or disk is full")],
    ids=["no answer", "no room"],
)
def test_no_work_is_taken_while_the_store_is_away_and_it_goes_on_afterwards(
    db: Database, queue: Queue, recorder: Recorder, error: Exception | None
) -> None:
    store = CuttableDatabase(db, error)
    worker = Worker(store, 1).add(queue, recorder)  # type: ignore[arg-type]
    states: list[ConnectionState] = []
    worker.connection.interval = 0.02
    worker.connection.listen(states.append)
    with worker:
        queue.enqueue(db, b"1")
        recorder.wait_for(1)
        eventually(lambda: queue.depth(db).done == 1)
        store.cut = True
        eventually(lambda: states == [ConnectionState.SUSPENDED])
        queue.enqueue(db, b"2")
        assert recorder.handled == [b"1"]
        store.cut = False
        recorder.wait_for(2)
        eventually(lambda: queue.depth(db).done == 2)
    assert states == [ConnectionState.SUSPENDED, ConnectionState.RECONNECTED]


def test_what_a_worker_held_when_the_connection_was_lost_is_begun_only_anew(
    db: Database, queue: Queue, recorder: Recorder, clock: ManualClock
) -> None:
    recorder.gate.clear()
    queue.enqueue_many(db, [b"in hand", b"at hand"])
    store = CuttableDatabase(db)
    worker = Worker(store, 1, prefetch=1).add(queue, recorder)  # type: ignore[arg-type]
    states: list[ConnectionState] = []
    worker.connection.interval = 0.02
    worker.connection.lost_after = 0.1
    with worker:
        worker.connection.listen(states.append)  # It is told after the worker.
        recorder.wait_for(1)
        eventually(lambda: queue.depth(db).leased == 2)
        store.cut = True
        eventually(lambda: ConnectionState.LOST in states)
        recorder.gate.set()
        clock.seconds += 61
        again = [queue.receive(db), queue.receive(db)]
        assert None not in again, "both leases have lapsed"
        store.cut = False
        eventually(lambda: states[-1] is ConnectionState.RECONNECTED)
        assert recorder.handled == [b"in hand"]
        pass_time(db, queue, clock, 61)
        assert recorder.wait_for(3)[1:] == [b"in hand", b"at hand"]
        eventually(lambda: queue.depth(db).done == 2)


def test_a_worker_without_a_handler_or_with_two_for_a_queue_is_refused(
    db: Database, queue: Queue, recorder: Recorder
) -> None:
    with pytest.raises(InvalidArgument, match="no handler"):
        Worker(db).run()
    with pytest.raises(InvalidArgument, match="already"):
        Worker(db).add(queue, recorder).add(queue, recorder)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"prefetch": -1}, {"priority": "1"}])
def test_a_worker_with_arguments_that_make_no_sense_is_refused(
    db: Database, wrong: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgument):
        Worker(db, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["acquire", "browse"])
def test_a_worker_takes_no_subscription_of_another_queue(
    db: Database, queue: Queue, space: fdb.Subspace, mode: str
) -> None:
    other = Queue.create(db, "other", root=space).subscriptions.open(db, "all", mode=mode)
    with pytest.raises(InvalidArgument, match="another queue than 'orders'"):
        Worker(db, 1).add(queue, print, take=Take(subscription=other))


def test_a_worker_handles_what_the_selector_of_its_subscription_matches(
    db: Database, queue: Queue, recorder: Recorder
) -> None:
    other = Recorder()
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    queue.enqueue(db, b"before", headers={"region": "eu"})
    worker = Worker(db, 1).add(queue, recorder, take=Take(subscription=europe))
    with worker:
        recorder.wait_for(1)
        queue.enqueue(db, b"no", headers={"region": "us"})
        queue.enqueue(db, b"after", headers={"region": "eu"})
        assert recorder.wait_for(2) == [b"before", b"after"]
        (consumer,) = queue.admin.consumers(db)
        assert (consumer.name, consumer.subscription) == (worker.name, "europe")
        eventually(lambda: [one.state for one in queue.admin.consumers(db)] == [INTERESTED])
        with Worker(db, 1).add(queue, other):
            assert other.wait_for(1) == [b"no"]
    assert queue.admin.consumers(db) == []


def test_what_a_worker_would_give_back_and_has_lost_is_forgotten(
    db: Database, queue: Queue, recorder: Recorder, clock: ManualClock
) -> None:
    recorder.gate.clear()
    queue.enqueue_many(db, [b"1", b"2", b"3"])
    with Worker(db, 1, prefetch=2).add(queue, recorder, take=Take(refresh_after=1)):
        recorder.wait_for(1)
        eventually(lambda: queue.depth(db).leased == 3)
        clock.seconds += 61
        stolen = [found for _ in range(4) if (found := queue.receive(db))]
        assert len(stolen) == 3
        urgent = [b"urgent %d" % n for n in range(3)]
        queue.enqueue_many(db, [NewMessage(each, priority=9) for each in urgent])
        recorder.gate.set()
        assert recorder.wait_for(4) == [b"1", *urgent]
        queue.ack(db, stolen)
        eventually(lambda: queue.depth(db).done == 6)
    assert recorder.handled == [b"1", *urgent]


def test_a_clock_that_steps_back_lets_no_live_lease_lapse(
    db: Database, queue: Queue, clock: ManualClock, recorder: Recorder
) -> None:
    # Given a worker that handles a message for longer than its lease
    queue.enqueue(db, b"a")
    recorder.gate.clear()
    elsewhere = Queue(queue.name, queue._root)
    worker = Worker(db)
    worker.add(queue, recorder, take=Take(lease=0.6))
    with worker:
        recorder.wait_for(1)
        (granted,) = elsewhere.admin.leases(db)
        # When its clock steps back by most of a minute
        clock.wall_only = -55
        # Then the lease is extended nevertheless
        until = db[queue._keys.until(granted.delivery.token[:16])]
        eventually(lambda: db[queue._keys.until(granted.delivery.token[:16])] != until)
        assert elsewhere.receive(db) is None
        recorder.gate.set()
        eventually(lambda: elsewhere.depth(db).done == 1)
    assert recorder.handled == [b"a"]
