"""Tasks of one event loop that wait for a message of a queue share a request in line.

A feeder stands in line for them, in a task of its own. What it gets goes to the task that has
waited longest. So a task that waits costs nothing until its message comes, and one message wakes
one of them. Once there is a message there may be more, so the feeder then asks for several tasks in
one transaction. Each message has a lease of its own, as if its task had asked.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ...errors import QueueError
from ...schema.consumers import Request
from ...store import tasks, world
from ...store.binding import FAILURES, fdb
from ...values.model import Delivery
from ..line import Ticket
from .access import MAX_GATHERED, Access
from .waiting import collect, give_back, undo

Asks = Callable[[], Sequence[Delivery]]


class _WaitingTask:
    """A task that waits, and what it is given."""

    __slots__ = ("error", "found", "given")

    def __init__(self) -> None:
        self.given = tasks.Event()
        self.found: Sequence[Delivery] = ()
        self.error: BaseException | None = None


class SharedRequest:
    """The tasks of one loop that want the same, in the order in which they came.

    ask: waits for one message, as long as it takes.
    """

    def __init__(
        self, place: object, db: fdb.Database, access: Access, request: Request, ask: Asks
    ) -> None:
        self._place = place
        self._db = db
        self._access = access
        self._request = request
        self._ask = ask
        self._waiters: deque[_WaitingTask] = deque()
        self._stop: Callable[[], object] | None = None
        """Ends the feeder, if there is one."""
        self._ended = tasks.Event()
        self._begun = self._stopped = False

    def receive(self, task: tasks.Task, deadline: float) -> Sequence[Delivery]:
        """What the task is given; nothing if the time is over."""
        mine = _WaitingTask()
        self._waiters.append(mine)
        if self._stop is None:
            self._begin(task)
        try:
            mine.given.wait(max(0.0, deadline - world.monotonic()))
            self._leave(mine)
        except BaseException:
            self._leave(mine)
            with contextlib.suppress(*FAILURES, QueueError):
                give_back(self._db, self._access, mine.found)
            raise
        if mine.error is not None:
            raise mine.error
        return mine.found

    def _leave(self, mine: _WaitingTask) -> None:
        """Wait no longer; the last one waits until the feeder has left the line."""
        if not mine.given.is_set():
            self._waiters.remove(mine)
            if not self._waiters and self._stop is not None:
                if not self._stopped:
                    self._stopped = True
                    self._stop()
                if self._begun:
                    self._ended.wait()
                else:
                    self._end()  # What is cancelled before it has begun never does.

    def _begin(self, task: tasks.Task) -> None:
        self._ended, self._begun, self._stopped = tasks.Event(), False, False
        self._stop = task.spawn(self._feed)

    def _feed(self) -> None:
        """Ask for those that wait, until nobody does."""
        self._begun, several = True, False
        try:
            while self._waiters:
                count = min(len(self._waiters), MAX_GATHERED) if several else 1
                several = (self._ask_for(count) if count > 1 else self._give(self._ask())) == count
        except BaseException as error:
            if not self._stopped:  # Else the tasks have told the feeder to end.
                while self._waiters:
                    waiter = self._waiters.popleft()
                    waiter.error = error
                    waiter.given.set()
        finally:
            self._end()

    def _end(self) -> None:
        """No feeder is left; begin another one for those that have come meanwhile."""
        ended, self._stop = self._ended, None
        mine = tasks.current.get()
        if self._waiters and mine is not None:
            self._begin(mine)
        elif self._access.shared.get(self._place) is self:
            del self._access.shared[self._place]
        ended.set()

    def _ask_for(self, count: int) -> int:
        """Ask for so many tasks at once; returns how many were given a message."""
        asked = [self._request] * count, ()
        outcomes = self._access.combiner.ask(self._db, asked, count)
        given = 0
        while outcomes:
            outcome = outcomes.pop(0)
            try:
                if isinstance(outcome, Ticket):
                    outcome = collect(self._db, self._access, outcome, None) or []
                given += self._give(outcome or ())
            except BaseException:
                undo(self._access, self._db, outcomes)
                raise
        return given

    def _give(self, found: Sequence[Delivery]) -> int:
        """Give a message to the task that has waited longest; returns how many were given."""
        if found and self._waiters:
            waiter = self._waiters.popleft()
            waiter.found = found
            waiter.given.set()
        else:
            # The tasks have left while it was asked for: the next consumer must not wait for the
            # lease to end.
            give_back(self._db, self._access, found)
        return len(found)


def receive(
    task: tasks.Task,
    db: fdb.Database,
    access: Access,
    request: Request,
    wait: float,
    ask: Callable[[float], Sequence[Delivery]],
    *,
    asked: bool,
) -> Sequence[Delivery]:
    """Wait for one message beside other tasks of the loop.

    ask: takes a message that comes within so many seconds. asked: whether the task has looked.

    If the time is over, it looks once more: so the answer is a message, or that there was none.
    """
    deadline, place = world.monotonic() + wait, (task.group, id(db), request)
    if not asked and place not in access.shared and (found := ask(0.0)):
        return found
    shared = access.shared.get(place)
    if shared is None:
        shared = SharedRequest(place, db, access, request, partial(ask, float("inf")))
        access.shared[place] = shared
    return shared.receive(task, deadline) or ask(0.0)
