"""Commits for callers that do not wait, as those of an event loop.

One thread of the process leads the groups in their place, so they share fsyncs with each other and
with threads that wait.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from functools import partial

from ..helpers import Helper
from ..timers import timers
from ..transactions.commit_requests import CommitRequest
from .commit import Committer

IDLE_SECONDS = 5.0
"""How long the thread waits for more to do before it ends."""


class Background:
    """The thread, and what it is to do. It is started when it is needed."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._helper = Helper("fdbqueue-commits", self._do_next)

    def run(self, work: Callable[[], object]) -> None:
        """Do some work on the thread. Raises ``EngineError`` if it cannot be started."""
        self._work.put(work)
        if not self._helper.running:
            self._helper.start()

    def _do_next(self) -> bool:
        try:
            work = self._work.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return self._helper.leave(lambda: not self._work.empty())
        work()
        return False


class _Turn:
    """The turn of a request that no thread waits for; see ``CommitRequest.turn``."""

    def __init__(
        self, committer: Committer, request: CommitRequest, then: Callable[[], object]
    ) -> None:
        self._committer = committer
        self._request = request
        self._then: list[Callable[[], object]] = [then]

    def lead(self) -> None:
        self._committer.lead(self._request)
        self.release()

    def release(self) -> None:
        """The request is done, or it is its turn to lead."""
        if not self._request.done:
            _background.run(self.lead)
            return
        try:
            then = self._then.pop()
        except IndexError:
            return  # It was told before.
        then()

    def give_up(self) -> None:
        """The request's time is over."""
        if self._committer.withdraw(self._request):
            self.release()


def run(work: Callable[[], object]) -> None:
    """Do some work on the thread."""
    _background.run(work)


def commit(committer: Committer, request: CommitRequest, then: Callable[[], object]) -> None:
    """Commit a request, and then call ``then``, usually on the thread."""
    turn = _Turn(committer, request, then)
    if request.deadline:
        timers.call_at(request.deadline, partial(_Turn.give_up, turn))
    if committer.begin(request, turn):
        _background.run(turn.lead)


def _after_fork() -> None:
    global _background
    _background = Background()


_background = Background()
os.register_at_fork(after_in_child=_after_fork)
