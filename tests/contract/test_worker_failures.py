"""Workers whose handlers fail in every way, hang, or are starved."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import threading
import time
from typing import Any, cast

import pytest

from fdbqueue import (
    Credit,
    Delivery,
    Depth,
    Fail,
    Message,
    Queue,
    Reject,
    Retry,
    Run,
    Snooze,
    Take,
    Worker,
)
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.worker import shared_state
from fdbqueue.worker.consumer import QueueConsumer
from tests.patience import DEADLINE, eventually
from tests.taking import take

Database = fdb.Database


def done(db: Database, queue: Queue, count: int) -> None:
    """Wait until so many messages are done."""
    eventually(lambda: queue.depth(db).done == count)


@pytest.fixture
def queue(db: Database, space: fdb.Subspace) -> Queue:
    return Queue.create(db, "orders", root=space, max_attempts=3, lease=60, backoff=None)


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("an error that cannot be told")


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, SystemExit, BaseException, NoText],
)
def test_whatever_a_handler_raises_ends_its_message_and_no_thread(
    db: Database, queue: Queue, error: type[BaseException]
) -> None:
    handled: list[bytes] = []

    def handle(message: Message) -> None:
        handled.append(message.payload)
        if message.payload == b"bad":
            raise error()

    queue.enqueue_many(db, [b"bad", b"bad", b"good"])
    with Worker(db, 1).add(queue, handle, fail=Fail(max_attempts=1)):
        eventually(lambda: queue.depth(db) == Depth(enqueued=3, dead=2, done=1))
    assert handled == [b"bad", b"bad", b"good"]
    reasons = {letter.death.reason.split(":")[0] for letter in queue.dead.list(db)}
    assert reasons == {error.__name__}


@pytest.mark.parametrize("transactional", [False, True])
def test_of_a_batch_that_fails_only_the_message_at_fault_loses_an_attempt(
    db: Database, queue: Queue, transactional: bool
) -> None:
    def handle(*given: Any) -> None:
        if b"50" in given[-1]:
            raise ValueError("poison")

    queue.enqueue_many(db, [b"%d" % n for n in range(100)])
    worker = Worker(db, 1)
    with worker.add(
        queue, handle, run=Run(batch=100, transactional=transactional), fail=Fail(max_attempts=1)
    ):
        eventually(lambda: queue.depth(db) == Depth(enqueued=100, dead=1, done=99))
    (letter,) = queue.dead.list(db)
    assert (letter.message.payload, letter.death.reason) == (b"50", "ValueError: poison")


@pytest.mark.parametrize("transactional", [False, True])
def test_a_handler_of_a_batch_returns_verdicts(
    db: Database, queue: Queue, space: fdb.Subspace, transactional: bool
) -> None:
    verdicts: dict[bytes, BaseException] = {
        b"3": Reject("no address"),
        b"5": Snooze(3600),
        b"7": Retry("busy", seconds=3600),
        b"8": Reject("twice", drop=True),
    }
    calls: list[int] = []

    def handle(*given: list[Message]) -> dict[str, BaseException]:
        *tr, messages = cast("Any", given)
        calls.append(len(messages))
        if tr:
            tr[0][space.pack(("seen",))] = b"%d" % len(messages)
        return {each.id: verdicts[each.payload] for each in messages if each.payload in verdicts}

    queue.enqueue_many(db, [b"%d" % n for n in range(20)])
    worker = Worker(db, 1)
    with worker.add(queue, handle, run=Run(batch=100, transactional=transactional)):
        done(db, queue, 16)
    assert calls == [20]
    assert db[space.pack(("seen",))] == (b"20" if transactional else None)
    depth = queue.depth(db)
    assert (depth.dead, depth.retrying + depth.scheduled, depth.purged) == (1, 2, 1)
    (letter,) = queue.dead.list(db)
    assert (letter.message.payload, letter.death.reason) == (b"3", "Reject: no address")


def test_verdicts_for_other_messages_fail_the_attempt(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"1", b"2"])
    with Worker(db, 1).add(
        queue,
        lambda _: {"nobody's": Reject()},
        run=Run(batch=9, transactional=False),
        fail=Fail(max_attempts=1),
    ):
        eventually(lambda: queue.depth(db).dead == 2)
    assert "is the id of no message" in queue.dead.list(db)[0].death.reason


def test_a_snooze_costs_no_attempt(db: Database, queue: Queue) -> None:
    handled: list[int] = []

    def handle(message: Message) -> None:
        handled.append(message.attempts)
        if len(handled) < 6:
            raise Snooze(0.001)

    queue.enqueue(db, b"a")
    with Worker(db, 1).add(queue, handle, fail=Fail(max_attempts=1)):
        eventually(lambda: queue.depth(db).done == 1)
    assert handled == [0] * 6


def test_a_handler_that_hangs_is_replaced_and_its_message_given_up(
    db: Database, queue: Queue
) -> None:
    gate, handled = threading.Event(), []

    def handle(message: Message) -> None:
        handled.append(message.payload)
        if message.payload == b"hangs":
            assert gate.wait(DEADLINE)

    try:
        queue.enqueue_many(db, [b"hangs", b"1", b"2"])
        worker = Worker(db, 1, prefetch=2)
        with worker.add(queue, handle, run=Run(timeout=0.1), fail=Fail(max_attempts=1)):
            eventually(lambda: queue.depth(db) == Depth(enqueued=3, dead=1, done=2))
            assert queue.admin.leases(db) == []
            gate.set()
        assert handled == [b"hangs", b"1", b"2"]
        (letter,) = queue.dead.list(db)
        assert letter.death.reason == "TimeoutError: the handler took longer than 0.1 s"
    finally:
        gate.set()


def test_what_waits_too_long_for_a_handler_goes_to_who_is_free(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker whose only handler is busy, and that holds another message
    monkeypatch.setattr(shared_state, "WAITS_SECONDS", 0.05)
    entered, gate = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        entered.set()
        assert gate.wait(DEADLINE)

    queue.enqueue_many(db, [b"1", b"2"])
    try:
        with Worker(db, 1, prefetch=1).add(queue, handle, take=Take(lease=0.2)):
            assert entered.wait(DEADLINE)
            # Then the other one comes back, with all its attempts
            eventually(lambda: queue.depth(db).ready == 1)
            free = take(db, queue)
            assert (free.payload, free.message.attempts) == (b"2", 0)
            queue.ack(db, free)
            gate.set()
            done(db, queue, 2)
    finally:
        gate.set()


def test_of_a_batch_that_hangs_only_the_message_at_fault_is_given_up(
    db: Database, queue: Queue
) -> None:
    gate = threading.Event()

    def handle(messages: list[Message]) -> None:
        if b"hangs" in [message.payload for message in messages]:
            assert gate.wait(DEADLINE)
            raise ValueError

    try:
        queue.enqueue_many(db, [b"1", b"hangs", b"2"])
        with Worker(db, 1).add(
            queue, handle, run=Run(batch=3, timeout=0.1), fail=Fail(max_attempts=1)
        ):
            eventually(lambda: queue.depth(db) == Depth(enqueued=3, dead=1, done=2))
    finally:
        gate.set()


def test_what_is_interrupted_costs_no_attempt(db: Database, queue: Queue) -> None:
    entered, gate = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        entered.set()
        assert gate.wait(DEADLINE)

    try:
        queue.enqueue_many(db, [b"1", b"2", b"3"])
        for _ in range(3):
            entered.clear()
            with Worker(db, 1, shutdown=0).add(queue, handle):
                assert entered.wait(DEADLINE)
        assert [message.attempts for message in queue.peek(db, 9)] == [0, 0, 0]
    finally:
        gate.set()


def test_one_queue_of_a_worker_never_waits_for_another(
    db: Database, space: fdb.Subspace, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a queue from which taking takes for ever
    stuck, gate, handled = Queue.create(db, "stuck", root=space), threading.Event(), []
    take = QueueConsumer.fetch

    def slow(self: QueueConsumer, *given: Any, **options: Any) -> Any:
        if self.queue.name == "stuck":
            assert gate.wait(DEADLINE)
        return take(self, *given, **options)

    monkeypatch.setattr(QueueConsumer, "fetch", slow)
    worker = Worker(db, 1).add(stuck, lambda message: None)
    try:
        with worker.add(queue, lambda message: handled.append(message)):
            # When messages come to the other one
            for n in range(5):
                queue.enqueue(db, b"%d" % n)
                # Then they are handled
                done(db, queue, n + 1)
            gate.set()
    finally:
        gate.set()


def test_a_worker_that_is_started_again_and_again_leaves_no_threads(
    db: Database, queue: Queue
) -> None:
    worker = Worker(db, 2).add(queue, lambda message: None)
    before = {thread.ident for thread in threading.enumerate()}
    for n in range(5):
        with worker:
            queue.enqueue(db, b"a")
            done(db, queue, n + 1)
    left = [thread.name for thread in threading.enumerate() if thread.ident not in before]
    # What is left belongs to the store, and is one for the process.
    ours = ("feeder", "keeper", "handler", "connection")
    assert [name for name in left if any(part in name for part in ours)] == []


@pytest.mark.parametrize(
    ("options", "how", "told"),
    [
        ({"concurrency": 16}, {"run": Run(batch=1000)}, "hold 16,016 messages"),
        ({}, {"take": Take(refresh_after=0)}, "1 to"),
        ({}, {"run": Run(timeout=0)}, "seconds"),
        ({}, {"take": Run()}, r"write take=Take"),
    ],
)
def test_options_that_cannot_work_are_refused(
    db: Database, queue: Queue, options: dict[str, Any], how: dict[str, Any], told: str
) -> None:
    with pytest.raises((InvalidArgument, ValueError), match=told):
        Worker(db, **options).add(queue, lambda taken: None, **how)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need it"
)
def test_a_signal_stops_a_worker_whatever_lock_it_interrupts(db: Database, queue: Queue) -> None:
    worker = Worker(db, 1).add(queue, lambda message: None)
    logger, handler = logging.getLogger("fdbqueue.worker"), logging.StreamHandler()
    logger.addHandler(handler)
    noticed: list[int] = []

    def interrupt() -> None:
        # It is in the list a moment before it runs.
        eventually(lambda: worker._runtime is not None and queue.admin.consumers(db))
        working = worker._runtime
        assert working is not None
        with working.state.lock, handler.lock or working.state.lock:
            os.kill(os.getpid(), signal.SIGTERM)
            until = time.monotonic() + DEADLINE
            while not worker._stops and time.monotonic() < until:
                time.sleep(0.001)
            noticed.append(worker._stops)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        worker.run()
    finally:
        logger.removeHandler(handler)
        interrupting.join()
    assert noticed == [1]
    assert queue.admin.consumers(db) == []


def test_a_worker_runs_in_a_process_with_thousands_of_descriptors(
    db: Database, queue: Queue
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2_000:
        pytest.skip("the machine allows no more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2_000, limits[0]), limits[1]))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1_100):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        worker = Worker(db, 1).add(queue, lambda message: None)
        running = threading.Thread(target=worker.run)
        running.start()
        queue.enqueue(db, b"a")
        done(db, queue, 1)
        assert running.is_alive()
        worker.stop()
        running.join()


def test_what_was_in_hand_when_processes_died_is_handled_beside_no_other(
    db: Database, space: fdb.Subspace
) -> None:
    # Given messages that two processes held, several at once, when they died
    clock = ManualClock()
    queue = Queue.create(db, "q", root=space, lease=60, clock=clock, max_attempts=1)
    queue.enqueue_many(db, [b"%d" % n for n in range(6)])
    for number in "12":
        dead = QueueConsumer(db, queue, number, 0, None, handlers=4)
        dead.join()
        while dead.fetch(Credit(messages=6), 6, begins=False).deliveries:
            pass
        dead.leave()
        clock.seconds += 61
        queue.admin.sweep(db)
    assert [message.attempts for message in queue.peek(db, 9)] == [0] * 6
    queue.enqueue_many(db, [b"fresh"] * 4)
    # When a third one handles them
    together: list[int] = []
    inside = threading.Semaphore(0)
    lock, now = threading.Lock(), [0]

    def handle(message: Message) -> None:
        with lock:
            now[0] += 1
            if message.payload != b"fresh":
                together.append(now[0])
        inside.acquire(timeout=0.01)
        with lock:
            now[0] -= 1

    with Worker(db, 4).add(queue, handle):
        done(db, queue, 10)
    # Then each of them had the process for itself
    assert together == [1] * 6


def test_a_message_that_kills_its_process_is_found_among_those_that_it_was_handled_with(
    db: Database, space: fdb.Subspace
) -> None:
    # Given a worker process of eight handlers that dies of one of sixteen messages
    clock = ManualClock()
    queue = Queue.create(db, "q", root=space, lease=60, clock=clock, max_deaths=2)
    queue.enqueue_many(db, [b"poison" if n == 7 else b"%d" % n for n in range(16)])
    deaths = 0
    while queue.depth(db).dead + queue.depth(db).done < 16:
        member = QueueConsumer(db, queue, "one", 0, None, handlers=8)
        member.join()
        held: list[Delivery] = []
        credit = Credit(messages=16)
        while taken := member.fetch(credit, 16, begins=not held).deliveries:
            held += taken
            credit = Credit(messages=16, used_messages=len(held))
            if taken[0].begun:
                break
        # When all that it began with was lost with the poison, and the rest too
        if any(one.payload == b"poison" for one in held):
            deaths += 1
            clock.seconds += 90
            queue.admin.sweep(db)
        else:
            queue.ack(db, held)
        member.leave()
    # Then nothing else becomes a dead letter
    assert queue.depth(db).done == 15
    (letter,) = queue.dead.list(db)
    assert (letter.message.payload, letter.message.deaths, deaths) == (b"poison", 2, 4)


def test_a_message_that_is_to_be_handled_alone_does_not_wait_long_for_a_long_handler(
    db: Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker with a handler that takes long, and a message that was lost twice
    monkeypatch.setattr(shared_state, "WAITS_SECONDS", 0.05)
    clock, entered, gate = ManualClock(), threading.Event(), threading.Event()
    queue = Queue.create(db, "q", root=space, lease=60, clock=clock)
    slow = Queue.create(db, "slow", root=space, lease=1)
    queue.enqueue(db, b"suspect")
    for number in "12":
        dead = QueueConsumer(db, queue, number, 0, None, handlers=4)
        dead.join()
        assert dead.fetch(Credit(messages=6), 6, begins=False).deliveries
        dead.leave()
        clock.seconds += 61
        queue.admin.sweep(db)

    def handle(message: Message) -> None:
        entered.set()
        assert gate.wait(DEADLINE)

    queue.admin.pause(db)
    slow.enqueue(db, b"slow")
    try:
        with Worker(db, 4).add(slow, handle).add(queue, lambda message: None):
            assert entered.wait(DEADLINE)
            # When it can be taken
            queue.admin.resume(db)
            # Then it is handled, and what comes behind it
            queue.enqueue(db, b"behind")
            done(db, queue, 2)
            gate.set()
    finally:
        gate.set()
