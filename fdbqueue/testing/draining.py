"""Handling what is ready in the caller's thread, as a worker would."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from msgspec.structs import replace

from ..queue.queue import Queue
from ..store.binding import fdb
from ..values.model import Message
from ..values.states import Outcome
from ..values.verdicts import Reject, Retry, Snooze
from ..worker.attempt import attempt
from ..worker.handlers import Handler
from ..worker.policy import Policy


class Drain:
    """A queue and its handler; ``step`` handles the next messages.

    handler, transactional, batch: as in ``Worker.add``. Raises ``InvalidArgument``.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Callable[..., Any],
        *,
        transactional: bool | None = None,
        batch: int | None = None,
    ) -> None:
        self.queue = queue
        self.raised: list[BaseException] = []
        """What the handler has raised, verdicts included."""
        call = Handler.of(handler, queue, transactional=transactional, batch=batch)
        self._batch = batch or 1
        self._policy = Policy(
            handler=replace(call, function=self._keeping(call.function)),
            lease=0,
            window=0,
            run=0,
            refresh_after=None,
            max_attempts=None,
            backoff=None,
        )

    def step(self, db: fdb.Database, *, failures: bool) -> list[Message] | None:
        """Handle the next messages; returns those that are done, and None if none was ready.

        failures: whether what fails is settled as the queue's policy says; if not, a failed batch
            goes back as a whole.
        """
        found = self.queue.receive_many(db, self._batch, consumer="drain")
        if not found:
            return None
        if self._policy.usual_attempts is None:  # What logs say of a failure.
            usual = self.queue.options(db)
            self._policy = replace(
                self._policy, usual_attempts=usual.max_attempts, usual_backoff=usual.backoff
            )
        ended = attempt(db, self.queue, self._policy, found)
        if ended is None and not failures:
            self.queue.release(db, found)
        if ended is None:
            alone = found if failures else []
            ended = [
                one for each in alone for one in attempt(db, self.queue, self._policy, [each]) or []
            ]
        return [delivery.message for delivery, outcome in ended if outcome is Outcome.DONE]

    @property
    def errors(self) -> list[BaseException]:
        """What the handler has raised, without verdicts."""
        return [each for each in self.raised if not isinstance(each, (Reject, Retry, Snooze))]

    def _keeping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which also keeps what it raises; logs name it as it is."""

        @wraps(function)
        def called(*arguments: Any) -> Any:
            if self.raised and isinstance(self.raised[-1], fdb.FDBError):
                self.raised.pop()  # Its transaction began again.
            try:
                return function(*arguments)
            except BaseException as error:
                self.raised.append(error)
                raise

        return called


def drain(
    db: fdb.Database,
    queue: Queue,
    handler: Callable[..., Any],
    *,
    transactional: bool | None = None,
    batch: int | None = None,
    failures: bool = False,
) -> list[Message]:
    """Handle all ready messages in this thread, as a worker would; returns the handled ones.

    handler, transactional, batch: as in ``Worker.add``.
    failures: whether handlers may fail. If true, failed messages are retried by the queue's policy
        until none is ready. If false, the first exception of a handler is raised.

    Raises ``InvalidArgument``.
    """
    found = Drain(queue, handler, transactional=transactional, batch=batch)
    handled: list[Message] = []
    while (done := found.step(db, failures=failures)) is not None:
        handled += done
        if found.raised and not failures:
            raise found.raised[0]
    return handled
