"""Callers that want the same at the same time share one run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fdbqueue.errors import OperationTimedOut, QueueFull
from fdbqueue.store import tasks
from fdbqueue.store.combine import Combiner
from tests.patience import DEADLINE, eventually

DB: Any = "a database"


class Work:
    """What is run: each run waits until it is let go, and answers each with its double."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.undone: list[int] = []
        self.gate = threading.Event()
        self.fails: Callable[[Sequence[int]], Exception | None] = lambda _: None

    def run(self, _: object, wanted: Sequence[int]) -> list[int]:
        self.runs.append([*wanted])
        self.gate.wait(DEADLINE)
        error = self.fails(wanted)
        if error is not None:
            raise error
        return [2 * one for one in wanted]

    def undo(self, _: object, result: int) -> None:
        self.undone.append(result)


def combined(work: Work, most: int = 10, timeout: float | None = None) -> Combiner[int, int]:
    return Combiner(work.run, work.undo, most=most, most_size=10, timeout=timeout)


class Callers:
    """Threads that ask one after another."""

    def __init__(self, combiner: Combiner[int, int]) -> None:
        self.combiner = combiner
        self.results: dict[int, object] = {}
        self._threads: list[threading.Thread] = []

    def ask(self, wanted: int, size: int = 1) -> None:
        def body() -> None:
            try:
                self.results[wanted] = self.combiner.ask(DB, wanted, size)
            except BaseException as error:
                self.results[wanted] = error

        self._threads.append(threading.Thread(target=body))
        self._threads[-1].start()

    def joined(self) -> dict[int, object]:
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()
        return self.results


def crowd(work: Work, combiner: Combiner[int, int], sizes: Sequence[int]) -> Callers:
    """A caller at work, and others that wait, in their order: 1, 2, …"""
    callers = Callers(combiner)
    callers.ask(0)
    eventually(lambda: len(work.runs) == 1)
    for n, size in enumerate(sizes, 1):
        callers.ask(n, size)
        eventually(lambda n=n: len(combiner._waiting) == n)  # type: ignore[misc]
    return callers


@pytest.mark.parametrize(
    ("most", "sizes", "runs"),
    [
        (10, [1, 1, 1], [[0], [1, 2, 3]]),
        (2, [1, 1, 1], [[0], [1, 2], [3]]),
        (10, [6, 4, 1], [[0], [1, 2], [3]]),
        (10, [50, 1], [[0], [1], [2]]),
    ],
)
def test_those_that_wait_share_a_run_as_far_as_they_fit(
    most: int, sizes: list[int], runs: list[list[int]]
) -> None:
    work = Work()
    callers = crowd(work, combined(work, most), sizes)
    work.gate.set()
    assert callers.joined() == {n: 2 * n for n in range(len(sizes) + 1)}
    assert work.runs == runs


def test_what_a_part_has_caused_fails_for_that_part_alone() -> None:
    work = Work()
    full = QueueFull(queue="q", waits=False, limit=1)
    work.fails = lambda wanted: full if 2 in wanted else None
    callers = crowd(work, combined(work), [1, 1, 1])
    work.gate.set()
    results = callers.joined()
    assert isinstance(results.pop(2), QueueFull)
    assert results == {0: 0, 1: 2, 3: 6}


def test_any_other_error_is_that_of_all_and_each_has_its_own() -> None:
    work = Work()
    work.fails = lambda wanted: OperationTimedOut(seconds=1) if 1 in wanted else None
    callers = crowd(work, combined(work), [1, 1])
    work.gate.set()
    results = callers.joined()
    assert results[0] == 0
    assert isinstance(results[1], OperationTimedOut)
    assert isinstance(results[2], OperationTimedOut)
    assert results[1] is not results[2]
    assert work.runs == [[0], [1, 2]]


def test_an_error_that_nobody_knows_lets_nobody_wait_for_ever() -> None:
    work = Work()
    work.fails = lambda wanted: KeyError("a fault") if 1 in wanted else None
    callers = crowd(work, combined(work), [1, 1])
    work.gate.set()
    results = callers.joined()
    assert [type(results[n]) for n in range(3)] == [int, KeyError, KeyError]


def test_who_waits_for_too_long_gives_up_and_stands_in_nobodys_way() -> None:
    work = Work()
    combiner = combined(work, timeout=0.01)
    callers = Callers(combiner)
    callers.ask(0)
    eventually(lambda: len(work.runs) == 1)
    with pytest.raises(OperationTimedOut):
        combiner.ask(DB, 1, 1)
    work.gate.set()
    assert callers.joined() == {0: 0}
    assert combiner.ask(DB, 2, 1) == 4


class Interrupt(BaseException):
    """What a signal handler raises, or another thread."""


def interrupted(monkeypatch: pytest.MonkeyPatch, at: Callable[[], object]) -> None:
    """The next wait for a turn ends with an interrupt, after ``at``."""
    wait = tasks.Event.wait

    def fails(turn: tasks.Event, seconds: float | None = None) -> bool:
        monkeypatch.setattr(tasks.Event, "wait", wait)
        at()
        raise Interrupt

    monkeypatch.setattr(tasks.Event, "wait", fails)


def test_who_is_interrupted_before_its_run_asks_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work()
    combiner = combined(work)
    callers = Callers(combiner)
    callers.ask(0)
    eventually(lambda: len(work.runs) == 1)
    interrupted(monkeypatch, lambda: None)
    with pytest.raises(Interrupt):
        combiner.ask(DB, 1, 1)
    work.gate.set()
    assert callers.joined() == {0: 0}
    assert combiner.ask(DB, 2, 1) == 4
    assert work.runs == [[0], [2]]


def test_what_an_interrupted_caller_was_given_meanwhile_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work()
    combiner = combined(work)
    callers = crowd(work, combiner, [1])

    def go_on() -> None:
        work.gate.set()
        eventually(lambda: callers.results.keys() == {0, 1})

    interrupted(monkeypatch, go_on)
    with pytest.raises(Interrupt):
        combiner.ask(DB, 2, 1)
    assert callers.joined() == {0: 0, 1: 2}
    assert work.undone == [4]


def test_who_is_interrupted_as_its_turn_comes_passes_it_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work()
    combiner = combined(work)
    callers = Callers(combiner)
    callers.ask(0)
    eventually(lambda: len(work.runs) == 1)

    def go_on() -> None:
        work.gate.set()
        callers.joined()

    interrupted(monkeypatch, go_on)
    with pytest.raises(Interrupt):
        combiner.ask(DB, 1, 1)
    assert work.runs == [[0]]
    assert combiner.ask(DB, 2, 1) == 4


def test_nobody_waits_for_a_thread_that_a_signal_may_interrupt() -> None:
    # Given the main thread at work, and another one that waits for its turn
    work = Work()
    combiner = combined(work)
    callers = Callers(combiner)
    work.fails = lambda wanted: None if work.runs[1:] else callers.ask(1)
    work.gate.set()
    assert combiner.ask(DB, 0, 1) == 0
    assert callers.joined() == {1: 2}
    # Then it asks for nobody else
    assert work.runs == [[0], [1]]
