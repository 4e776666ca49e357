"""Twins: classes of the blocking API whose methods that wait are coroutines.

A twin has the methods of its original, with the same names, arguments and errors. A method that
takes a transaction or a database waits: its twin is a coroutine function, or, where it yields,
gives an async iterator. Everything else is passed on as it is. What a method returns or takes is
exchanged for its twin, or its original.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from functools import partial, wraps
from types import GenericAlias
from typing import Any, Self, TypeVar

from msgspec.structs import asdict, replace

from ..consumers.line import Ticket
from ..store.binding import fdb
from ..values.groups import Then
from ..worker.terms import Take
from .driver import run

T = TypeVar("T", bound="type[Twin]")

_TRANSACTORS = {"tr", "db"}
_TAKES = {
    *("receive", "receive_many", "receive_batch"),
    *("collect", "request", "consume"),
}
"""Methods whose result is given back where the task that waits for it is cancelled."""
_END = object()
_twins: dict[type, type[Twin]] = {}


class Twin:
    """The twin of an object of the blocking API; ``blocking`` is the object."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking

    @classmethod
    def of(cls, blocking: Any) -> Self:
        """The twin of an object of the blocking API."""
        made = cls.__new__(cls)
        Twin.__init__(made, blocking)
        return made

    def __class_getitem__(cls, kind: Any) -> GenericAlias:
        """For annotations, as of the classes that type checkers see: ``aio.Queue[Order]``."""
        return GenericAlias(cls, kind)

    def __repr__(self) -> str:
        return f"aio.{self.blocking!r}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Twin) and bool(self.blocking == other.blocking)

    def __hash__(self) -> int:
        return hash(self.blocking)


def twin(of: type, *, waits: tuple[str, ...] = ()) -> Callable[[T], T]:
    """A decorator: give a class the methods of ``of`` that it does not have.

    waits: methods that wait though they take neither a transaction nor a database.
    """

    def fill(made: T) -> T:
        for name in dir(of):
            if not name.startswith("_") and name not in vars(made):
                given = inspect.getattr_static(of, name)
                setattr(made, name, _twin(name, given, waits=name in waits))
        _twins[of] = made
        return made

    return fill


def _twin(name: str, given: Any, *, waits: bool) -> Any:
    if isinstance(given, classmethod):
        function = given.__func__

        @wraps(function)
        async def create(cls: type[Twin], /, *args: Any, **kwargs: Any) -> Any:
            return await _call(None, partial(getattr(_original(cls), name)), args, kwargs)

        return classmethod(create)
    if not inspect.isfunction(given):
        return property(lambda self: to_twin(getattr(self.blocking, name)), doc=given.__doc__)
    parameters = list(inspect.signature(given).parameters)
    if not waits and (len(parameters) < 2 or parameters[1] not in _TRANSACTORS):

        @wraps(given)
        def pass_on(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
            arguments, named = _originals(args, kwargs)
            return to_twin(given(self.blocking, *arguments, **named))

        return pass_on
    if str(inspect.signature(given).return_annotation).startswith("Iterator"):

        @wraps(given)
        def iterate(self: Twin, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            arguments, named = _originals(args, kwargs)
            undo = _undo(self.blocking, arguments, named) if name in _TAKES else None
            # It waits for nothing yet.
            return _rows(given(self.blocking, *arguments, **named), undo)

        return iterate

    @wraps(given)
    async def call(self: Twin, /, *args: Any, **kwargs: Any) -> Any:
        operation = partial(given, self.blocking)
        return await _call(self.blocking if name in _TAKES else None, operation, args, kwargs)

    return call


async def _rows(
    found: Generator[Any, None, object], undo: Callable[[Any], object] | None
) -> AsyncIterator[Any]:
    """What an iterator of the blocking API yields. ``undo``: as in ``run``."""
    try:
        while (one := await run(partial(next, found, _END), undo)) is not _END:
            yield to_twin(one)
    finally:
        # Also after a break: the blocking iterator gives back what it has taken and not yielded.
        await run(found.close)


async def _call(
    taker: Any, operation: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Run an operation. ``taker``: what the result is given back to, if it is."""
    arguments, named = _originals(args, kwargs)
    undo = None if taker is None else _undo(taker, arguments, named)
    return to_twin(await run(partial(operation, *arguments, **named), undo))


def _undo(
    taker: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[Any], object] | None:
    """What gives back what an operation has taken; None in a transaction, which undoes itself."""
    for given in (*args[:1], *(kwargs[name] for name in _TRANSACTORS & kwargs.keys())):
        if isinstance(given, fdb.Database):
            return partial(_give_back, taker, given)
    return None


def _give_back(taker: Any, db: fdb.Database, taken: Any) -> None:
    """Give back what a task has taken that was cancelled meanwhile."""
    queue = getattr(taker, "_queue", taker)
    if taken is _END:
        return
    if isinstance(taken, Ticket):
        taken = queue.line.withdraw(db, taken)
    if taken:
        queue.release(db, taken, delay=0)


def to_twin(value: Any) -> Any:
    """The twin of a value; the value itself if it has none."""
    if isinstance(value, Twin):
        return value
    kind = _twins.get(type(value))
    return value if kind is None else kind.of(value)


def to_original(value: Any) -> Any:
    """What a twin stands for, also within a group of arguments; any other value as it is."""
    if isinstance(value, Then | Take):
        return replace(value, **{name: to_original(each) for name, each in asdict(value).items()})
    return value.blocking if isinstance(value, Twin) else value


def _original(cls: type[Twin]) -> type:
    return next(original for original, made in _twins.items() if issubclass(cls, made))


def _originals(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    named = {name: to_original(value) for name, value in kwargs.items()}
    return [to_original(value) for value in args], named
