"""The setup of the Spark benchmarks: a session, a store, and how a run is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar, Unpack

from fdbqueue import spark as pipeline
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb
from fdbqueue.values.model import NewMessage
from fdbqueue.values.options import Options

from . import process_tree
from .declare import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

BATCH = 2_000
LEVELS = 10


@dataclass(frozen=True)
class Setup:
    """A session, a store, the root of the queues, and how much to measure.

    rows, size: messages in a queue, and the bytes of each payload.
    runs: runs that count; several runs are preceded by a warm-up.
    """

    spark: SparkSession
    db: fdb.Database
    root: fdb.Subspace
    rows: int
    size: int
    runs: int

    def queue(self, name: str, **options: Unpack[Options]) -> Queue:
        """Create a queue."""
        options.setdefault("levels", LEVELS)
        return Queue.create(self.db, name, root=self.root, **options)

    def filled(self, name: str, **options: Unpack[Options]) -> Queue:
        """Create a queue with all rows as messages."""
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
        """A queue as a table."""
        named = {**pipeline.options(self.db, queue), **options}
        return self.spark.read.format("fdbqueue").options(**named).load()

    def constants(self) -> DataFrame:
        """A table of the same size and columns, from a data source that does nothing."""
        options = {"rows": str(self.rows), "size": str(self.size)}
        return self.spark.read.format("constants").options(**options).load()

    def measured(self, name: str, action: Callable[[], object], at_least: float = 0) -> Row:
        """Run an action that reads or writes all rows; returns the median of the runs.

        at_least: the bar in rows per second, if there is one.
        """

        def run(_: None) -> float:
            began = time.perf_counter()
            action()
            return self.rows / (time.perf_counter() - began)

        return self._median(name, lambda: None, run, at_least)

    def streamed(
        self, name: str, source: str, options: Callable[[], Mapping[str, str]], at_least: float = 0
    ) -> Row:
        """Read all rows as a stream and discard them; returns the median of the runs, each without
        its first micro-batch.

        options: makes the options of a run. at_least: as for ``measured``.
        """

        def run(given: Mapping[str, str]) -> float:
            with TemporaryDirectory(prefix="fdbqueue-bench-") as checkpoint:
                query = (
                    self.spark.readStream.format(source)
                    .options(**given)
                    .load()
                    .writeStream.format("noop")
                    .option("checkpointLocation", checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                done = [each for each in query.recentProgress if each.numInputRows][1:]
            seconds = sum(each.durationMs["triggerExecution"] for each in done) / 1000
            return sum(each.numInputRows for each in done) / seconds

        return self._median(name, options, run, at_least)

    def _median(
        self, name: str, prepare: Callable[[], T], run: Callable[[T], float], at_least: float
    ) -> Row:
        if self.runs > 1:
            run(prepare())
        rates, costs = [], []
        for _ in range(self.runs):
            given = prepare()
            spent = process_tree.cpu_seconds()
            rates.append(run(given))
            now = process_tree.cpu_seconds()
            if spent is not None and now is not None:
                costs.append((now - spent) / self.rows * 1e6)
        more = {"CPU µs/row": median(costs)} if costs else {}
        return Row(name, median(rates), "rows/s", at_least or None, more=more)
