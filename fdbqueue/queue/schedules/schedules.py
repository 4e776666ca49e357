"""The schedules of a queue, as ``Queue.schedules`` offers them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...consumers import wakeups
from ...errors import InvalidArgument, InvalidPayload
from ...messages.schedules import changes, ticks
from ...schema.records import ScheduleRecord
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values import backoff as backoffs
from ...values import schedules
from ...values.backoff import check_delay
from ...values.content import check_count
from ...values.durations import Seconds
from ...values.model import Headers, NewMessage
from ...values.options import DEFAULT_PRIORITY, check_behind, check_name
from ...values.schedules import CatchUp, Overlap, Schedule, Timing
from ...values.text import names_meant
from ..enqueue import JOB_HEADER, Enqueuing
from ..queue_base import Transactor
from ..validation import MIN_TTL_SECONDS, check_inline, draft

R = TypeVar("R")

MAX_LISTED = 1_000
_UNTIMED = Timing(None, None, "UTC", 0)


class Schedules:
    """The schedules of one queue; get it from ``Queue.schedules``.

    A schedule enqueues a message at every tick. Whoever looks for messages does that, so a schedule
    needs no process of its own. Each tick comes once, and in the order of the ticks.
    """

    def __init__(self, queue: Enqueuing[Any]) -> None:
        self._queue = queue

    @names_meant()
    def set(
        self,
        tr: Transactor,
        name: str,
        payload: Any = ...,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        timezone: str = "UTC",
        overlap: Overlap = "queue",
        catch_up: CatchUp = "last",
        priority: int = DEFAULT_PRIORITY,
        headers: Headers | None = None,
        ttl: Seconds | None = None,
        max_attempts: int | None = None,
        backoff: backoffs.Given = None,
        key: str | None = None,
        limits: Mapping[str, str] | None = None,
    ) -> Schedule:
        """Make a schedule, or change the one of that name; returns what is known of it.

        payload: what the serializer takes; up to 90,000 bytes, less with many headers; b"" where
            not given.
        cron: minute, hour, day of the month, month and day of the week, such as ``"0 3 * * *"``.
        every: an interval in seconds, 1 or more, instead of ``cron``. The first tick is one
            interval from now.
        timezone: the name of the time zone of ``cron``. As in Debian's cron, a time that does not
            exist because clocks are set forward comes right after that, and one that exists twice
            comes the first time; if hour or minute is ``*``, ticks go by the time that passes.
        overlap: what a tick does while the message before it is not done or dead: "queue" enqueues
            another, "skip" does not.
        catch_up: which ticks come late when nobody has looked for messages: the "last" one that was
            missed, "all" of them, or "none". A tick is missed once it is more than a minute late.
        ttl: seconds until a message expires, from when it comes.
        priority, headers, max_attempts, backoff, key, limits: of each message, as in
            ``Queue.enqueue``. Each also has the headers ``schedule``, the name, and ``tick``, its
            time in UTC.

        The same arguments again change nothing, so every process can set its schedules when it
        starts. If the times stay, so does the next tick. A paused schedule stays paused. Conflicts
        with a tick of the schedule. Raises ``InvalidArgument``, ``InvalidPayload``,
        ``QueueNotFound``.
        """
        check_name(name)
        schedules.check_choice("overlap", overlap, Overlap)
        schedules.check_choice("catch_up", catch_up, CatchUp)
        # Everything but the queue's own options is checked before anything is read.
        schedules.timing(cron, every, timezone, 0, None)
        if self._queue._jobs and JOB_HEADER not in (headers or ()):
            raise InvalidArgument(
                argument="name",
                value=name,
                problem="its messages would be of no job, and the queue has jobs: call schedule of "
                f"one of them, {', '.join(sorted(self._queue._jobs))}",
            )
        message = NewMessage(
            b"" if payload is ... else payload,
            priority,
            headers,
            max_attempts=max_attempts,
            backoff=backoff,
            key=key,
            limits=limits,
        )
        try:
            envelope = draft(message, 0, self._queue._serializer).envelope
        except InvalidPayload:
            if payload is not ...:
                raise
            problem = "the queue takes no empty message: give a value"
            raise InvalidArgument(argument="payload", value=None, problem=problem) from None
        for header in {ticks.NAME_HEADER, ticks.TICK_HEADER} & envelope.headers.keys():
            raise InvalidArgument(argument="headers", value=header, problem="the schedule sets it")
        check_inline("payload", envelope)
        ttl_ms = None if ttl is None else int(check_delay("ttl", ttl, MIN_TTL_SECONDS) * 1000)
        given = ScheduleRecord(_UNTIMED, overlap, catch_up, False, ttl_ms, envelope)
        timed = changes.Timed(cron, every, timezone)
        return self._run(tr, lambda tr, scope: changes.put(tr, scope, name, timed, given))

    def get(self, tr: Transactor, name: str) -> Schedule | None:
        """What is known of a schedule; None if there is none. Snapshot reads, no conflicts."""
        check_name(name)
        queue = self._queue
        return queue._read(tr, lambda tr: changes.find(tr, queue._scope(tr), name))

    def list(
        self,
        tr: Transactor,
        limit: int = 100,
        *,
        after: str | None = None,
    ) -> builtins.list[Schedule]:
        """The schedules by name.

        limit: how many, up to 1,000. after: the name to continue behind. Snapshot reads, no
        conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        check_count("limit", limit, MAX_LISTED)
        queue = self._queue
        begin = check_behind(after)
        return queue._read(tr, lambda tr: changes.page(tr, queue._scope(tr), limit, begin))

    def pause(self, tr: Transactor, name: str) -> Schedule:
        """Let no more ticks come; those of the meantime are left out. Raises
        ``NotFound``, ``QueueNotFound``."""
        return self._set_paused(tr, name, paused=True)

    def resume(self, tr: Transactor, name: str) -> Schedule:
        """End a pause, with the next tick from now. Raises as ``pause``."""
        return self._set_paused(tr, name, paused=False)

    def run(self, tr: Transactor, name: str) -> str:
        """Enqueue the message of a schedule now, beside its ticks; returns its id.

        The next tick stays as it is. With ``overlap="skip"`` it counts as the message before it.
        Raises ``NotFound``, ``QueueFull``, ``QueueNotFound``.
        """
        check_name(name)

        def enqueue(tr: fdb.Transaction, scope: Scope) -> str:
            waiting = wakeups.reads(tr, scope.keys, 1)
            message_id = changes.run(tr, scope, name)
            wakeups.wake(tr, scope.keys, waiting)
            return message_id

        return self._run(tr, enqueue)

    def delete(self, tr: Transactor, name: str) -> bool:
        """Delete a schedule; returns whether there was one. Messages that have come stay."""
        check_name(name)
        return self._run(tr, lambda tr, scope: changes.remove(tr, scope, name))

    def _set_paused(self, tr: Transactor, name: str, *, paused: bool) -> Schedule:
        check_name(name)
        return self._run(tr, lambda tr, scope: changes.pause(tr, scope, name, paused))

    def _run(
        self,
        tr: Transactor,
        change: Callable[[fdb.Transaction, Scope], R],
    ) -> R:
        queue = self._queue
        return queue._run(tr, lambda tr: change(tr, queue._scope(tr)))
