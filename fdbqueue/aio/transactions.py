"""Databases and transactions of asyncio, and the decorator that runs a coroutine in one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from ..errors import InvalidArgument
from ..store import binding, client
from ..store.binding import fdb
from ..store.enclosing import Inside
from ..values.durations import Seconds
from .driver import run
from .twins import Twin

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Database(Twin):
    """A store that is open; see ``open``."""

    blocking: fdb.Database

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing needs to be closed: the client keeps a store open as long as the process."""

    def create_transaction(self) -> Transaction:
        """A new transaction; commit it, and try again after an error, as ``transactional`` does."""
        return Transaction(client.begin(self.blocking))


class Reads(Twin):
    """What can be read in a transaction. Each read waits for the store, and nothing else does."""

    blocking: Any

    async def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if there is none."""
        return await run(lambda: self.blocking.get(key).value)

    async def get_key(self, selector: fdb.KeySelector) -> bytes:
        """The key that a selector leads to."""
        return await run(lambda: self.blocking.get_key(selector).value)

    async def get_read_version(self) -> int:
        """The version at which the transaction reads."""
        return await run(lambda: int(self.blocking.get_read_version().wait()))

    async def get_range(
        self,
        begin: bytes | fdb.KeySelector | None,
        end: bytes | fdb.KeySelector | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = fdb.StreamingMode.iterator,
    ) -> AsyncIterator[fdb.KeyValue]:
        """The keys and values from ``begin`` to before ``end``."""
        rows = iter(self.blocking.get_range(begin, end, limit, reverse, streaming_mode))
        # Row by row: only the last of a batch waits for the store.
        while (row := await run(partial(next, rows, None))) is not None:
            yield row


class Transaction(Reads):
    """A transaction. What it writes, and its options, are as in the bindings: ``set``, ``clear``,
    ``add`` and the like do not wait."""

    blocking: fdb.Transaction

    @property
    def snapshot(self) -> Reads:
        """Reads that conflict with nothing."""
        return Reads(self.blocking.snapshot)

    async def commit(self) -> None:
        """Commit."""
        await run(lambda: self.blocking.commit().wait())

    async def on_error(self, error: fdb.FDBError) -> None:
        """Wait, and make the transaction ready for another attempt; raises what cannot be tried
        again."""
        await run(lambda: self.blocking.on_error(error).wait())

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling ask for these before there is a `blocking`, and would come back here
        # for ever.
        if name.startswith("_") or name == "blocking":
            raise AttributeError(name)
        return getattr(self.blocking, name)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.blocking[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.blocking[key]


async def open(
    store: str | os.PathLike[str] | None = None,
    *,
    timeout: Seconds | None = binding.DEFAULT_TIMEOUT,
    create: bool = True,
) -> Database:
    """Open a store; as ``fdbqueue.open``."""
    return Database(await run(partial(binding.open, store, timeout=timeout, create=create)))


@overload
def transactional(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, R]], /
) -> Callable[Concatenate[Transaction | Database, P], Coroutine[Any, Any, R]]: ...


@overload
def transactional(
    function: Callable[Concatenate[S, Transaction, P], Coroutine[Any, Any, R]], /
) -> Callable[Concatenate[S, Transaction | Database, P], Coroutine[Any, Any, R]]: ...


def transactional(function: Callable[..., Any], /) -> Callable[..., Any]:
    """A decorator: the coroutine function runs in a transaction, the caller's or one of its own.

    As ``fdbqueue.transactional``: called with a database, it gets a new transaction, which is
    committed when it returns, and runs again after a conflict, or where the outcome of the commit
    is unknown. A task that is cancelled commits nothing, unless the commit has begun.

    Raises ``InvalidArgument`` for a function that is no coroutine function.
    """
    place, parameter = binding.transaction_place(function, suspends=True)

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if len(args) > place else kwargs.get(parameter)
        if isinstance(given, Reads):
            return await inside(given.blocking.db, function(*args, **kwargs))
        if not isinstance(given, Database):
            problem = "must be a database, as fdbqueue.aio.open returns it, or a transaction of it"
            raise InvalidArgument(argument=parameter, value=given, problem=problem)
        # One for all attempts: `on_error` resets it, and lets it wait longer each time.
        tr = given.create_transaction()
        arguments = [*args[:place], tr, *args[place + 1 :]]
        kwargs.pop(parameter, None)
        while True:
            try:
                result = await inside(given.blocking, function(*arguments, **kwargs))
                await tr.commit()
                return result
            except fdb.FDBError as error:
                await tr.on_error(error)

    return call


def handling(function: Callable[..., Any], args: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
    """The coroutine of a handler: its transaction, if it takes one, is one of this module."""
    tr, *given = args
    if isinstance(tr, fdb.Transaction):
        return inside(tr.db, function(Transaction(tr), *given))
    coroutine: Coroutine[Any, Any, Any] = function(*args)
    return coroutine


async def inside(db: fdb.Database, coroutine: Coroutine[Any, Any, R]) -> R:
    """What a coroutine returns, which is in a transaction of a database."""
    with Inside(db):
        return await coroutine
