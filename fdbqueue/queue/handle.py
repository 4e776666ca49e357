"""What every handle on a queue has: its keys, its clock, its cached options, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from copy import copy
from functools import cached_property
from typing import Self, TypeVar, TypeVarTuple

from ..consumers.receiving import Access
from ..errors import InvalidArgument
from ..schema import catalogue, once
from ..schema.keys import OnceKeys, QueueKeys, RootKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import Clock
from ..values import durations
from ..values.durations import Seconds
from ..values.model import Delivery
from ..values.options import Options, QueueOptions, check_name

Transactor = fdb.Transaction | fdb.Database
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

N = TypeVar("N")


class Creating(Options, total=False):
    """What ``Queue.create`` takes besides the serializer."""

    root: fdb.Subspace
    clock: Clock
    timeout: Seconds | None


class Opening(Creating, total=False):
    """What ``Queue.open`` takes besides the serializer."""

    create: bool


class Handle:
    """One queue by its name; no connection. The families of operations share it."""

    def __init__(self, name: str, root: fdb.Subspace, clock: Clock) -> None:
        self.name = check_name(name)
        self._root = root
        self._root_keys = RootKeys(root)
        self._keys: QueueKeys = self._root_keys.queue(name)
        self._clock = clock
        self._entry = catalogue.Entry(name, self._root_keys, self._keys, clock)

    def _only(self, identity: str) -> Self:
        """The same handle, for this very queue: whatever is done with it raises ``QueueReplaced``
        when another one has the name."""
        handle = self._copy()
        handle._entry = self._entry.only(identity)
        return handle

    def within(self, seconds: Seconds | None) -> Self:
        """The same queue, each of whose operations has a deadline; None for none.

        Where an operation is given a database, its transactions may take up to ``seconds`` in
        all, retries included; then it raises ``OperationTimedOut``, and nothing was written, or
        ``OutcomeUnknown`` if the store does not even tell that. What waits for messages or for
        room waits besides for as long as it is told; of what spans transactions, each has the
        deadline. With a transaction its own options count. What is made of the handle has the
        same deadline: subscriptions, sinks, imports, dead letters, plans, workers, pickled copies.
        """
        limit = durations.limit("seconds", seconds)
        handle = self._copy()
        handle._root_keys = RootKeys(self._root, limit)
        handle._keys = handle._root_keys.queue(self.name)
        handle._entry = catalogue.Entry(self.name, handle._root_keys, handle._keys, self._clock)
        handle._entry.identity = self._entry.identity
        return handle

    def _copy(self) -> Self:
        """The same handle, without what was made of it when it was asked for."""
        handle = copy(self)
        for name in vars(self):
            if isinstance(getattr(type(self), name, None), cached_property):
                vars(handle).pop(name, None)
        return handle

    @cached_property
    def _access(self) -> Access:
        return Access(self._entry)

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

    def _options(self, tr: fdb.Transaction) -> QueueOptions:
        return self._scope(tr).options

    def _scope(self, tr: fdb.Transaction) -> Scope:
        return self._entry.scope(tr)


def check_deliveries(given: object) -> None:
    """Whether these are deliveries to settle; raises ``InvalidArgument`` for anything else."""
    if isinstance(given, Delivery) or not isinstance(given, Collection):
        raise InvalidArgument(
            argument="deliveries", value=type(given).__name__, problem="give a list of deliveries"
        )
    for each in given:
        match each:
            case Delivery():
                continue
            case None:
                value, problem = None, "there is no delivery: receive found no message"
            case bytes():
                value, problem = "a token", "Queue.delivery gives the delivery that it names"
            case _:
                value = getattr(each, "id", type(each).__name__)
                problem = (
                    f"is a {type(each).__name__}, and what is settled is the Delivery that receive "
                    "returned"
                )
        raise InvalidArgument(argument="delivery", value=value, problem=problem)


def finished(steps: Iterable[R], progress: Callable[[R], object] | None, so_far: N) -> R | N:
    """Go through the steps of a long operation; returns how far the last came.

    progress: is told after each, where it is not None. so_far: what is returned if there is none.
    """
    last: R | N = so_far
    for step in steps:
        last = step
        if progress is not None:
            progress(step)
    return last


def composed(
    tr: Transactor,
    keys: OnceKeys,
    body: Callable[[fdb.Transaction, *Ts], R],
    *terms: *Ts,
    wrote: Callable[[R], bool] | None = None,
) -> R:
    """Run ``body`` in the caller's transaction; given a database, as a ``once.Operation``."""
    if isinstance(tr, fdb.Transaction):
        return body(tr, *terms)
    # The loop of ``once.run``, here: so calls go down only.
    operation: once.Operation[R] = once.Operation(tr, keys)
    while not operation.done:
        try:
            result = body(operation.tr, *terms)
            operation.commit(result, wrote is None or wrote(result))
        except fdb.FDBError as error:
            operation.recover(error)
    return operation.result


def _never(_: object) -> bool:
    return False


def check_transaction(tr: object, operation: str) -> None:
    """Raises ``InvalidArgument`` for what must be a transaction and is a database, or anything."""
    if not isinstance(tr, fdb.Transaction):
        raise InvalidArgument(
            argument="tr",
            value=tr,
            problem=f"{operation} takes a transaction, to be committed with the message's effect; "
            f"with a database the message would be lost with its process: receive and ack it, or "
            f"use {operation}_at_most_once",
        )
