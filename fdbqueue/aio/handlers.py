"""The ways to write a handler for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from ..store.binding import fdb
from ..values.model import Delivery, Message
from .transactions import Transaction

R = TypeVar("R")
T = TypeVar("T")
Coroutines: TypeAlias = Coroutine[Any, Any, R]
Handling: TypeAlias = """(
    Callable[[Message], object]
    | Callable[[Transaction, Message], Coroutines[object]]
    | Callable[[fdb.Transaction, Message], object]
    | Callable[[Delivery], object]
    | Callable[[Transaction, Delivery], Coroutines[object]]
    | Callable[[fdb.Transaction, Delivery], object]
    | Callable[[T], object]
    | Callable[[Transaction, T], Coroutines[object]]
    | Callable[[fdb.Transaction, T], object]
    | Callable[[list[Message]], object]
    | Callable[[Transaction, list[Message]], Coroutines[object]]
    | Callable[[fdb.Transaction, list[Message]], object]
    | Callable[[list[T]], object]
    | Callable[[Transaction, list[T]], Coroutines[object]]
    | Callable[[fdb.Transaction, list[T]], object]
)"""
"""What handles the messages of a ``Queue[T]``. A coroutine function gets a transaction of
``fdbqueue.aio``, and a plain one that of the bindings."""


class Decorator(Protocol[T]):
    """Makes a function a handler of a ``Queue[T]``, and returns it: one of ``Handling[T]``."""

    @overload
    def __call__(self, function: Callable[[T], R], /) -> Callable[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[Message], R], /) -> Callable[[Message], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Transaction, Message], Coroutines[R]], /
    ) -> Callable[[Transaction, Message], Coroutines[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, Message], R], /
    ) -> Callable[[fdb.Transaction, Message], R]: ...
    @overload
    def __call__(self, function: Callable[[Delivery], R], /) -> Callable[[Delivery], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Transaction, Delivery], Coroutines[R]], /
    ) -> Callable[[Transaction, Delivery], Coroutines[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, Delivery], R], /
    ) -> Callable[[fdb.Transaction, Delivery], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Transaction, T], Coroutines[R]], /
    ) -> Callable[[Transaction, T], Coroutines[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, T], R], /
    ) -> Callable[[fdb.Transaction, T], R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Message]], R], /
    ) -> Callable[[list[Message]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Transaction, list[Message]], Coroutines[R]], /
    ) -> Callable[[Transaction, list[Message]], Coroutines[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, list[Message]], R], /
    ) -> Callable[[fdb.Transaction, list[Message]], R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], R], /) -> Callable[[list[T]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Transaction, list[T]], Coroutines[R]], /
    ) -> Callable[[Transaction, list[T]], Coroutines[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, list[T]], R], /
    ) -> Callable[[fdb.Transaction, list[T]], R]: ...
