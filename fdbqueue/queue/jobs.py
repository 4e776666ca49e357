"""Jobs: functions that are called by messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from ..errors import InvalidArgument
from ..values.model import MessageTerms
from ..values.options import check_name
from .queue_base import Transactor

if TYPE_CHECKING:
    from .enqueue import Enqueuing

V = TypeVar("V")
R = TypeVar("R")

HEADER = "job"
"""The header of a message with the name of its job."""


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

    def enqueue(self, tr: Transactor, value: V, **terms: Unpack[MessageTerms]) -> str:
        """Enqueue a message that calls the function with ``value``; returns its id.

        terms: as in ``Queue.enqueue``, which says what it raises.
        """
        headers = terms.get("headers") or {}
        if HEADER in headers:
            raise InvalidArgument(argument="headers", value=HEADER, problem="the job sets it")
        terms["headers"] = {**headers, HEADER: self.name}
        return self.queue.enqueue(tr, value, **terms)


def _module(function: Callable[..., object]) -> str:
    """The name by which others import the module of a function, also if it is run as a program."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec is not None else Path(file or "__main__").stem
