"""Errors that lead: what Spark shows of an error of ours is the error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from ...errors import QueueError

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def leading() -> Iterator[None]:
    """Let Spark show an error of ours without the traceback of the process where it was raised.

    Decorates what Spark calls. Spark formats an error in that process, as this variable says, and
    then ends the process. Of errors that are not ours the traceback is what matters.
    """
    try:
        yield
    except QueueError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def all_leading(read: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """``leading`` for generators."""

    @wraps(read)
    def leads(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        with leading():
            yield from read(*args, **kwargs)

    return leads
