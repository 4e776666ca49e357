"""A Spark query that takes messages of a queue, and what it does, as histories have it.

Several processes belong to it: the driver, Java, and the Python in which the reader runs. The
nemesis kills the driver; the others go on for a moment, until they notice, and meanwhile the next
driver starts with the same checkpoint. So what a dead driver has left must be fenced.

What the reader does is written down where it does it. A batch that the run before has planned is
not told again: that run may have told of it, or may have been killed before it could.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fdbqueue.spark
from fdbqueue import Message, fdb
from fdbqueue.errors import QueueError
from fdbqueue.spark.source import consume_stream
from fdbqueue.spark.source.source import FdbQueueSource

from .actors import Actor, row
from .history import Recorder
from .place import STREAMED, Job
from .planned import CONSUMER, messages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = 200
SURVIVED = ("PlanTaken", "StoreFull")
"""What may end the query in a run, and lets it start again: a driver that was killed has come by
once more, or the disk was full."""


class Streaming(Actor):
    """Takes messages by a Spark query, and writes their effects batch by batch, each once."""

    def run(self) -> None:
        """Go on until told to stop."""
        spark = fdbqueue.spark.local(f"chaos-{self.who}", master="local[2]", short=True)
        spark.dataSource.register(ToldSource)
        while not self.stopped:
            try:
                self._query(spark)
            except Exception as error:
                if not any(text in str(error) for text in SURVIVED):
                    raise
                self.recorder.note(self.who, "ended", STREAMED, error=str(error)[-300:])

    def _query(self, spark: Any) -> None:
        query = (
            spark.readStream.format("told")
            .options(**fdbqueue.spark.options(self.db, self.queue(STREAMED)))
            .option("mode", "consume")
            .option("consumer", CONSUMER)
            .option("maxMessagesPerBatch", BATCH)
            .option("job", self.job.to_text())
            .load()
            .writeStream.foreachBatch(self._effects)
            .option("checkpointLocation", str(Path(self.job.stop).parent / "checkpoint"))
            .start()
        )
        while not self.stopped and query.isActive:
            time.sleep(0.1)
        if self.stopped:
            query.stop()
        query.awaitTermination()

    def _effects(self, rows: DataFrame, batch: int) -> None:
        """The sink: the effects of a batch and its number in one transaction."""
        tags = [bytes(each.payload).decode() for each in rows.select("payload").collect()]

        @fdb.transactional
        def write(tr: fdb.Transaction) -> None:
            if self.place.marked(tr, CONSUMER, batch) is None:
                for tag in tags:
                    self.place.effect(tr, STREAMED, tag)
                self.place.mark(tr, CONSUMER, batch, len(tags))

        write(self.db)


class ToldSource(FdbQueueSource):
    """``format("told")``: the data source, whose reader tells what it does."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "told"

    def schema(self) -> str:
        """The columns that the run needs."""
        return "payload BINARY"

    def streamReader(self, schema: Any) -> ToldReader:
        """For ``spark.readStream``."""
        options = {name: text for name, text in self.options.items() if name != "job"}
        reader = ToldReader.of(options, schema)
        reader.job = Job.parse(self.options["job"])
        return reader


class ToldReader(consume_stream.ConsumeReader):
    """Tells what is taken and what is acknowledged, before and after."""

    job: Job
    _owns = False

    @cached_property
    def told(self) -> Recorder:
        """The history of this process."""
        path = Path(self.job.history)
        return Recorder(path.with_name(f"{path.stem}-{os.getpid()}.jsonl"))

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Tell of the batch that is acknowledged, and of the next one."""
        self._own()
        who, queue = self._who, self._queue.open()[1]
        known = queue.plans.show(self._db(), CONSUMER)
        inherited = any(plan.batch > start["batch"] for plan in known.plans)
        with self._acknowledging(start):
            n = self.told.begin(who, "receive", STREAMED, wait=0.0, limit=BATCH)
            try:
                end = super().latestOffset(start, limit)
            except (QueueError, fdb.FDBError) as error:
                self.told.end(who, n, error=f"{type(error).__name__}: {error}")
                raise
            rows = [row(each) for each in self._messages(end)] if end != start else []
            if inherited:
                self.told.end(who, n, result=rows, error="told by the run before, or never")
            else:
                self.told.end(who, n, result=rows)
        return end

    def commit(self, end: Any) -> None:
        """Tell of the batch that is acknowledged."""
        self._own()
        with self._acknowledging(end):
            super().commit(end)

    @property
    def _who(self) -> str:
        return f"{self.job.name}.{os.getpid()}"

    def _own(self) -> None:
        """Take the plans over before anything is told: then nobody else moves them."""
        if not self._owns:
            self._planner().acknowledge(self._db(), self._planner().begin(self._db()))
            self._owns = True

    @contextmanager
    def _acknowledging(self, offset: Any) -> Iterator[None]:
        queue = self._queue.open()[1]
        if offset["batch"] <= queue.plans.show(self._db(), CONSUMER).acknowledged:
            yield
            return
        tags = [each.payload.decode() for each in self._messages(offset)]
        n = self.told.begin(self._who, "effect", STREAMED, tags=tags)
        try:
            yield
        except (QueueError, fdb.FDBError) as error:
            self.told.end(self._who, n, error=f"{type(error).__name__}: {error}")
            raise
        self.told.end(self._who, n)

    def _messages(self, offset: Any) -> list[Message]:
        """A batch that is planned."""
        return messages_of(self._db(), self._planner(), self._mark(offset))
