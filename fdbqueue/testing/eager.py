"""Handling messages at once: in the thread whose commit made them ready, before it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..queue.queue import Queue
from ..store import client, world
from ..store.binding import fdb
from ..store.enclosing import Inside
from ..values.model import Message
from .draining import Drain


class Eager:
    """Queues whose messages are handled as soon as what made them ready has committed::

        fdbqueue_eager(queue, handler)
        place_order(db, ...)  # enqueues, commits, and calls the handler

    An exception of a handler is raised where the commit was made, once its message is settled as
    the queue's policy says. What handlers enqueue is handled before that call returns.
    """

    def __init__(self, db: fdb.Database) -> None:
        self.handled: list[Message] = []
        """The messages that are done, in the order of their ends."""
        self._db = db
        self._drains: list[Drain] = []
        self._lock = world.RLock()
        self._runs = False

    def __call__(
        self,
        queue: Queue,
        handler: Callable[..., Any],
        *,
        transactional: bool | None = None,
        batch: int | None = None,
    ) -> None:
        """Let a handler have the messages of a queue from now on; the arguments are those of
        ``Worker.add``. Messages that are ready are handled at once.

        Raises ``InvalidArgument``, and what the handler raises.
        """
        self._drains.append(Drain(queue, handler, transactional=transactional, batch=batch))
        self.run()

    def run(self) -> None:
        """Handle all messages that are ready: after time has been moved, for example.

        Raises what a handler raises.
        """
        with self._lock:
            if self._runs:  # A handler has committed: what it made ready comes next.
                return
            self._runs = True
            try:
                with Inside(None):
                    while any(self._step(drain) for drain in self._drains):
                        pass
            finally:
                self._runs = False

    def _step(self, drain: Drain) -> bool:
        """Handle the next messages of a queue; returns whether there were any."""
        drain.raised.clear()
        done = drain.step(self._db, failures=True)
        self.handled += done or []
        for error in drain.errors:
            if isinstance(error, fdb.FDBError):  # The caller would take it for one of its commit.
                raise RuntimeError(f"a handler failed: {error}") from error
            raise error
        return done is not None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Look for messages after every commit of this process that wrote anything."""
        for kind in (fdb.Transaction, client.Transaction):
            patch.setattr(kind, "commit", self._following(kind.commit))

    def _following(self, commit: Callable[..., Any]) -> Callable[..., Any]:
        def follow(tr: Any) -> _Commit:
            return _Commit(commit(tr), tr, self.run)

        return follow


class _Commit:
    """The future of a commit, and what follows it."""

    def __init__(self, future: Any, tr: Any, then: Callable[[], None]) -> None:
        self._future, self._tr, self._then = future, tr, then

    def wait(self) -> None:
        self._future.wait()
        if self._tr.get_committed_version() > 0:  # Not of one that only read.
            self._then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._future, name)
