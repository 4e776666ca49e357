"""Tasks of one event loop that enqueue to a queue at the same time share a transaction.

A task that finds no other at work enqueues its message by itself. What others want to enqueue
meanwhile waits. Then the first of them enqueues all of it in one transaction, in the order in which
they came. So the longer a commit takes, and the more tasks there are, the more of them share one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ...errors import OperationTimedOut
from ...messages.enqueue.admission import Admitted, Draft
from ...messages.transaction_budget import STEP_BYTES, weight
from ...store import tasks
from ...store.binding import fdb
from . import batches

MAX_SHARED = 1_000
"""Messages that share a transaction at most."""
PAUSE_SECONDS = 1e-6
"""A pause in which tasks that have been woken go on."""

Together = Callable[[fdb.Database, Sequence[Draft]], Admitted]


class EnqueueCall:
    """One message that a task enqueues: ``given``.

    turn: set once it is known what came of it, or its task is to lead.
    """

    __slots__ = ("begun", "db", "error", "given", "leads", "message_id", "size", "turn")

    def __init__(self, db: fdb.Database, given: Draft) -> None:
        self.db = db
        self.given = given
        self.size = weight(given.envelope)
        self.turn = tasks.Event()
        self.begun = self.leads = False
        self.message_id = ""
        self.error: BaseException | None = None


class Sharing:
    """The tasks of one loop that enqueue to a queue by the same handle.

    together: enqueues messages in one transaction.
    """

    def __init__(self, together: Together, timeout: float | None) -> None:
        self._together = together
        self._timeout = timeout
        self._waiting: deque[EnqueueCall] = deque()
        self._at_work = False
        self._last = 1
        """How many messages the last transaction had."""

    def end(self) -> None:
        """Nobody is at work; let the task lead that has waited longest."""
        self._at_work = bool(self._waiting)
        if self._waiting:
            call = self._waiting.popleft()
            call.leads = True
            call.turn.set()

    def enqueue(self, db: fdb.Database, given: Draft) -> str:
        """Enqueue one message, perhaps with those of others; returns its id.

        Waits for the transaction before its own, for as long as that may take: raises
        ``OperationTimedOut`` then. Raises what ``together`` raises.
        """
        call = EnqueueCall(db, given)
        if self._at_work:
            self._waiting.append(call)
            self._wait(call)
        else:
            self._at_work = call.leads = True
        if call.leads:
            try:
                self._lead(call)
            finally:
                self.end()
        if call.error is not None:
            raise call.error
        return call.message_id

    def _wait(self, call: EnqueueCall) -> None:
        try:
            if not call.turn.wait(self._timeout) and call in self._waiting:
                self._waiting.remove(call)
                raise OperationTimedOut(seconds=self._timeout)
            call.turn.wait()
        except BaseException:
            # Its task is cancelled, or its time is over.
            if call.leads:
                self.end()
            elif call in self._waiting:
                self._waiting.remove(call)
            # Its message is in a transaction by now, which tells it the outcome: a cancelled task
            # waits for that, so that nothing is stored behind its back.
            elif call.begun:
                call.turn.wait()
            raise

    def _lead(self, call: EnqueueCall) -> None:
        """Enqueue a message, with those of the tasks that wait."""
        if self._last > 1:
            # Those that shared the last transaction may ask again at once.
            tasks.sleep(PAUSE_SECONDS)
        group = [call, *self._behind(call)]
        self._last = len(group)
        try:
            batches.store(group, self._store, _lose)
        except BaseException as error:
            # The others must not wait for a leader that is gone.
            _lose([each for each in group[1:] if not each.turn.is_set()], error)
            raise

    def _store(self, group: Sequence[EnqueueCall]) -> None:
        admitted = self._together(group[0].db, [each.given for each in group])
        for each, message_id in zip(group, admitted.ids, strict=True):
            each.message_id = message_id
            each.turn.set()

    def _behind(self, call: EnqueueCall) -> list[EnqueueCall]:
        """The calls that wait and fit in its transaction."""
        found: list[EnqueueCall] = []
        waiting, room = self._waiting, STEP_BYTES - call.size
        while waiting and waiting[0].db is call.db and len(found) < MAX_SHARED - 1:
            room -= waiting[0].size
            if room < 0:
                break
            waiting[0].begun = True
            found.append(waiting.popleft())
        return found


def _lose(group: Sequence[EnqueueCall], error: BaseException) -> None:
    for each in group:
        each.error = batches.own(error)
        each.turn.set()
