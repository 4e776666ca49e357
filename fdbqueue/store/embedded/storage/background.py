"""Commits for callers that do not wait, as those of an event loop.

The committer's lane leads the groups in their place, so they share fsyncs with each other and
with threads that wait. Where commits have been quick lately and nobody else commits, the caller
commits by itself: to change to the thread and back would take longer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..timers import TimedCall, timers
from ..transactions.commit_requests import CommitRequest
from .commit import Committer


class _Turn:
    """The turn of a request that no thread waits for; see ``commit_requests.Turn``."""

    def __init__(
        self, committer: Committer, request: CommitRequest, then: Callable[[], object]
    ) -> None:
        self._committer = committer
        self._request = request
        self._then: list[Callable[[], object]] = [then]
        self._alarm: TimedCall | None = None
        self.release = partial(committer.lane.put, (self._told,))

    def locked(self) -> bool:
        """Never released for good: whoever is told looks what for."""
        return True

    def begin(self) -> None:
        """Begin to commit, now if that takes but a moment; else on the lane."""
        if self._committer.begin(self._request, self):
            self._told()
        elif self._request.deadline:
            self._alarm = timers.call_at(self._request.deadline, self._give_up)
            if not self._then:
                self._alarm.cancel()

    def _told(self) -> None:
        """The request is done, or it is its turn to lead."""
        if not self._request.done:
            self._committer.lead()
            return
        try:
            then = self._then.pop()
        except IndexError:
            return  # It was told before.
        if self._alarm is not None:
            self._alarm.cancel()
        then()

    def _give_up(self) -> None:
        """The request's time is over."""
        if self._committer.withdraw(self._request):
            self._told()


def commit(committer: Committer, request: CommitRequest, then: Callable[[], object]) -> None:
    """Commit a request, and then call ``then``: at once, or later, usually on the lane."""
    _Turn(committer, request, then).begin()
