"""What the jobs have in common: how they fail, and how far they are."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from ... import errors
from ...errors import InvalidInput, JobFailed, QueueError
from ...values.records import record

_LOOK_SECONDS = 0.25
_OURS = re.compile(r"fdbqueue\.errors\.(\w+): (.*)")


@record
class Step:
    """How far a job is: what it does, and how many of how many; 0 of 0 where that is not known."""

    doing: str
    done: int
    total: int
    unit: str


Tell = Callable[[Step], object]


@contextmanager
def plainly() -> Iterator[None]:
    """Errors that come out of Spark, with what is wrong and without the way that they took.

    Raises ``InvalidInput`` for what the caller can mend, else ``JobFailed``.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _plain(error) from error


def _plain(error: Exception) -> QueueError:
    text = str(error)
    found = _OURS.search(text)
    if found is not None:
        kind = getattr(errors, found[1], QueueError)
        if issubclass(kind, InvalidInput):
            return InvalidInput(problem=found[2].strip())
        return JobFailed(problem=found[2].strip())
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    if isinstance(error, AnalysisException | ParseException):
        return InvalidInput(problem=re.sub(r"^\[([\w.]+)\] ", "", first))
    return JobFailed(problem=first)


@contextmanager
def watched(tell_now: Callable[[], object] | None) -> Iterator[None]:
    """Tell how far it is, again and again, while something runs."""
    if tell_now is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            # What cannot be seen now is seen the next time.
            with suppress(Exception):
                tell_now()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextmanager
def stepped(spark: SparkSession, job: str, tell: Tell | None) -> Iterator[Callable[[str], None]]:
    """Tell how far a job is whose steps are said one after another; errors as ``plainly``."""
    group, doing = f"{job} {uuid.uuid4().hex}", job
    spark.sparkContext.setJobGroup(group, job)
    one_at_a_time = threading.Lock()

    def tell_now(step: str | None = None) -> None:
        nonlocal doing
        # Else what was seen in the step before may be told after this one has begun.
        with one_at_a_time:
            doing = step or doing
            if tell is not None:
                tell(Step(doing, *tasks(spark, group), "tasks"))

    with watched(tell_now if tell is not None else None), plainly():
        yield tell_now


def tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """How many tasks of a group of Spark's jobs are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                done += found.numCompletedTasks
                total += found.numTasks
    return done, total
