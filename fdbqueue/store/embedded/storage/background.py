"""Commits for callers that do not wait, as those of an event loop.

One thread of the process leads the groups in their place, so they share fsyncs with each other and
with threads that wait. Where commits have been quick lately and nobody else commits, the caller
commits by itself: to change to the thread and back would take longer.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable

from ..helpers import Helper
from ..timers import Call, timers
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
        self._alarm: Call | None = None

    def begin(self) -> None:
        """Begin to commit, now if that takes but a moment; else on the thread."""
        if self._committer.commit_at_once(self._request):
            self.release()
            return
        if self._request.deadline:
            self._alarm = timers.call_at(self._request.deadline, self.give_up)
        if self._committer.begin(self._request, self):
            _background.run(self.lead)

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
        if self._alarm is not None:
            self._alarm.cancel()
        then()

    def give_up(self) -> None:
        """The request's time is over."""
        if self._committer.withdraw(self._request):
            self.release()


def run(work: Callable[[], object]) -> None:
    """Do some work on the thread."""
    _background.run(work)


def commit(committer: Committer, request: CommitRequest, then: Callable[[], object]) -> None:
    """Commit a request, and then call ``then``: at once, or later, usually on the thread."""
    _Turn(committer, request, then).begin()


def _after_fork() -> None:
    global _background
    _background = Background()


_background = Background()
os.register_at_fork(after_in_child=_after_fork)
