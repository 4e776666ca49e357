"""The base of ``Queue``: keys, clock, cached options, and how operations run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Self, TypeVar, TypeVarTuple

from ..consumers.receiving import Access, Accesses, accesses
from ..errors import InvalidArgument
from ..messages.delivery.batch import Together
from ..messages.run import Held
from ..schema import catalogue, once
from ..schema.keys import OnceKeys, QueueKeys, RootKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import Clock
from ..values import durations
from ..values.durations import Seconds
from ..values.model import Delivery
from ..values.options import QueueOptions, check_name, check_queue_name

Transactor = fdb.Transaction | fdb.Database
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

N = TypeVar("N")


class Handle:
    """One queue by its name; no connection."""

    def __init__(self, name: str, root: fdb.Subspace, clock: Clock) -> None:
        self.name = check_queue_name(name)
        self._root = root
        self._root_keys = RootKeys(root)
        self._keys: QueueKeys = self._root_keys.queue(name)
        self._clock = clock
        self._entry = catalogue.CachedScope(name, self._root_keys, self._keys, clock)

    def _only(self, identity: str) -> Self:
        """The same handle, bound to this very queue: its operations raise ``QueueReplaced`` once
        another queue has the name."""
        handle = self._copy()
        handle._entry = self._entry.only(identity)
        return handle

    def within(self, seconds: Seconds | None) -> Self:
        """The same queue with a deadline for each operation; None for none.

        With a database, an operation may take up to ``seconds`` for its transaction, retries
        included; one that spans transactions, for each of them. Then it raises
        ``OperationTimedOut``, and nothing was written, or ``OutcomeUnknown`` if the store does not
        answer at all. Waiting for messages or for room does not count. A transaction of the
        caller's has its own options. Everything made from the handle inherits the deadline:
        subscriptions, sinks, imports, dead letters, plans, workers, pickled copies.
        """
        limit = durations.limit("seconds", seconds)
        handle = self._copy()
        handle._root_keys = RootKeys(self._root, limit)
        handle._keys = handle._root_keys.queue(self.name)
        # A cache of its own: its keys carry the deadline.
        handle._entry = catalogue.CachedScope(
            self.name, handle._root_keys, handle._keys, self._clock
        )
        handle._entry.identity, handle._entry.scheme = self._entry.identity, self._entry.scheme
        handle._entry.opened = self._entry.opened
        return handle

    def _copy(self) -> Self:
        """A copy of the handle, without its cached properties."""
        # Not ``copy``: cached properties, such as threads in line, belong to the handle that made
        # them.
        handle = object.__new__(type(self))
        for name, value in vars(self).items():
            if not isinstance(getattr(type(self), name, None), cached_property):
                vars(handle)[name] = value
        return handle

    def _other(self, target: Handle | str) -> Handle:
        """Another queue, or the one of a name under the same root. Raises ``InvalidArgument`` if it
        is this one."""
        if not isinstance(target, Handle):
            target = Handle(check_name(target, "target"), self._root, self._clock)
        if target._keys.prefix == self._keys.prefix:
            raise InvalidArgument(
                argument="target", value=target.name, problem="must be another queue"
            )
        return target

    @cached_property
    def _accesses(self) -> Accesses:
        return accesses(self._entry)

    @property
    def _access(self) -> Access:
        return self._accesses.mine

    def _run(
        self,
        tr: Transactor,
        body: Callable[[fdb.Transaction, *Ts], R],
        *terms: *Ts,
        wrote: Callable[[R], bool] | None = None,
    ) -> R:
        return composed(tr, self._keys.once, body, *terms, wrote=wrote)

    def _read(self, tr: Transactor, body: Callable[[fdb.Transaction, *Ts], R], *terms: *Ts) -> R:
        return composed(tr, self._keys.once, body, *terms, wrote=_never)

    def _opening(
        self,
        tr: Transactor,
        keys: OnceKeys,
        body: Callable[[fdb.Transaction], R],
        wrote: Callable[[R], bool] | None = None,
    ) -> R:
        """``composed`` for what opens the queue or a part of it; notes since when it is there,
        if a database has it."""
        ran: list[fdb.Transaction] = []

        def run(tr: fdb.Transaction) -> R:
            found = body(tr)
            once.version(tr)  # which cannot be asked after the commit
            ran[:] = [tr]
            return found

        found = composed(tr, keys, run, wrote=wrote)
        if not isinstance(tr, fdb.Transaction):
            self._entry.opened = max(ran[0].get_committed_version(), once.version(ran[0]))
        return found

    def _options(self, tr: fdb.Transaction) -> QueueOptions:
        return self._scope(tr).options

    def _scope(self, tr: fdb.Transaction) -> Scope:
        return self._entry.scope(tr)


def checked(given: Delivery | Sequence[Delivery]) -> Sequence[Held]:
    """What is to be settled, of deliveries; raises ``InvalidArgument`` for anything else."""
    if isinstance(given, Together):
        return given.held
    if isinstance(given, Delivery | bytes | str) or not isinstance(given, Collection):
        given = (given,)
    for each in given:
        match each:
            case Delivery():
                continue
            case None:
                value, problem = None, "there is no delivery: receive returned None"
            case bytes():
                value, problem = "a token", "get the delivery of a token by Queue.admin.delivery"
            case _:
                value = each
                problem = f"give the Delivery that receive returned, not {type(each).__name__}"
        raise InvalidArgument(argument="delivery", value=value, problem=problem)
    return given


def finished(steps: Iterable[R], progress: Callable[[R], object] | None, so_far: N) -> R | N:
    """Run the steps of a long operation; returns the result of the last, or ``so_far``.

    progress: called with the result of each step; stops the operation there by returning False.
    """
    last: R | N = so_far
    for step in steps:
        last = step
        if progress is not None and progress(step) is False:
            break
    return last


def composed(
    tr: Transactor,
    keys: OnceKeys,
    body: Callable[[fdb.Transaction, *Ts], R],
    *terms: *Ts,
    wrote: Callable[[R], bool] | None = None,
) -> R:
    """Run ``body`` in the caller's transaction; given a database, exactly once."""
    if isinstance(tr, fdb.Transaction):
        return body(tr, *terms)
    return once.run(tr, keys, body, *terms, wrote=wrote)


def _never(_: object) -> bool:
    return False


def check_transaction(tr: object, operation: str) -> None:
    """Raise ``InvalidArgument`` for anything but a transaction."""
    if not isinstance(tr, fdb.Transaction):
        raise InvalidArgument(
            argument="tr",
            value=tr,
            problem=f"{operation} takes a transaction, which also writes the message's effect; "
            "with a database a crash would lose the message: use receive and ack, or receive with "
            "at_most_once=True",
        )


def check_leaseless(lease: object, ack: Sequence[Held]) -> None:
    """Raise ``InvalidArgument`` for a receive at most once that asks for a lease."""
    if lease is not None or ack:
        raise InvalidArgument(
            argument="at_most_once", value=True, problem="leases nothing: leave out lease and ack"
        )


def patience_of(tr: Transactor, wait: object) -> float:
    """How long a call may wait, in seconds. Raises ``InvalidArgument``, also for any time in the
    caller's transaction."""
    seconds = durations.patience("wait", wait)
    if seconds and isinstance(tr, fdb.Transaction):
        raise InvalidArgument(
            argument="wait",
            value=wait,
            problem="waiting spans transactions: call it with a database",
        )
    return seconds
