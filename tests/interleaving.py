"""Every order in which transactions can begin and commit, one after another.

A transaction reads at the version that it got when it began, and writes when it commits: whatever
happens in between changes nothing of what it sees. So two transactions can be told apart by
nothing but the order of their beginnings and commits, and to go through all orders of these points
is to go through all interleavings. A retry begins and commits again, which is part of it.

One thread runs at a time. It stops before each point, and the explorer chooses who goes on, at
random and never twice in the same way, each time from a fresh start. Two that begin one after the
other read the same state, whichever was first: of orders that differ in nothing else, one is
explored.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fdbqueue.store.binding import fdb
from tests.patience import DEADLINE
from tests.seeds import EVERY

MOST, ALL = 10, 20_000
"""How many interleavings of a test are explored in one run, and how many any test has at most."""


class Gates:
    """Lets one of several threads go on at a time, as ``choose`` says."""

    def __init__(self, count: int) -> None:
        self.state = threading.Condition()
        self.waiting: set[int] = set()
        self.beginning: set[int] = set()
        self._last: int | None = None
        self.running = set(range(count))
        self.chosen: int | None = None

    def stop(self, me: int, begins: bool) -> None:
        """Called by a thread before a point: wait for one's turn."""
        with self.state:
            self.running.discard(me)
            self.waiting.add(me)
            (self.beginning.add if begins else self.beginning.discard)(me)
            self.state.notify_all()
            assert self.state.wait_for(lambda: self.chosen == me, DEADLINE), "nobody goes on"
            self.chosen = None
            self.waiting.discard(me)
            self.running.add(me)

    def end(self, me: int) -> None:
        """Called by a thread when it is through."""
        with self.state:
            self.running.discard(me)
            self.state.notify_all()

    def choices(self) -> list[int]:
        """Who may go on, once nobody runs; nobody when all are through.

        Not who could as well have begun just before the last one that began.
        """
        with self.state:
            assert self.state.wait_for(lambda: not self.running, DEADLINE), "somebody is blocked"
            last = self._last
            early = {one for one in self.beginning if last is not None and one < last}
            return sorted((self.waiting - early) or self.waiting)

    def let(self, chosen: int) -> None:
        """Let one go on to its next point."""
        with self.state:
            self.chosen = chosen
            self._last = chosen if chosen in self.beginning else None
            self.beginning.discard(chosen)
            self.waiting.discard(chosen)
            self.running.add(chosen)
            self.state.notify_all()


class GatedDatabase:
    """Lends transactions that stop before they begin and before they commit."""

    def __init__(self, db: fdb.Database, gates: Gates, me: int) -> None:
        self._db = db
        self._gates = gates
        self._me = me

    def create_transaction(self) -> fdb.Transaction:
        """A transaction that has begun."""
        tr = self._db.create_transaction()
        commit, on_error = tr.commit, tr.on_error

        def gated_commit() -> Any:
            self._gates.stop(self._me, begins=False)
            return _Done(commit())

        def gated_on_error(error: fdb.FDBError) -> Any:
            on_error(error).wait()
            self._begin(tr)
            return _Done(None)

        tr.commit = gated_commit  # type: ignore[method-assign]
        tr.on_error = gated_on_error  # type: ignore[method-assign,assignment]
        self._begin(tr)
        return tr

    def _begin(self, tr: fdb.Transaction) -> None:
        self._gates.stop(self._me, begins=True)
        tr.get_read_version().wait()


class _Done:
    """A future that was waited for before anybody else goes on."""

    def __init__(self, future: Any) -> None:
        self._error: fdb.FDBError | None = None
        try:
            if future is not None:
                future.wait()
        except fdb.FDBError as error:
            self._error = error

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


Operation = Callable[[Any], Any]


def explore(
    db: fdb.Database,
    start: Callable[[], tuple[Sequence[Operation], Callable[[list[Any]], None]]],
    most: int = MOST,
) -> int:
    """Run operations in interleavings that differ, each from a fresh start; returns how many.

    most: how many at most, others in each run of the tests; with FDBQUEUE_TESTS_EVERY all are run.
    start: makes a fresh state; returns the operations, each of which takes a database, and a check
        of what they returned, or raised.
    """
    most, count, root = ALL if EVERY else most, 0, _Tree()
    while count < most and not root.explored:
        operations, check = start()
        path, results = _run(db, operations, root)
        try:
            check(results)
        except AssertionError as error:
            error.add_note(f"in the interleaving {path}: {results}")
            raise
        count += 1
    assert root.explored or count < ALL, "too many interleavings"
    return count


class _Tree:
    """The choices that were explored below a point."""

    def __init__(self) -> None:
        self.explored = False
        self._below: dict[int, _Tree] = {}

    def choose(self, choices: Sequence[int]) -> int:
        """One of the choices below which not all is explored."""
        for each in choices:
            self._below.setdefault(each, _Tree())
        unexplored = [each for each in choices if not self._below[each].explored]
        return random.choice(unexplored or list(choices))

    def below(self, chosen: int) -> _Tree:
        """What was explored after a choice."""
        return self._below[chosen]

    def end(self, path: Sequence[int]) -> None:
        """Note that the interleaving of these choices was run."""
        if path:
            self._below[path[0]].end(path[1:])
        self.explored = all(each.explored for each in self._below.values())


def _run(
    db: fdb.Database, operations: Sequence[Operation], root: _Tree
) -> tuple[list[int], list[Any]]:
    gates = Gates(len(operations))
    results: list[Any] = [None] * len(operations)

    def work(me: int) -> None:
        try:
            results[me] = operations[me](GatedDatabase(db, gates, me))
        except Exception as error:
            results[me] = error
        finally:
            gates.end(me)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(operations))]
    for thread in threads:
        thread.start()
    path, tree = list[int](), root
    while choices := gates.choices():
        path.append(tree.choose(choices))
        tree = tree.below(path[-1])
        gates.let(path[-1])
    for thread in threads:
        thread.join()
    root.end(path)
    return path, results
