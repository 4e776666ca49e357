"""An exception that a signal handler raises in the main thread, anywhere in the package: other
threads go on.

CPython lets that happen when a function begins, after a call has returned, and on the way back of a
loop; a profile function is called at the first two, and can raise there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.store import client
from tests.interruption import Interrupted, Interruption
from tests.patience import DEADLINE
from tests.schemes import forced

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PACKAGE = os.path.dirname(fdbqueue.__file__)


def inside_package(path: str) -> bool:
    return path.startswith(PACKAGE) and "/embedded/" not in path


class Others:
    """A thread that does the same, over and over."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._rounds = itertools.count()
        self._ended = threading.Event()
        self._round = threading.Condition()
        self.made = 0

    def run(self) -> None:
        while not self._ended.is_set():
            self._work()
            with self._round:
                self.made += 1
                self._round.notify()

    def go_on(self) -> None:
        """Waits until it has done two more."""
        with self._round:
            made = self.made
            assert self._round.wait_for(lambda: self.made >= made + 2, DEADLINE), "blocked"

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(DEADLINE)


def interrupt_everywhere(work: Callable[[], object], step: int) -> None:
    """step: of so many places, one is tried in a run; which, is left to chance."""
    others = Others(work)
    with others.beside():
        for place in itertools.count(random.randrange(step), step):
            with (
                Interruption(place, inside_package) as interruption,
                contextlib.suppress(Interrupted),
            ):
                work()
            others.go_on()
            if not interruption.came:
                break
    assert others.made > 20


@pytest.mark.parametrize("scheme", ["auto", "staged"])
def test_wherever_a_receive_is_interrupted_other_threads_go_on(
    db: fdb.Database, space: fdb.Subspace, scheme: str
) -> None:
    queue = forced(Queue.create(db, "orders", root=space, lease=3600), scheme)

    def receive() -> None:
        queue.enqueue(db, b"")
        found = queue.receive(db, wait=0.01)
        if found is not None:
            queue.ack(db, found)

    interrupt_everywhere(receive, 5)
    assert queue.admin.verify(db).ok


def test_wherever_a_producer_is_interrupted_other_threads_go_on(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    queue = Queue.create(db, "orders", root=space)
    with queue.producer(db, max_pending=2) as producer:

        def send() -> None:
            producer.send(b"", room=DEADLINE).result(DEADLINE)

        interrupt_everywhere(send, 1)


class Late:
    """The client library, where a future becomes ready just before it is given a callback."""

    def __init__(self, capi: Any) -> None:
        self._capi = capi
        self._ready = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._capi, name)

    def fdb_future_is_ready(self, future: object) -> bool:
        return self._ready and bool(self._capi.fdb_future_is_ready(future))

    def fdb_future_set_callback(self, *given: object) -> object:
        self._ready = True
        return self._capi.fdb_future_set_callback(*given)


def test_a_wait_ends_whose_callback_was_interrupted(db: fdb.Database, space: fdb.Subspace) -> None:
    # ctypes swallows what is raised in a callback, so nobody may rely on that it has run.
    def late(_: int, frame: object) -> None:
        pytest.fail("it waits for ever")

    before = signal.signal(signal.SIGALRM, late)
    try:
        for place in itertools.count():
            read: Any = client.begin(db).get(space.key())
            read.wait()
            read.capi = Late(read.capi)
            signal.alarm(60)
            with (
                Interruption(place, lambda path: path.endswith("fdb/impl.py")) as interruption,
                contextlib.suppress(Interrupted),
            ):
                read.block_until_ready()
            if not interruption.came:
                break
        assert place > 2
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
