"""How fast the data source on Spark is, beside one that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ... import spark as pipeline
from . import measure, spark_throughput
from .spark_setup import Ground, Rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BROWSE_RATE = 60_000

Group = Callable[[Ground], Iterator[Rate]]


def drop(frame: DataFrame) -> None:
    """Read a table to its end, and do nothing with it."""
    frame.write.format("noop").mode("overwrite").save()


def browse(ground: Ground) -> Iterator[Rate]:
    """A batch read of all ready messages."""
    yield ground.measured("batch read of constants", lambda: drop(ground.constants()))
    queue = ground.filled("browsed")
    name = "batch read of ready messages"
    yield ground.measured(name, lambda: drop(ground.read(queue)), BROWSE_RATE)


GROUPS: dict[str, Group] = {
    "browse": browse,
    "write": spark_throughput.write,
    "consume": spark_throughput.consume,
}


def run(
    rows: int, size: int, runs: int, groups: Sequence[str] | None, master: str
) -> Iterator[Rate]:
    """Measure; the figures come as they are known. What is written is removed in the end.

    Raises ``MissingPackage`` and ``MissingJava``.
    """
    session = pipeline.local("fdbqueue-bench", master=master)
    from .constant_source import Constants

    session.dataSource.register(Constants)
    try:
        with measure.scratch() as space:
            ground = Ground(session, *measure.opened(space), rows, size, runs)
            for group in groups or GROUPS:
                yield from GROUPS[group](ground)
    finally:
        session.stop()
