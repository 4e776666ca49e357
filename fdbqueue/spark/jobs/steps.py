"""The progress and the errors of jobs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct
from pyspark.errors import AnalysisException, ParseException, PySparkException

from ... import errors
from ...errors import InvalidInput, JobFailed, QueueError

try:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
except ImportError:  # A client of Spark Connect needs no Java.
    Py4JError = PySparkException

_REPORT_SECONDS = 0.25
_OUR_ERROR = re.compile(r"fdbqueue\.errors\.(\w+): (.*)")


class Step(Struct, frozen=True):
    """The progress of a job: what it is doing, and how much of it is done. 0 of 0 is unknown."""

    doing: str
    done: int
    total: int
    unit: str


OnProgress = Callable[[Step], object]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Reduce Spark's errors to one line that says what is wrong.

    Raises ``InvalidInput`` for what the caller can correct, else ``JobFailed``.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _plain(error) from None


def _plain(error: Exception) -> QueueError:
    text = str(error)
    found = _OUR_ERROR.search(text)
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
def reporting(report: Callable[[], object] | None) -> Iterator[None]:
    """Report progress again and again while the block runs."""
    if report is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_REPORT_SECONDS):
            # Progress is worth no error: there will be another report.
            with suppress(Exception):
                report()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextmanager
def steps(job: str, progress: OnProgress | None) -> Iterator[Callable[[str], None]]:
    """Run a job that names its steps by the function yielded; errors as in ``plain_errors``."""

    def report(doing: str) -> None:
        if progress is not None:
            progress(Step(doing, 0, 0, "steps"))

    report(job)
    with plain_errors():
        yield report
