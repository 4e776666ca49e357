"""Errors that lead: what Spark shows of an error of ours is the error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import QueueError


@contextmanager
def leading() -> Iterator[None]:
    """Let Spark show an error of ours without the traceback of the process where it was raised.

    Decorates what Spark calls, or is around it. Spark formats an error in that process, as this
    variable says, and then ends the process. Of errors that are not ours the traceback is what
    matters.
    """
    try:
        yield
    except QueueError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
