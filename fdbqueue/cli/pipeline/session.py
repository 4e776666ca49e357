"""What the jobs of ``fdbq pipeline`` have in common: Spark, and how far it is."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from .. import terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fdbqueue.spark import Step

_MEGABYTE = 1_000_000


def start(job: str) -> tuple[ModuleType, Callable[[], SparkSession]]:
    """``fdbqueue.spark``, and what makes a session that says nothing: what fails is told in a
    line. The job calls it when it has checked its options."""
    from fdbqueue import spark

    def session() -> SparkSession:
        spark.check_java()
        terminal.note("starting Spark, which takes some seconds")
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        with _silent_children():
            return spark.local(
                f"fdbq pipeline {job}", short=True, config={"spark.log.level": "OFF"}
            )

    return spark, session


@contextmanager
def _silent_children() -> Iterator[None]:
    """Processes that are started meanwhile say nothing on standard error, as long as they live:
    Java warns of its own modules there, and Spark's Python shows where an error came from."""
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # it is closed, so nobody hears them
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


@contextmanager
def told(unit: str) -> Iterator[Callable[[Step], None]]:
    """A progress bar on standard error, and what tells it how far a job is."""
    with terminal.progress(unit, 1) as bar:

        def tell(step: Step) -> None:
            total = max(step.total, step.done) or None
            done = step.done if step.unit == unit else 0
            bar.update(bar.task_ids[0], total=total, completed=step.done, done=done)

        yield tell


def rate(rows: int, unit: str, size: int | None, seconds: float) -> str:
    """``1,000 rows of 2.0 MB in 3.1 s (323/s)``."""
    of = "" if size is None else f" of {size / _MEGABYTE:,.1f} MB"
    per_second = f" ({rows / seconds:,.0f}/s)" if seconds > 0 else ""
    return f"{terminal.count(rows, unit)}{of} in {seconds:.1f} s{per_second}"
