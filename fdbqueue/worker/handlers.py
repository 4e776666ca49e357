"""The ways to write a handler."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import CoroutineType, UnionType
from typing import (
    Any,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

from msgspec import Struct

from ..errors import InvalidArgument, UnknownJob
from ..queue.enqueue import JOB_HEADER
from ..queue.internals import jobs as jobs_of
from ..queue.internals import serializer
from ..queue.queue import Queue
from ..store.binding import fdb
from ..store.enclosing import Inside
from ..values.model import Delivery, Message
from ..values.serializers import BytesSerializer, JsonSerializer, TypeSerializer
from .terms import Run

MAX_BATCH = 1_000

Takes: TypeAlias = Literal["value", "message", "delivery"]
R = TypeVar("R")
T = TypeVar("T")
Handling: TypeAlias = """(
    Callable[[Message], object]
    | Callable[[fdb.Transaction, Message], object]
    | Callable[[Delivery], object]
    | Callable[[fdb.Transaction, Delivery], object]
    | Callable[[T], object]
    | Callable[[fdb.Transaction, T], object]
    | Callable[[list[Message]], object]
    | Callable[[fdb.Transaction, list[Message]], object]
    | Callable[[list[T]], object]
    | Callable[[fdb.Transaction, list[T]], object]
)"""
"""What handles the messages of a ``Queue[T]``: each as its value, as a message or a
delivery, or several."""


class Decorator(Protocol[T]):
    """Makes a function a handler of a ``Queue[T]``, and returns it: one of ``Handling[T]``."""

    @overload
    def __call__(self, function: Callable[[T], R], /) -> Callable[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[Message], R], /) -> Callable[[Message], R]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, Message], R], /
    ) -> Callable[[fdb.Transaction, Message], R]: ...
    @overload
    def __call__(self, function: Callable[[Delivery], R], /) -> Callable[[Delivery], R]: ...
    @overload
    def __call__(
        self, function: Callable[[fdb.Transaction, Delivery], R], /
    ) -> Callable[[fdb.Transaction, Delivery], R]: ...
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


class Handler(Struct, frozen=True):
    """A function that handles messages, and how to call it.

    transactional: it takes the transaction first, and its writes commit with the acknowledgement.
        It must have no other effect, since it runs again after a conflict.
    batch: the most messages of the list that it takes; None if it takes one message.
    takes: what it gets of a delivery.
    """

    function: Callable[..., Any]
    transactional: bool
    batch: int | None = None
    takes: Takes = "value"

    def call(self, queue: Queue[Any], found: Sequence[Message | Delivery], *tr: Any) -> object:
        """Call the function for messages of a queue; returns what it returns."""
        given: list[Any] = [*found]
        if self.takes == "message":
            given = [each.message if isinstance(each, Delivery) else each for each in found]
        elif self.takes == "value":
            given = [queue.value(each) for each in found]
        # An enqueue with the database would commit by itself, and once more at each retry: it is
        # refused here.
        with Inside(tr[0].db) if tr else nullcontext():
            returned = self.function(*tr, given if self.batch else given[0])
        # Caught here, since a coroutine that nobody awaits would count as done without having run.
        if type(returned) is CoroutineType:
            returned.close()
            raise InvalidArgument(
                argument="handler",
                value=self.function,
                problem="it has returned a coroutine, which nobody runs: make it an async def, "
                "for fdbqueue.aio.Worker",
            )
        return returned

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        queue: Queue[Any],
        *,
        transactional: bool | None = None,
        batch: int | None = None,
    ) -> Handler:
        """A handler of a queue, checked.

        transactional: where None, a function with two parameters is: ``(tr, value)``; with one,
            ``(value)``, it is not.

        It takes values, unless its last parameter is annotated with ``Message`` or ``Delivery``.
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
                    problem="must take (value) or (tr, value); say transactional=True or "
                    "False if it takes both",
                )
            transactional = two
        elif not (two if transactional else one):
            shown = "(tr, value)" if transactional else "(value)"
            raise InvalidArgument(argument="handler", value=function, problem=f"must take {shown}")
        if transactional and (names := _swapped(function, queue, batch)):
            problem = f"takes ({', '.join(names)}): swap them, the transaction comes first"
            raise InvalidArgument(argument="handler", value=function, problem=problem)
        annotation = _last_annotation(function, 2 if transactional else 1)
        if batch and get_args(annotation):
            annotation = get_args(annotation)[0]
        elif batch:
            annotation = Any
        takes = _taken(annotation)
        wrong = None if takes != "value" else _mismatch(annotation, queue)
        if wrong is not None:
            raise InvalidArgument(argument="handler", value=function, problem=wrong)
        return cls(function, transactional, batch, takes)


def handler_name(function: Any) -> str:
    """The name of a handler, for people."""
    # A partial goes by the name of what it calls.
    inner = getattr(function, "func", function)
    name = str(getattr(inner, "__qualname__", type(inner).__name__)).rpartition("<locals>.")[2]
    module = getattr(inner, "__module__", "")
    return name if module in ("", "__main__", __name__) else f"{module}.{name}"


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


class Jobs:
    """The function of a queue with jobs: it calls the job that a message names."""

    def __init__(self, queue: Queue[Any], jobs: Mapping[str, Handler]) -> None:
        self.jobs = jobs
        self._queue = queue
        self.__qualname__ = f"jobs {', '.join(sorted(jobs))}"

    def named_by(self, found: Message | Delivery) -> Handler:
        """The job that a message names. Raises ``UnknownJob``."""
        message = found.message if isinstance(found, Delivery) else found
        name = message.headers.get(JOB_HEADER)
        if name not in self.jobs:
            raise UnknownJob(
                name=name,
                queue=self._queue.name,
                known=", ".join(sorted(self.jobs)),
                job="no job" if name is None else f"job {name!r}",
                remedy="enqueue it by a job"
                if name is None
                else "import the module that defines it before the worker starts",
            )
        return self.jobs[str(name)]

    def __call__(self, *given: Any) -> object:
        *tr, found = given
        return self.named_by(found).call(self._queue, [found], *tr)


def of_jobs(
    queue: Queue[Any], called: Callable[[Callable[..., Any]], Callable[..., Any]], run: Run
) -> Handler:
    """The handler of a queue with jobs. Raises ``InvalidArgument``.

    called: makes of the function of a job what the worker calls.
    """
    jobs = {
        name: Handler.of(called(job.function), queue, transactional=run.transactional)
        for name, job in jobs_of(queue).items()
    }
    kinds = {each.transactional for each in jobs.values()}
    if len(kinds) != 1:
        problem = "some of its jobs take a transaction: take two queues" if jobs else "has no job"
        raise InvalidArgument(argument="queue", value=queue, problem=problem)
    if run.batch is not None:
        problem = "jobs take one message at a time"
        raise InvalidArgument(argument="batch", value=run.batch, problem=problem)
    return Handler(Jobs(queue, jobs), kinds.pop(), takes="delivery")


def _last_annotation(function: Callable[..., Any], count: int) -> Any:
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:
        # Names that only a type checker imports cannot be found here: these two are told by their
        # spelling.
        text = str(_annotation(inspect.signature(function), count))
        if found := re.search(r"\b(Message|Delivery)\b", text):
            return Message if found[0] == "Message" else Delivery
        raise InvalidArgument(
            argument="handler",
            value=function,
            problem="what its parameters are annotated with cannot be found, so it is unclear "
            f"whether it takes messages or values: {error}",
        ) from error
    return _annotation(signature, count)


def _annotation(signature: inspect.Signature, count: int) -> Any:
    return _parameters(signature, count)[-1].annotation


def _parameters(signature: inspect.Signature, count: int) -> list[inspect.Parameter]:
    """The parameters that get so many arguments."""
    return [signature.parameters[name] for name in signature.bind(*range(count)).arguments]


def _swapped(
    function: Callable[..., Any], queue: Queue[Any], batch: int | None
) -> list[str] | None:
    """The names of the two parameters if the first plainly takes what is handled, or the last the
    transaction."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # What an annotation names cannot be found.
        signature = inspect.signature(function)
    first, *others = _parameters(signature, 2)
    if not others or first.name == "tr":
        return None
    (last,) = others
    wanted = first.annotation
    if batch and get_args(wanted):
        wanted = get_args(wanted)[0]
    handled = not any(_fits(fdb.Transaction, arm) for arm in _arms(wanted)) and (
        _taken(wanted) != "value" or (_types(queue) and _mismatch(wanted, queue) is None)
    )
    named = last.name == "tr" and last.annotation is inspect.Parameter.empty
    typed = isinstance(last.annotation, type) and issubclass(last.annotation, fdb.Transaction)
    return [first.name, last.name] if handled or named or typed else None


def _arms(annotation: Any) -> Sequence[Any]:
    """The types of a union, or the one that an annotation is."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _taken(annotation: Any) -> Takes:
    """What somebody takes whose parameter is annotated so."""
    for each in _arms(annotation):
        if isinstance(each, type) and issubclass(each, Message | Delivery):
            return "message" if issubclass(each, Message) else "delivery"
    return "value"


_JSON = (str, int, float, bool, type(None), list, dict)


def _types(queue: Queue[Any]) -> tuple[tuple[type, ...], str] | None:
    """The types that values of a queue have, and what tells them; None if that is unknown."""
    match serializer(queue):
        case None:
            return (bytes, *_JSON), "bytes or JSON, as it was opened without a serializer"
        case JsonSerializer():
            return _JSON, "JSON, as it was opened without its serializer"
        case BytesSerializer():
            return (bytes,), "bytes"
        case TypeSerializer() as typed:
            return (typed.type,), typed.type.__name__
    return None


def _mismatch(annotation: Any, queue: Queue[Any]) -> str | None:
    """What is wrong if values of a queue are never of the type that a handler takes."""
    known = _types(queue)
    if known is None or any(_fits(each, arm) for arm in _arms(annotation) for each in known[0]):
        return None
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return f"it takes {name}, but the values of queue {queue.name!r} are {known[1]}"


def _fits(type_: type, annotation: Any) -> bool:
    """Whether a value of a type may be what a parameter is annotated with, as far as is known."""
    wanted = type(None) if annotation is None else _class(get_origin(annotation) or annotation)
    if not isinstance(wanted, type) or wanted in (Any, inspect.Parameter.empty):
        return True
    try:
        return issubclass(_class(type_), wanted)
    except TypeError:  # a protocol, say
        return True


def _class(type_: Any) -> Any:
    """The class that values of a type have; that of a TypedDict is dict."""
    row = isinstance(type_, type) and issubclass(type_, dict) and hasattr(type_, "__total__")
    return dict if row else type_
