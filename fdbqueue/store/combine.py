"""Combining: callers that want the same at the same time share a transaction.

One caller at a time has the turn. Those that come meanwhile wait, first come, first served. The
first of them then asks for all that fit. So the longer a commit takes, and the more callers there
are, the more of them share one. Threads and tasks may mix.

What fails because of a part is tried in halves, so that it fails for that part alone.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ..errors import (
    CorruptData,
    InvalidInput,
    LeaseLost,
    OperationTimedOut,
    QueueError,
    QueueFull,
    TransactionTooLarge,
    TransactionTooSlow,
)
from . import tasks, world
from .binding import FAILURES, fdb

W = TypeVar("W")
R = TypeVar("R")
S = TypeVar("S")

PARTIAL = (
    InvalidInput,
    LeaseLost,
    QueueFull,
    TransactionTooLarge,
    TransactionTooSlow,
    CorruptData,
)
"""Errors that a part may have caused; nothing of the whole was written."""
PAUSE_SECONDS = 1e-6
"""A pause in which tasks that have been woken go on."""


class _Call(Generic[W, R]):
    """What one caller wants, and what came of it once that is done.

    turn: set once it is done, or leads; None for a caller that need not wait. leads: whether it has
    the turn.
    """

    __slots__ = ("db", "done", "error", "leads", "result", "size", "turn", "wanted")

    def __init__(self, db: fdb.Database, wanted: W, size: int) -> None:
        self.db = db
        self.wanted = wanted
        self.size = size
        self.turn: tasks.Event | None = None
        self.leads = self.done = False
        self.result: R | None = None
        self.error: BaseException | None = None

    def end(self, result: R | None, error: BaseException | None = None) -> None:
        """Tell the caller."""
        self.result, self.error, self.done = result, error, True
        if self.turn is not None:
            self.turn.set()


class Combiner(Generic[W, R]):
    """What callers of one kind share.

    run: does what several want in one transaction, in their order; returns what each is given.
    undo: takes that back from a caller that was interrupted meanwhile. most, most_size: how many
    callers share a transaction at most, and how much. timeout: seconds to wait for a turn.
    """

    def __init__(
        self,
        run: Callable[[fdb.Database, Sequence[W]], Sequence[R]],
        undo: Callable[[fdb.Database, R], object] | None = None,
        *,
        most: int,
        most_size: int,
        timeout: float | None,
    ) -> None:
        self._run = run
        self._undo = undo
        self._most = most
        self._most_size = most_size
        self._timeout = timeout
        self.begin()
        _known.add(self)

    def begin(self) -> None:
        """Nobody has the turn, or waits."""
        self._mutex = world.Lock()
        self._taken = False
        self._waiting: deque[_Call[W, R]] = deque()
        self._last = 1
        """How many shared the last transaction."""

    def ask(self, db: fdb.Database, wanted: W, size: int) -> R:
        """What a caller is given, perhaps with others, by one transaction.

        Raises what ``run`` raises, and ``OperationTimedOut`` if its turn does not come.
        """
        call: _Call[W, R] = _Call(db, wanted, size)
        try:
            with self._mutex:
                call.leads, self._taken = not self._taken, True
                if not call.leads:
                    call.turn = tasks.Event()
                    self._waiting.append(call)
            if call.turn is not None:
                self._pass_on()  # Whoever had the turn may have given it up before it saw this one.
                if not call.turn.wait(self._timeout):
                    if self._leave(call):
                        call.end(None, OperationTimedOut(seconds=self._timeout))
                    call.turn.wait()
            if not call.done:
                self._lead(call)
        except BaseException:
            if call.turn is not None and not self._leave(call) and not call.leads:
                # Another one asks for it: what has begun cannot be taken back.
                call.turn.wait()
                if call.done and call.error is None and self._undo is not None:
                    assert call.result is not None
                    self._undo(db, call.result)
            raise
        finally:
            if call.leads:
                # First, and without a call: a signal handler may raise at any call, and the turn
                # would be taken for ever.
                self._taken = False
                if self._waiting:
                    self._pass_on()
        if call.error is not None:
            raise call.error
        assert call.result is not None
        return call.result

    def _leave(self, call: _Call[W, R]) -> bool:
        """Take back a call that nobody has begun."""
        with self._mutex:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def _pass_on(self) -> None:
        """If nobody has the turn, give it to the caller that has waited longest."""
        with self._mutex:
            if self._waiting and not self._taken:
                self._taken = True
                call = self._waiting.popleft()
                call.leads = True
                assert call.turn is not None
                call.turn.set()

    def _lead(self, call: _Call[W, R]) -> None:
        """Ask for a call, and for those behind it that fit."""
        shares = tasks.current.get() is not None
        if shares and self._last > 1:
            # Those that shared the last transaction may ask again at once.
            tasks.sleep(PAUSE_SECONDS)
        group = [call]
        # A signal may interrupt the main thread, and the others must know what became of them.
        if self._waiting and (shares or not world.in_main_thread()):
            group += self._behind(call)
        self._last = len(group)
        try:
            in_parts(group, self._ask_for, _lose)
        except BaseException as error:
            # The others must not wait for a leader that is gone.
            _lose([one for one in group if not one.done], error)
            raise

    def _ask_for(self, group: Sequence[_Call[W, R]]) -> None:
        results = self._run(group[0].db, [one.wanted for one in group])
        for one, result in zip(group, results, strict=True):
            one.end(result)

    def _behind(self, call: _Call[W, R]) -> list[_Call[W, R]]:
        found: list[_Call[W, R]] = []
        waiting, room = self._waiting, self._most_size - call.size
        with self._mutex:
            while waiting and waiting[0].db is call.db and len(found) < self._most - 1:
                room -= waiting[0].size
                if room < 0:
                    break
                found.append(waiting.popleft())
        return found


def _lose(group: Sequence[_Call[W, R]], error: BaseException) -> None:
    for one in group:
        one.end(None, own(error))


def in_parts(
    whole: Sequence[S],
    run: Callable[[Sequence[S]], object],
    lose: Callable[[Sequence[S], Exception], object],
) -> None:
    """Do something for several, in their order. What cannot be done together is tried in halves.

    lose: is told for which it failed, and why.
    """
    try:
        run(whole)
        return
    except (QueueError, *FAILURES) as error:
        # Any other error is of the store, not of a part: halves would fail in the same way, each
        # after its own timeout.
        if len(whole) == 1 or not isinstance(error, PARTIAL):
            lose(whole, error)
            return
    # One bad part costs logarithmically many transactions, and fails alone; the order stays.
    middle = len(whole) // 2
    in_parts(whole[:middle], run, lose)
    in_parts(whole[middle:], run, lose)


def own(error: BaseException) -> BaseException:
    """The error for one more of the callers: to raise an error adds to its traceback, whose frames
    hold messages."""
    mine = copy.copy(error) if isinstance(error, QueueError) else error
    return mine.with_traceback(None)


_known: weakref.WeakSet[Combiner[Any, Any]] = weakref.WeakSet()


def _after_fork() -> None:
    """The threads that had turns are those of the parent."""
    for one in list(_known):
        one.begin()


os.register_at_fork(after_in_child=_after_fork)
