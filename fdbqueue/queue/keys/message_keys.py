"""The keys of a queue, as ``Queue.keys`` offers them."""

from __future__ import annotations

from typing import Unpack

from ...consumers import wakeups
from ...errors import InvalidArgument
from ...messages.slots import hand_over, key_limits, usage
from ...schema import catalogue
from ...store.binding import fdb
from ...values.content import check_count, check_flag
from ...values.limits import KeyBacklog, KeyLimits, KeyState, OwnLimits
from ...values.options import check_behind, check_key_limit, check_name, check_rate
from ..queue_base import Handle, Transactor

MAX_LISTED = 10_000


class Keys:
    """The keys of one queue; get it from ``Queue.keys``. ``queue.keys["tenant-17"]`` is one key."""

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def __getitem__(self, key: str) -> Key:
        """A key, whether or not a message has it. Raises ``InvalidArgument``."""
        return Key(self._queue, key)

    def waiting(
        self,
        tr: Transactor,
        limit: int = 100,
        *,
        after: str | None = None,
    ) -> list[KeyBacklog]:
        """The keys of which messages wait for a slot, by name.

        limit: how many, up to 10,000. after: the key to continue behind. Snapshot reads, no
        conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        check_count("limit", limit, MAX_LISTED)
        queue, after = self._queue, check_behind(after)
        return queue._read(tr, lambda tr: usage.backlogs(tr, queue._scope(tr), limit, after))

    def limited(
        self,
        tr: Transactor,
        limit: int = 100,
        *,
        after: str | None = None,
    ) -> dict[str, OwnLimits]:
        """The keys that have limits of their own, by name, with these limits; as ``waiting``."""
        check_count("limit", limit, MAX_LISTED)
        queue, after = self._queue, check_behind(after)
        return queue._read(tr, lambda tr: usage.own_limits(tr, queue._scope(tr), limit, after))


class Key:
    """One key of a queue; get it from ``Queue.keys``.

    A change conflicts with enqueues and ends of the key that are in flight, and they try again. It
    lets up to a hundred messages out that need not wait any more, in the same transaction, and the
    others as messages of the key end.
    """

    def __init__(self, queue: Handle, key: str) -> None:
        self._queue = queue
        self.name = check_name(key, "key")

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    def set(self, tr: Transactor, **own: Unpack[OwnLimits]) -> KeyLimits:
        """Give the key limits of its own; returns all its limits.

        concurrency: how many of its messages may be out at once, 1 to 1,000; None for any number.
            If more are out, they stay out, and none follows until fewer are. Messages that became
            ready while there was no limit do not count.
        window: how many of them may be ready at once, 1 to 1,000; None for as many as are out.
        weight: how many turns the key gets where others get one, 1 to 1,000: its window has so many
            times as many places, at most 1,000. Needs a window, its own or the queue's.
        paused: whether no more of its messages become ready.
        rate: how many of them become ready in how much time, such as "5/s", "100/min", "10/hour" or
            "1000/day", and with ", burst 10" so many at once after a rest; None for any number. It
            counts from the next message on.

        Raises ``InvalidOptions``, ``InvalidArgument``, ``QueueNotFound``.
        """
        for name in own.keys() - OwnLimits.__annotations__.keys():
            raise TypeError(f"set() got an unexpected keyword argument {name!r}")
        if not own:
            known = ", ".join(OwnLimits.__annotations__)
            raise InvalidArgument(argument="limits", value=None, problem=f"give one of {known}")
        for name in own.keys() & {"concurrency", "window"}:
            check_key_limit(name, own.get(name))
        check_rate("rate", own.get("rate"))
        if not check_flag("paused", own.get("paused", True)):
            del own["paused"]
            return self._change(tr, own, ("paused",))
        return self._change(tr, own, ())

    def pause(self, tr: Transactor) -> KeyLimits:
        """Let no more of its messages become ready. Those that are ready are still delivered."""
        return self._change(tr, {"paused": True}, ())

    def resume(self, tr: Transactor) -> KeyLimits:
        """End a pause, and let out what may be."""
        return self._change(tr, {}, ("paused",))

    def reset(self, tr: Transactor) -> KeyLimits:
        """Drop the key's own limits, a pause included: those of the queue apply."""
        return self._change(tr, {}, tuple(OwnLimits.__annotations__))

    def state(self, tr: Transactor) -> KeyState:
        """The limits of the key, what is out, and how much waits. Snapshot reads, no conflicts."""
        queue = self._queue
        return queue._read(tr, lambda tr: usage.state(tr, queue._scope(tr), self.name))

    def _change(self, tr: Transactor, own: OwnLimits, dropped: tuple[str, ...]) -> KeyLimits:
        queue = self._queue

        def change(tr: fdb.Transaction) -> KeyLimits:
            if own.get("rate") is not None:
                catalogue.note_use(tr, queue._scope(tr), "rates")
            scope = queue._scope(tr)
            waiting = wakeups.reads(tr, queue._keys, wakeups.MAX_WOKEN)
            changed = key_limits.change(tr, scope, self.name, own, dropped)
            if hand_over.fill(tr, scope, self.name):
                wakeups.wake(tr, queue._keys, waiting)
            return changed

        return queue._run(tr, change)
