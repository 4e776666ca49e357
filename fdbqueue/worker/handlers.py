"""The ways to write a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import InvalidArgument
from ..values.model import Message
from ..values.records import record

MAX_BATCH = 1_000


@record
class Handler:
    """A function that handles messages, and how to call it.

    transactional: it takes the transaction first, and its writes commit with the acknowledgement.
        It must have no other effect, since it runs again after a conflict.
    batch: the most messages of the list that it takes; None if it takes one message.
    """

    function: Callable[..., Any]
    transactional: bool
    batch: int | None = None

    def call(self, messages: list[Message], *tr: Any) -> None:
        """Call the function."""
        self.function(*tr, messages if self.batch else messages[0])

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        transactional: bool | None = None,
        batch: int | None = None,
    ) -> Handler:
        """A handler, checked. Where ``transactional`` is None, a function with two parameters is:
        ``(tr, message)``; with one, ``(message)``, it is not. Raises ``InvalidArgument``."""
        if not callable(function):
            raise InvalidArgument(argument="handler", value=function, problem="must be callable")
        if inspect.iscoroutinefunction(function):
            raise InvalidArgument(
                argument="handler", value=function, problem="must not be a coroutine function"
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
        return cls(function, transactional, batch)


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True
