"""The Spark session and the progress bar of the jobs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fdbqueue.spark import Step

_MEGABYTE = 1_000_000


@contextmanager
def job(name: str, unit: str) -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """``fdbqueue.spark``, and the arguments ``spark`` and ``progress`` for one of its jobs.

    The job starts the silent session once it has checked its options. A progress bar counts in
    ``unit``.
    """
    from fdbqueue import spark

    def start() -> SparkSession:
        spark.check_java()
        terminal.note("starting Spark, which takes a few seconds")
        # It logs a traceback for each error that is caught here and told in one line.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        with _silent_children():
            return spark.local(f"fdbq stream {name}", short=True, config={"spark.log.level": "OFF"})

    with terminal.progress(unit, 1) as update:

        def report(step: Step) -> None:
            total = max(step.total, step.done) or None
            update(step.done if step.unit == unit else 0, completed=step.done, total=total)

        yield spark, {"spark": start, "progress": report}


@contextmanager
def _silent_children() -> Iterator[None]:
    """Discard the standard error of processes that are started in this block.

    Java prints warnings about its own modules there, and Spark's Python prints tracebacks.
    """
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # it is closed already
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def rate(rows: int, unit: str, size: int | None, seconds: float) -> str:
    """``1,000 rows of 2.0 MB in 3.1 s (323/s)``."""
    of = "" if size is None else f" of {size / _MEGABYTE:,.1f} MB"
    per_second = f" ({rows / seconds:,.0f}/s)" if seconds > 0 else ""
    return f"{terminal.count(rows, unit)}{of} in {seconds:.1f} s{per_second}"
