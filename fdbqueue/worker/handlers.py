"""The ways to write a handler."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import CoroutineType, UnionType
from typing import Any, Protocol, TypeAlias, TypeVar, Union, get_args, get_origin, overload

from ..errors import InvalidArgument
from ..store.binding import fdb
from ..values.model import Message
from ..values.records import record

MAX_BATCH = 1_000

R = TypeVar("R")
T = TypeVar("T")
Handling: TypeAlias = """(
    Callable[[Message], object]
    | Callable[[fdb.Transaction, Message], object]
    | Callable[[T], object]
    | Callable[[fdb.Transaction, T], object]
    | Callable[[list[Message]], object]
    | Callable[[fdb.Transaction, list[Message]], object]
    | Callable[[list[T]], object]
    | Callable[[fdb.Transaction, list[T]], object]
)"""
"""What handles the messages of a ``Queue[T]``: each as a message or as its value, or several."""


class Decorator(Protocol[T]):
    """Makes a function a handler of a ``Queue[T]``, and returns it: one of ``Handling[T]``."""

    @overload
    def __call__(self, function: Callable[[Message], R], /) -> Callable[[Message], R]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, Message], R], /
    ) -> Callable[[fdb.Transaction, Message], R]: ...
    @overload
    def __call__(self, function: Callable[[T], R], /) -> Callable[[T], R]: ...
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
        self, function: Callable[[fdb.Transaction, list[Message]], R], /
    ) -> Callable[[fdb.Transaction, list[Message]], R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], R], /) -> Callable[[list[T]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, list[T]], R], /
    ) -> Callable[[fdb.Transaction, list[T]], R]: ...


@record
class Handler:
    """A function that handles messages, and how to call it.

    transactional: it takes the transaction first, and its writes commit with the acknowledgement.
        It must have no other effect, since it runs again after a conflict.
    batch: the most messages of the list that it takes; None if it takes one message.
    value: what gives the value of a message, if it takes values.
    """

    function: Callable[..., Any]
    transactional: bool
    batch: int | None = None
    value: Callable[[Message], Any] | None = None

    def call(self, messages: list[Message], *tr: Any) -> object:
        """Call the function; returns what it returns."""
        given = messages if self.value is None else [self.value(each) for each in messages]
        found = self.function(*tr, given if self.batch else given[0])
        if type(found) is CoroutineType:
            found.close()
            raise InvalidArgument(
                argument="handler",
                value=self.function,
                problem="it has returned a coroutine, which nobody runs: make it an async def, "
                "for fdbqueue.aio.Worker",
            )
        return found

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        transactional: bool | None = None,
        batch: int | None = None,
        value: Callable[[Message], Any] | None = None,
    ) -> Handler:
        """A handler, checked.

        transactional: where None, a function with two parameters is: ``(tr, message)``; with one,
            ``(message)``, it is not.
        value: what gives the value of a message, for a function whose last parameter is annotated
            with any other type than ``Message``.

        Raises ``InvalidArgument``.
        """
        if not callable(function):
            raise InvalidArgument(argument="handler", value=function, problem="must be callable")
        if suspends(function):
            raise InvalidArgument(
                argument="handler",
                value=function,
                problem="is a coroutine function: fdbqueue.aio.Worker runs those",
            )
        if batch is not None and (type(batch) is not int or not 0 < batch <= MAX_BATCH):
            raise InvalidArgument(
                argument="batch", value=batch, problem=f"must be 1 to {MAX_BATCH:,}, or None"
            )
        one, two = _accepts(function, 1), _accepts(function, 2)
        if transactional is None:
            if one == two:
                raise InvalidArgument(
                    argument="handler",
                    value=function,
                    problem="must take (message) or (tr, message); say transactional=True or "
                    "False if it takes both",
                )
            transactional = two
        elif not (two if transactional else one):
            shown = "(tr, message)" if transactional else "(message)"
            raise InvalidArgument(argument="handler", value=function, problem=f"must take {shown}")
        annotation = _last_annotation(function, 2 if transactional else 1)
        if batch and get_args(annotation):
            annotation = get_args(annotation)[0]
        elif batch:
            annotation = Any
        return cls(function, transactional, batch, None if _is_message(annotation) else value)


def suspends(function: Any) -> bool:
    """Whether it is a coroutine function, or an object that is called as one."""
    called = inspect.getattr_static(type(function), "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _last_annotation(function: Callable[..., Any], count: int) -> Any:
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:
        text = str(_annotation(inspect.signature(function), count))
        if re.search(r"\bMessage\b", text):
            return Message
        raise InvalidArgument(
            argument="handler",
            value=function,
            problem="what its parameters are annotated with cannot be found, so it is unclear "
            f"whether it takes messages or values: {error}",
        ) from error
    return _annotation(signature, count)


def _annotation(signature: inspect.Signature, count: int) -> Any:
    name = list(signature.bind(*range(count)).arguments)[-1]
    return signature.parameters[name].annotation


def _is_message(annotation: Any) -> bool:
    """Whether what is annotated is a message: also where nothing is said."""
    if annotation in (inspect.Parameter.empty, Any, object) or isinstance(annotation, TypeVar):
        return True
    if get_origin(annotation) in (Union, UnionType):
        return any(map(_is_message, get_args(annotation)))
    return isinstance(annotation, type) and issubclass(annotation, Message)
