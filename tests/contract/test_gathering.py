"""Threads that receive from one queue at the same time share transactions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest

from fdbqueue import Delivery, Queue
from fdbqueue.errors import LeaseLost, QueueError
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
