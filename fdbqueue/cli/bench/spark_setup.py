"""What the measurements of the pipeline stand on: a session, a store, and what is told of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any, Unpack

from ... import spark as pipeline
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.model import NewMessage
from ...values.options import Options
from ...values.records import record
from . import process_tree
from .bars import Bar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 2_000
LEVELS = 10


@record
class Rate:
    """One thing that was measured; ``figure`` is rows a second, or what its name says.

    cpu_us: microseconds of processor time for a row, in all processes; None if nobody tells.
    """

    name: str
    figure: float
    cpu_us: float | None = None
    bar: Bar | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@record
class Ground:
    """What all groups measure on: a session, a store, a subspace for queues, how many
    messages of how many bytes, and how many runs count; one more goes before several."""

    spark: SparkSession
    db: fdb.Database
    root: fdb.Subspace
    rows: int
    size: int
    runs: int

    def queue(self, name: str, **options: Unpack[Options]) -> Queue:
        """A fresh queue."""
        options.setdefault("levels", LEVELS)
        return Queue.create(self.db, name, root=self.root, **options)

    def filled(self, name: str, **options: Unpack[Options]) -> Queue:
        """A fresh queue with all rows as messages."""
        queue = self.queue(name, **options)
        payload = bytes(self.size)
        for begin in range(0, self.rows, BATCH):
            numbers = range(begin, min(begin + BATCH, self.rows))
            queue.enqueue_many(
                self.db,
                [NewMessage(payload, priority=n % LEVELS, headers={"n": n}) for n in numbers],
            )
        return queue

    def read(self, queue: Queue, **options: str) -> DataFrame:
        """A table of a queue."""
        named = {**pipeline.options(self.db, queue), **options}
        return self.spark.read.format("fdbqueue").options(**named).load()

    def constants(self) -> DataFrame:
        """As many rows of the same columns, from a data source that has nothing to do."""
        options = {"rows": str(self.rows), "size": str(self.size)}
        return self.spark.read.format("constants").options(**options).load()

    def measured(self, name: str, action: Callable[[], object], at_least: float = 0) -> Rate:
        """The median of the runs of what goes through all rows.

        at_least: the bar, in rows a second, if there is one.
        """
        if self.runs > 1:
            action()
        rates, costs = [], []
        for _ in range(self.runs):
            spent, began = process_tree.cpu_seconds(), time.perf_counter()
            action()
            rates.append(self.rows / (time.perf_counter() - began))
            now = process_tree.cpu_seconds()
            if spent is not None and now is not None:
                costs.append((now - spent) / self.rows * 1e6)
        rate = median(rates)
        bar = Bar(f"{name}: rows/s", rate, at_least, False) if at_least else None
        return Rate(name, rate, median(costs) if costs else None, bar)
