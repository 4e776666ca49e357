"""One credit for what a worker takes of a queue, or of several.

The credit is a value; a channel holds its current one for all that take by it. The worker changes
it when messages are taken, settled or given back, with the worker's lock held; any thread may grant
more. The channel has a lock of its own, which is always the last to be taken.

One member fetches at a time, so what one was promised nobody else takes; those that wait take
turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from ..consumers.credit import Credit
from ..errors import InvalidArgument, Unfinished
from ..store import tasks, world
from ..values import durations
from ..values.durations import Seconds


class Member(Protocol):
    """What takes by the credit of a channel: a queue or a subscription."""

    def fetches_now(self, now: float, free: bool) -> bool:
        """Whether it would fetch now, were it its turn."""


@dataclass(eq=False)
class Flush:
    """What a flush waits for: members that have not looked since, and messages in hand."""

    looking: set[Member]
    held: dict[Member, set[bytes]] = field(default_factory=dict)
    ended: tasks.Event = field(default_factory=tasks.Event)
    """It is done, or the worker has stopped."""
    done: bool = False

    def check(self) -> None:
        """It is done once there is nothing left to wait for."""
        if not self.looking and not any(self.held.values()):
            self.done = True
            self.ended.set()


class Channel:
    """One credit for a queue or subscription of a worker, or for several that share it.

    credit: what there is at first. With a window (``Credit(messages=100)``), settling a message
        gives its credit back. Without one (``Credit(messages=0, window=False)``), each message that
        is handled uses credit up, and ``grant`` gives more; what goes back before a handler has
        begun with it costs nothing.

    Give it to ``Worker.add`` as ``credit``, once or several times, but to one worker only. Every
    method may be called by any thread, also in a handler, unless it says so. Raises
    ``InvalidArgument`` for anything but a ``Credit``.
    """

    def __init__(self, credit: Credit) -> None:
        if not isinstance(credit, Credit):
            raise InvalidArgument(argument="credit", value=credit, problem="must be a Credit")
        self._credit = credit
        self._lock = world.Lock()
        """Of all that follows."""
        self._members: list[Member] = []
        """While the worker runs, in the order of their turns."""
        self._fetching: Member | None = None
        self._flushes: list[Flush] = []
        self._before: dict[Member, Sequence[Flush]] = {}
        """The flushes that began before the latest fetch of each member."""
        self._resume: Callable[[Channel], object] = lambda channel: None
        self._owner: object = None

    @property
    def credit(self) -> Credit:
        """The credit as it is now."""
        return self._credit

    def grant(self, messages: int | None = None, bytes: int | None = None) -> None:
        """Let the worker take more: so many messages, and payloads of so many bytes.

        Adds to what is left, and begins with what is owed for a message larger than the credit.

        Raises ``InvalidArgument`` if both are None, one is no int above 0, the credit has no such
        limit, or it is a window, which opens by itself.
        """
        if self._credit.window:
            raise InvalidArgument(
                argument="credit",
                value=self._credit,
                problem="a window opens by itself: only a Credit with window=False is granted",
            )
        for argument, value in (("messages", messages), ("bytes", bytes)):
            if value is None and not messages is bytes is None:
                continue
            if type(value) is not int or value <= 0:
                raise InvalidArgument(
                    argument=argument, value=value, problem="must be an int, 1 or more"
                )
            if getattr(self._credit, argument) is None:
                raise InvalidArgument(
                    argument=argument, value=value, problem="the credit has no such limit"
                )
        self._change(lambda credit: credit.granted(messages or 0, bytes or 0))
        self._resume(self)

    def withdraw(self) -> None:
        """Let the worker take no more until more is granted. It handles what it has taken.

        Raises ``InvalidArgument`` for a window: stop the worker.
        """
        if self._credit.window:
            raise InvalidArgument(
                argument="credit", value=self._credit, problem="a window cannot be withdrawn"
            )
        self._change(Credit.withdrawn)

    def flush(self, timeout: Seconds | None = None) -> None:
        """Deliver what is there: wait until nothing more is ready, or the granted credit is used
        up, and what was taken until then is settled. Then withdraws what is left of granted credit.

        timeout: seconds; None for as long as it takes.

        Raises ``Unfinished`` when the time is over, or the worker stops before; and
        ``InvalidArgument`` if the worker does not run. Not for handlers of the channel: they would
        wait for themselves.
        """
        limit = durations.limit("timeout", timeout)
        with self._lock:
            if not self._members:
                raise InvalidArgument(
                    argument="channel", value=self, problem="no worker runs with it"
                )
            flush = Flush({*self._members})
            self._flushes.append(flush)
        self._resume(self)
        try:
            ended = flush.ended.wait(limit)
        finally:
            with self._lock:
                self._flushes.remove(flush)
        if not flush.done:
            why = "the worker has stopped" if ended else "the time is over"
            problem = f"what was there when the flush began is not all handled: {why}"
            raise Unfinished(problem=problem)

    def own(self, worker: object) -> None:
        """Serve one worker only. Raises ``InvalidArgument``."""
        if self._owner not in (None, worker):
            raise InvalidArgument(
                argument="credit", value=self, problem="another worker has the channel"
            )
        self._owner = worker

    def open(self, member: Member, resume: Callable[[Channel], object]) -> None:
        """A member begins, and holds nothing. resume: called without locks when there may be more
        credit, or a flush to come after."""
        with self._lock:
            self._resume = resume
            if not self._members:
                # A worker that ran before has given back, or lost, all it held.
                self._credit = replace(self._credit, held=0)
                if self._credit.window:
                    self._credit = replace(self._credit, used_messages=0, used_bytes=0)
            self._members.append(member)

    def leave(self, member: Member) -> None:
        """A member has ended, and the others go on."""
        with self._lock:
            if member in self._members:
                self._members.remove(member)
            self._drained(member, self._flushes, set())

    def close(self) -> None:
        """All members have ended: what they still give back does not count."""
        with self._lock:
            self._members.clear()
            self._before.clear()
            self._fetching = None
            for flush in self._flushes:
                flush.ended.set()

    def resize(self, messages: int) -> None:
        """Set the limit in messages of a window."""
        if self._credit.messages != messages:
            self._change(lambda credit: replace(credit, messages=messages))

    def turn(self, member: Member, now: float, free: bool) -> bool:
        """Whether a member may fetch: nobody else does, or has waited longer for it."""
        with self._lock:
            if len(self._members) < 2 or member not in self._members:
                return True
            before = self._members[: self._members.index(member)]
            if self._fetching not in (None, member):
                return False
        return not any(other.fetches_now(now, free) for other in before)

    def begin(self, member: Member) -> None:
        """A member begins to fetch."""
        with self._lock:
            self._fetching = member
            self._before[member] = [*self._flushes]

    def end(self, member: Member, sizes: Sequence[int] = ()) -> None:
        """A member has fetched messages of so many bytes."""
        with self._lock:
            self._fetching = None
            if member not in self._members:
                return
            if sizes:
                self._credit = self._credit.taken(*sizes)
                # To the end: those that take by one credit take turns, or a busy queue would starve
                # the others.
                self._members.remove(member)
                self._members.append(member)

    def drained(self, member: Member, held: set[bytes]) -> None:
        """The latest fetch of a member left nothing behind that it could take; ``held`` are the
        tokens of what it holds."""
        with self._lock:
            self._drained(member, self._before.get(member, ()), held)

    def _drained(self, member: Member, flushes: Sequence[Flush], held: set[bytes]) -> None:
        for flush in flushes:
            flush.looking.discard(member)
            flush.held[member] = held.copy()
            # All have looked: what is left of the credit must not bring messages that came after
            # the flush.
            if not flush.looking and flush in self._flushes and not self._credit.window:
                self._credit = self._credit.withdrawn()
            flush.check()

    def released(
        self, member: Member, sizes: Sequence[int], tokens: Iterable[bytes], *, began: bool
    ) -> None:
        """Credit of a member's messages comes back. tokens: what it holds no more. began: whether a
        handler had begun with them; if not, they are in the queue again."""
        with self._lock:
            if member not in self._members:
                return
            if sizes:
                change = Credit.settled if began else Credit.returned
                self._credit = change(self._credit, *sizes)
            for flush in self._flushes:
                waited = flush.held.get(member, set()).intersection(tokens)
                if waited:
                    flush.held[member] -= waited
                    if not began:
                        # The member has to look once more before the flush is done.
                        flush.looking.add(member)
                    flush.check()

    def _change(self, change: Callable[[Credit], Credit]) -> None:
        with self._lock:
            self._credit = change(self._credit)
