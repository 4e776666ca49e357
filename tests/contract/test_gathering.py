"""Threads that receive from one queue at the same time share transactions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import pytest

from fdbqueue import Delivery, Queue
from fdbqueue.errors import LeaseLost, QueueError
from fdbqueue.store import tasks
from fdbqueue.store.binding import fdb
from fdbqueue.store.combine import Combiner
from tests.flaky import CONFLICT, PLANS, FlakyDatabase
from tests.patience import DEADLINE, eventually
from tests.schemes import forced
from tests.taking import payloads

T = TypeVar("T")


@pytest.fixture(params=["auto", "staged"])
def queue(db: fdb.Database, space: fdb.Subspace, request: pytest.FixtureRequest) -> Queue:
    return forced(Queue.create(db, "orders", root=space), request.param)


def others(queue: Queue) -> Combiner[Any, Any]:
    """What all threads but the main one share."""
    return queue._accesses._others.combiner


class Together:
    """Threads that ask one after another while another one has the turn."""

    def __init__(self, db: fdb.Database, queue: Queue, plan: Sequence[str | None] = ()) -> None:
        self.queue = queue
        self.flaky = FlakyDatabase(db, plan)
        self.found: dict[int, list[Delivery] | QueueError] = {}
        self._threads: list[threading.Thread] = []
        others(queue)._taken = True

    def asks(self, work: Callable[[fdb.Database], list[Delivery]]) -> None:
        number = len(self._threads)

        def body() -> None:
            try:
                self.found[number] = work(cast("fdb.Database", self.flaky))
            except QueueError as error:
                self.found[number] = error

        self._threads.append(threading.Thread(target=body))
        self._threads[-1].start()
        eventually(lambda: len(others(self.queue)._waiting) > number)

    def receives(self, ack: Sequence[Delivery] = (), wait: float = 0.0) -> None:
        self.asks(lambda db: self.queue.receive_many(db, 1, ack=ack, wait=wait))

    def go(self) -> list[list[bytes] | type[QueueError]]:
        """Lets them ask; returns what each was given."""
        others(self.queue)._taken = False
        others(self.queue)._pass_on()
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()
        every = [self.found[n] for n in range(len(self._threads))]
        return [type(one) if isinstance(one, QueueError) else payloads(one) for one in every]


@pytest.mark.sample(9)
@pytest.mark.parametrize("plan", [[], *PLANS], ids=", ".join)
def test_threads_that_ask_at_the_same_time_are_served_in_their_order_by_one_commit(
    db: fdb.Database, queue: Queue, plan: Sequence[str | None]
) -> None:
    # Given four threads, two of which have done a message
    queue.enqueue_many(db, [b"%d" % n for n in range(8)])
    done = [queue.receive_many(db, 1) for _ in range(2)]
    together = Together(db, queue, plan)
    for ack in ([], *done, []):
        together.receives(ack)
    # When they ask at the same time
    found = together.go()
    # Then each has its message, and all of it has happened once
    assert found == [[b"2"], [b"3"], [b"4"], [b"5"]]
    depth = queue.depth(db)
    assert (depth.ready, depth.leased, depth.done) == (2, 4, 2)
    if [*plan] in ([], [CONFLICT]) and queue._entry.scheme == "auto":
        assert together.flaky.commits == 1 + len(plan)
    assert queue.admin.verify(db).ok


def test_an_acknowledgement_that_fails_hits_only_its_thread(db: fdb.Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(6)])
    lost, held = queue.receive_many(db, 1), queue.receive_many(db, 1)
    queue.ack(db, lost)
    together = Together(db, queue)
    for ack in ([], lost, held):
        together.receives(ack)
    assert together.go() == [[b"2"], LeaseLost, [b"3"]]
    depth = queue.depth(db)
    assert (depth.ready, depth.leased, depth.done) == (2, 2, 2)


def test_threads_for_which_there_is_no_message_learn_so_or_wait_in_line(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue(db, b"0")
    together = Together(db, queue)
    together.receives()
    together.receives(wait=DEADLINE)
    together.receives()

    def enqueue_later() -> None:
        eventually(lambda: together.found.keys() >= {0, 2})
        queue.enqueue(db, b"1")

    late = threading.Thread(target=enqueue_later)
    late.start()
    assert together.go() == [[b"0"], [b"1"], []]
    late.join(DEADLINE)
    assert queue.admin.verify(db).ok


def test_a_process_forked_in_a_turn_has_turns_of_its_own(db: fdb.Database, queue: Queue) -> None:
    others(queue)._taken = True
    child = os.fork()
    if not child:
        os._exit(others(queue)._taken)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    others(queue)._taken = False


def in_a_thread(work: Callable[[], T]) -> T:
    """What work returns, in a thread that is not the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(DEADLINE)


def test_the_end_of_a_message_makes_the_next_one_of_its_key_ready_for_the_same_threads(
    db: fdb.Database, queue: Queue
) -> None:
    for n in range(2):
        queue.enqueue(db, b"%d" % n, key="k")
    held = queue.receive_many(db, 1)
    together = Together(db, queue)
    together.receives(held)
    together.receives()
    assert together.go() == [[b"1"], []]


def test_an_interrupted_thread_leaves_nothing_behind(
    db: fdb.Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a thread that is interrupted while another one asks for both
    queue.enqueue_many(db, [b"0", b"1"])
    together = Together(db, queue)
    together.receives()
    event, interrupted = tasks.Event, threading.Event()
    wait = event.wait

    def interrupt(turn: tasks.Event, seconds: float | None = None) -> bool:
        monkeypatch.setattr(event, "wait", wait)
        together.found[1] = []
        threading.Thread(target=together.go).start()
        wait(turn)
        raise KeyboardInterrupt

    def asks() -> None:
        try:
            queue.receive(db)
        except KeyboardInterrupt:
            interrupted.set()

    monkeypatch.setattr(event, "wait", interrupt)
    in_a_thread(asks)
    assert interrupted.is_set()
    # Then the other one has its message, and the interrupted one has given back its own
    for thread in together._threads:
        thread.join(DEADLINE)
    assert payloads(together.found[0]) == [b"0"]  # type: ignore[arg-type]
    assert payloads(queue.peek(db, 2)) == [b"1"]
    # And the queue goes on
    assert payloads(queue.receive_many(db, 1)) == [b"1"]


def test_no_thread_waits_for_the_main_thread(db: fdb.Database, queue: Queue) -> None:
    # Given the main thread, in the middle of a receive: a signal may interrupt it anywhere
    queue.enqueue_many(db, [b"0", b"1"])
    found: list[list[bytes]] = []

    def meanwhile() -> None:
        if not found:
            found.append(in_a_thread(lambda: payloads(queue.receive_many(db, 1))))

    # When a thread asks, then it has its answer before the main thread has
    flaky = cast("fdb.Database", FlakyDatabase(db, [], before=meanwhile))
    mine = payloads(queue.receive_many(flaky, 1))
    assert sorted([*found[0], *mine]) == [b"0", b"1"]
