"""Jobs: functions that are called by messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack

from ..errors import InvalidArgument
from ..values.model import Headers, MessageTerms
from ..values.options import check_name
from ..values.schedules import Schedule, ScheduleTerms
from ..values.text import names_meant
from .enqueue import JOB_HEADER, Enqueuing
from .queue_base import Transactor

V = TypeVar("V")
R = TypeVar("R")


class Job(Generic[V, R]):
    """A function that workers call for messages of a queue; made by ``Queue.job``.

    name: what its messages say, in the header ``job``. Calling it calls the function.
    """

    def __init__(self, queue: Enqueuing[Any], function: Callable[..., R], name: str | None) -> None:
        if not callable(function) or not (name or hasattr(function, "__qualname__")):
            problem = "must be a function; what has no name of its own needs name="
            raise InvalidArgument(argument="function", value=function, problem=problem)
        self.queue = queue
        self.function = function
        self.name = check_name(name or f"{_module(function)}.{function.__qualname__}")

    def __call__(self, *given: Any) -> R:
        return self.function(*given)

    def __repr__(self) -> str:
        return f"Job({self.name!r} of {self.queue.name!r})"

    @names_meant()
    def enqueue(self, tr: Transactor, value: V, **terms: Unpack[MessageTerms]) -> str:
        """Enqueue a message that calls the function with ``value``; returns its id.

        terms: as in ``Queue.enqueue``, which says what it raises.
        """
        terms["headers"] = self._headers(terms.get("headers"))
        return self.queue.enqueue(tr, value, **terms)

    @names_meant()
    def schedule(
        self, tr: Transactor, name: str, value: V, **terms: Unpack[ScheduleTerms]
    ) -> Schedule:
        """Make a schedule of the queue, whose messages call the function with ``value``.

        name, terms: as in ``Schedules.set``, which says what it does and raises.
        """
        from .schedules.schedules import Schedules  # most programs have none

        terms["headers"] = self._headers(terms.get("headers"))
        return Schedules(self.queue).set(tr, name, value, **terms)

    def _headers(self, given: Headers | None) -> Headers:
        """The headers of a message, which name the job. Raises ``InvalidArgument``."""
        headers = given or {}
        if JOB_HEADER in headers:
            raise InvalidArgument(argument="headers", value=JOB_HEADER, problem="the job sets it")
        return {**headers, JOB_HEADER: self.name}


def _module(function: Callable[..., object]) -> str:
    """The name by which others import the module of a function, also if it is run as a program."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    # A worker imports the module by this name, while the program that enqueues may have run it as
    # ``__main__``.
    return spec.name if spec is not None else Path(file or "__main__").stem
