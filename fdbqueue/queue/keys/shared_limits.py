"""The limits that the queues of a root share, as ``Queue.limits`` offers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar, Unpack

from ...errors import InvalidArgument
from ...messages.slots import hand_over, key_limits, usage
from ...schema.keys import DEFAULT_ROOT, RootKeys
from ...store.binding import fdb
from ...store.clocks import SYSTEM_CLOCK, Clock
from ...values import durations
from ...values.content import check_count, check_flag
from ...values.durations import Seconds
from ...values.limits import Limit, LimitState, LimitSummary, OwnLimits
from ...values.options import check_key_limit, check_name, check_rate
from ..queue_base import Transactor, composed

MAX_LISTED = 10_000
R = TypeVar("R")


class SharedLimitTerms(TypedDict, total=False):
    """What a limit that queues share may say; ``SharedLimit.set`` says what each does."""

    concurrency: int | None
    paused: bool
    rate: str | None


def check_limit(argument: str, limit: object) -> Limit:
    """The dimension and the name of a limit. Raises ``InvalidArgument``."""
    if not isinstance(limit, tuple) or len(limit) != 2:
        problem = 'name a dimension and a limit: ("api", "stripe")'
        raise InvalidArgument(argument=argument, value=limit, problem=problem)
    dimension, name = limit
    return check_name(dimension, argument), check_name(name, argument)


class Limits:
    """The limits that the queues of a root share; get it from ``Queue.limits``, or make one for the
    root. ``queue.limits["api", "stripe"]`` is one limit.

    timeout: seconds that each transaction with a database may take; None for any time.
    """

    def __init__(
        self,
        root: fdb.Subspace = DEFAULT_ROOT,
        *,
        clock: Clock = SYSTEM_CLOCK,
        timeout: Seconds | None = None,
    ) -> None:
        self._root, self._clock = root, clock
        self._keys = RootKeys(root, durations.limit("timeout", timeout))

    def __getitem__(self, limit: Limit) -> SharedLimit:
        """A limit, by its dimension and its name, whether or not it is set. Raises
        ``InvalidArgument``."""
        return SharedLimit(self, *check_limit("limit", limit))

    def list(
        self,
        tr: Transactor,
        limit: int = 100,
        *,
        after: Limit | None = None,
    ) -> list[LimitSummary]:
        """The limits that are set, and those for which messages wait, by dimension and name.

        limit: how many, up to 10,000. after: the dimension and the name to continue behind.
        Snapshot reads, no conflicts. Raises ``InvalidArgument``.
        """
        check_count("limit", limit, MAX_LISTED)
        if after is not None:
            check_limit("after", after)
        return self._run(tr, lambda tr, keys: usage.shared(tr, keys, limit, after))

    def _run(
        self,
        tr: Transactor,
        body: Callable[[fdb.Transaction, RootKeys], R],
        wrote: Callable[[R], bool] = lambda _: False,
    ) -> R:
        return composed(tr, self._keys.once, body, self._keys, wrote=wrote)


class SharedLimit:
    """One limit that queues share; get it from ``Queue.limits``.

    A change conflicts with enqueues and ends of messages of the limit that are in flight, and they
    try again. With a database it then lets all messages out that need not wait any more, in as many
    transactions as that takes. In your own transaction it lets out a hundred, and the others
    follow as messages of the limit end, or at a sweep of any of the queues.
    """

    def __init__(self, limits: Limits, dimension: str, name: str) -> None:
        self._limits = limits
        self.dimension, self.name = dimension, name

    def __repr__(self) -> str:
        return f"SharedLimit({self.dimension!r}, {self.name!r})"

    def set(self, tr: Transactor, **shared: Unpack[SharedLimitTerms]) -> LimitState:
        """Set the limit, or change it; returns what is known of it then.

        concurrency: how many of its messages may be out at once in all queues together, 1 to
            1,000; None for any number. If more are out, they stay out, and none follows until
            fewer are. Messages that became ready while there was no limit do not count.
        paused: whether no more of its messages become ready.
        rate: how many of them become ready in how much time, such as "5/s", "100/min", "10/hour" or
            "1000/day", and with ", burst 10" so many at once after a rest; None for any number. It
            counts from the next message on.

        Raises ``InvalidOptions``, ``InvalidArgument``.
        """
        for name in shared.keys() - SharedLimitTerms.__annotations__.keys():
            if name not in OwnLimits.__annotations__:
                raise TypeError(f"set() got an unexpected keyword argument {name!r}")
            problem = "a limit that queues share has none: keys have it"
            raise InvalidArgument(argument=name, value=shared.get(name), problem=problem)
        if not shared:
            known = ", ".join(SharedLimitTerms.__annotations__)
            raise InvalidArgument(argument="limits", value=None, problem=f"give one of {known}")
        changes: OwnLimits = {}
        if "concurrency" in shared:
            check_key_limit("concurrency", shared["concurrency"])
            changes["concurrency"] = shared["concurrency"]
        if "rate" in shared:
            check_rate("rate", shared["rate"])
            changes["rate"] = shared["rate"]
        if "paused" in shared and check_flag("paused", shared["paused"]):
            changes["paused"] = True
        return self._change(tr, changes, ("paused",) if shared.get("paused") is False else ())

    def pause(self, tr: Transactor) -> LimitState:
        """Let no more of its messages become ready. Those that are ready are still delivered."""
        return self._change(tr, {"paused": True}, ())

    def resume(self, tr: Transactor) -> LimitState:
        """End a pause, and let out what may be."""
        return self._change(tr, {}, ("paused",))

    def delete(self, tr: Transactor) -> LimitState:
        """Drop the limit, a pause included: its messages wait no more."""
        return self._change(tr, {}, tuple(OwnLimits.__annotations__))

    def state(self, tr: Transactor) -> LimitState:
        """What the limit is, what is out, and what waits. Snapshot reads, no conflicts."""
        return self._limits._run(tr, self._state)

    @property
    def _name(self) -> Limit:
        return self.dimension, self.name

    def _state(self, tr: fdb.Transaction, keys: RootKeys) -> LimitState:
        return usage.shared_state(tr, keys, self._name, self._limits._clock.now_ms(tr))

    def _change(self, tr: Transactor, own: OwnLimits, dropped: tuple[str, ...]) -> LimitState:
        clock = self._limits._clock

        def change(tr: fdb.Transaction, keys: RootKeys) -> tuple[int, LimitState]:
            key_limits.change_shared(tr, keys.limits.limits(self._name), own, dropped)
            return fill(tr, keys)

        def fill(tr: fdb.Transaction, keys: RootKeys) -> tuple[int, LimitState]:
            return hand_over.fill_shared(tr, keys, clock, self._name), self._state(tr, keys)

        def filled(done: tuple[int, LimitState]) -> bool:
            return done[0] > 0

        let_out, state = self._limits._run(tr, change, lambda _: True)
        while let_out and not isinstance(tr, fdb.Transaction):
            let_out, state = self._limits._run(tr, fill, filled)
        return state
