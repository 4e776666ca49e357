"""What workers answer to probes, over their whole life."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from fdbqueue import Message, Queue, Take
from fdbqueue.errors import InvalidArgument
from fdbqueue.metrics import WorkerMetrics
from fdbqueue.store.binding import fdb
from fdbqueue.worker import Worker
from fdbqueue.worker.health import Server, url
from tests.flaky import CuttableDatabase
from tests.patience import DEADLINE, eventually

Database = fdb.Database
HERE = ("127.0.0.1", 0)


def ask(worker: Worker, path: str) -> tuple[int, str]:
    assert worker.health is not None
    try:
        with urlopen(url(worker.health) + path, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode().strip()
    except HTTPError as error:
        return error.code, error.read().decode().strip()


def answers(worker: Worker, path: str, status: int) -> Callable[[], bool]:
    return lambda: ask(worker, path)[0] == status


def nothing(message: Message) -> None:
    """Handle a message."""


class Gate:
    """A handler that waits until it is opened."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, message: Message) -> None:
        self.entered.set()
        assert self.open.wait(DEADLINE)


def impatient(worker: Worker) -> None:
    """Let no thread that takes messages be late at all."""
    assert worker._runtime is not None
    for loop in worker._runtime.state.loops:
        if loop.takes:
            loop.patience = 0.0


def test_a_worker_whose_queue_is_empty_or_paused_lives_and_becomes_ready(
    db: Database, queue: Queue
) -> None:
    queue.admin.pause(db)
    queue.enqueue(db, b"waits")
    with Worker(db, health=HERE).add(queue, nothing) as worker:
        eventually(answers(worker, "/readyz", 200))
        assert ask(worker, "/readyz") == (200, "ready")
        assert ask(worker, "/livez") == (200, "live")
    assert queue.depth(db).ready == 1


def test_the_port_that_it_got_is_told_while_it_runs(db: Database, queue: Queue) -> None:
    worker = Worker(db, health=HERE).add(queue, nothing)
    assert worker.health == HERE
    with worker:
        assert worker.health is not None
        assert worker.health[0] == "127.0.0.1"
        assert worker.health[1] > 0
        assert worker.described()[-1] == f"health at {url(worker.health)}"
        with pytest.raises(InvalidArgument, match="runs already"):
            worker.health = ("127.0.0.1", 1)
    assert worker.health == HERE
    with worker:
        eventually(answers(worker, "/readyz", 200))
    worker.health = None
    with worker:
        assert worker.health is None


def test_a_worker_is_not_ready_while_the_store_is_away_and_lives(
    db: Database, queue: Queue
) -> None:
    cuttable: Any = CuttableDatabase(db)
    worker = Worker(cuttable, health=HERE).add(queue, nothing)
    worker.connection.interval = 0.01
    cuttable.cut = True
    with worker:
        assert ask(worker, "/readyz")[0] == 503
        eventually(lambda: ask(worker, "/readyz") == (503, "not ready: the store does not answer"))
        assert ask(worker, "/livez") == (200, "live")
        cuttable.cut = False
        eventually(answers(worker, "/readyz", 200))
        cuttable.cut = True
        eventually(answers(worker, "/readyz", 503))
        assert ask(worker, "/livez") == (200, "live")
        cuttable.cut = False
        eventually(answers(worker, "/readyz", 200))


def test_a_handler_of_a_browsing_subscription_may_take_as_long_as_it_likes(
    db: Database, queue: Queue
) -> None:
    gate = Gate()
    queue.enqueue(db, b"x")
    seen = queue.subscriptions.open(db, "seen", mode="browse")
    with Worker(db, health=HERE).add(queue, gate, take=Take(subscription=seen)) as worker:
        assert gate.entered.wait(DEADLINE)
        impatient(worker)
        assert ask(worker, "/livez") == (200, "live")
        gate.open.set()


def test_a_worker_that_stands_by_for_a_browsing_subscription_is_ready(
    db: Database, queue: Queue
) -> None:
    seen = queue.subscriptions.open(db, "seen", mode="browse")
    with Worker(db, health=HERE).add(queue, nothing, take=Take(subscription=seen)) as first:
        eventually(answers(first, "/readyz", 200))
        with Worker(db, health=HERE).add(queue, nothing, take=Take(subscription=seen)) as second:
            eventually(answers(second, "/readyz", 200))


def test_a_worker_that_is_told_to_stop_is_not_ready_at_once_and_lives_to_its_end(
    db: Database, queue: Queue
) -> None:
    gate = Gate()
    queue.enqueue(db, b"x")
    worker = Worker(db, health=HERE, shutdown=DEADLINE).add(queue, gate)
    with worker:
        assert gate.entered.wait(DEADLINE)
        eventually(answers(worker, "/readyz", 200))
        worker.stop()
        stopping = (503, "not ready: the worker is stopping")
        assert ask(worker, "/readyz") == stopping
        ending = threading.Thread(target=worker.__exit__)
        ending.start()
        assert ask(worker, "/readyz") == stopping
        assert ask(worker, "/livez") == (200, "live")
        assert worker.health is not None
        place = url(worker.health)
        gate.open.set()
        ending.join(DEADLINE)
        with pytest.raises(OSError, match="refused"):
            urlopen(f"{place}/livez", timeout=DEADLINE)
        worker.__enter__()


def test_a_port_that_is_taken_starts_nothing(db: Database, queue: Queue) -> None:
    taken = Server(HERE)
    queue.enqueue(db, b"x")
    threads = {*threading.enumerate()}
    worker = Worker(db, health=taken.address).add(queue, nothing)
    with pytest.raises(InvalidArgument, match=r"address=.*cannot listen there"), worker:
        pass
    assert not [
        each for each in {*threading.enumerate()} - threads if each.name.startswith("fdbqueue-f")
    ]
    assert queue.admin.consumers(db) == []
    assert queue.depth(db).ready == 1
    taken.close()
    with worker:
        eventually(lambda: queue.depth(db).done == 1)


def test_what_it_counts_is_exposed(db: Database, queue: Queue) -> None:
    metrics = WorkerMetrics(CollectorRegistry())
    queue.enqueue(db, b"x")
    with Worker(db, health=HERE, metrics=metrics).add(queue, nothing) as worker:
        eventually(lambda: "fdbqueue_handled_total{" in ask(worker, "/metrics")[1])
    with Worker(db, health=HERE).add(queue, nothing) as worker:
        assert ask(worker, "/metrics") == (
            404,
            "the worker counts nothing: give it metrics=WorkerMetrics()",
        )
