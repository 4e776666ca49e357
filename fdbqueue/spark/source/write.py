"""Writing rows of tables and streams into a queue, each once: see ``fdbqueue.queue.bulk.sinks``.

The tasks stage what they have, the driver publishes it. So it does not matter how often Spark runs
a task, or the driver: what a task says in its commit message is only which attempt it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ...errors import InvalidOptions, InvalidRow, SinkUnfinished
from ...queue.bulk.sinks import ANONYMOUS_DAYS, TIMEOUT_SECONDS, Sink, anonymous
from ...schema.codec.sinks import Attempt, SinkState
from ...values.model import BYTES
from ...values.options import check_name
from ...values.records import record
from ...values.serializers import MAX_CONTENT_TYPE
from .. import stores
from ..stores import Seen
from .encoding import Encoder
from .settings import SPARKS, WRITE, Given, Place

MAX_TIMEOUT_SECONDS = 7 * 24 * 3600
_SAMPLES = 5
"""How many of the rows that are left out a task tells of."""


@record
class Settings:
    """What a write is told by its options. ``sink`` is empty where no id is given; ``summary`` is
    a file of the driver, in which a batch write tells what it did."""

    place: Place
    sink: str
    timeout: int
    skip: bool
    content_type: str
    summary: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Checked; raises ``InvalidOptions``, ``InvalidName``."""
        given = Given(options, (*WRITE, *SPARKS))
        name = given.text("id")
        return cls(
            Place.of(given),
            "" if name is None else check_name(name),
            given.whole("timeout", int(TIMEOUT_SECONDS), 0, MAX_TIMEOUT_SECONDS),
            given.choice("badRows", ("fail", "skip"), "fail") == "skip",
            _content_type(given),
            given.text("summary") or "",
        )


def _content_type(given: Given) -> str:
    text = given.text("contentType") or BYTES
    if len(text) > MAX_CONTENT_TYPE or not text.isprintable():
        raise InvalidOptions(
            option="contentType", problem=f"it has at most {MAX_CONTENT_TYPE} printable characters"
        )
    return text


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged, and where; ``rejected`` rows were left out, such as ``samples``."""

    sink: str
    batch: int
    attempt: tuple[bytes, int, int, int, str]
    rejected: int = 0
    samples: tuple[str, ...] = ()


class BatchWriter(DataSourceArrowWriter):
    """For ``DataFrame.write``. Small and plain: it is pickled to where it writes."""

    def __init__(self, settings: Settings, schema: StructType, seen: Seen) -> None:
        self._settings = settings
        self._schema = schema
        self._seen = seen
        # Named on the driver, and the same in every task.
        self._sink = settings.sink or anonymous(time.time_ns() // 1_000_000)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task. Raises ``InvalidRow`` for one that is no message."""
        return stage(self._settings, self._schema, self._seen, self._sink, 0, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged. Raises what ``Sink.publish`` does."""
        try:
            state = publish(self._settings, self._seen, self._sink, 0, messages)
        except SinkUnfinished as error:
            again = (
                f"{error.__dict__['problem']}. To go on, write the same rows again with the "
                f"option id at {self._sink!r}, within {ANONYMOUS_DAYS} days"
            )
            raise SinkUnfinished(**{**error.__dict__, "problem": again}) from error
        if self._settings.summary:
            _tell(self._settings.summary, state, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged, unless it is being published."""
        discard(self._seen, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """For ``DataFrame.writeStream``. The sink is named by the query, whose id is in its checkpoint:
    so its next run goes on with the same batches."""

    def __init__(self, settings: Settings, schema: StructType, seen: Seen) -> None:
        self._settings = settings
        self._schema = schema
        self._seen = seen

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task. Raises ``InvalidRow`` for one that is no message."""
        context = TaskContext.get()
        assert context is not None, "this runs in tasks"
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query, "a streaming query has an id"
        assert batch, "a streaming query counts its batches"
        return stage(
            self._settings, self._schema, self._seen, f"query:{query}", int(batch), iterator
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a batch; nothing where that has happened. Raises what ``Sink.publish`` does."""
        sink = next((each.sink for each in messages if isinstance(each, Staged)), None)
        if sink is not None:
            publish(self._settings, self._seen, sink, batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks have staged, unless it is being published."""
        discard(self._seen, messages)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """A writer, after everything was checked that can be checked on the driver.

    Raises ``InvalidOptions``, ``InvalidSchema``, ``QueueNotFound``, and a ``StoreError`` where the
    store is not there.
    """
    if overwrite:
        raise InvalidOptions(
            option="mode", problem='rows are added to a queue: write with mode("append")'
        )
    settings, seen = _checked(options, schema)
    return BatchWriter(settings, schema, seen)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """As ``batch_writer``."""
    if overwrite:
        raise InvalidOptions(
            option="outputMode", problem='rows are added to a queue: use "append" or "update"'
        )
    settings, seen = _checked(options, schema)
    if settings.sink:
        raise InvalidOptions(option="id", problem="a streaming query has one in its checkpoint")
    return StreamWriter(settings, schema, seen)


def _checked(options: Mapping[str, str], schema: StructType) -> tuple[Settings, Seen]:
    settings = Settings.of(options)
    Encoder(schema)
    return settings, stores.look(settings.place)


# -- on the executors -------------------------------------------------------------------------


def stage(
    settings: Settings,
    schema: StructType,
    seen: Seen,
    sink: str,
    batch: int,
    iterator: Iterable[pa.RecordBatch],
) -> Staged:
    """Stage the rows of one task. Raises ``InvalidRow``."""
    db, queue = seen.open()
    encoder = Encoder(schema)
    content_type = encoder.content_type(settings.content_type)
    stager = Sink(queue, sink).stage(db, batch, content_type)
    bad = _Bad(settings.skip)
    try:
        for rows in iterator:
            if not stager.fixed:  # else they are only read, which Spark expects
                encoder.stage(rows, stager, bad.take)
        attempt = stager.finish()
    except BaseException:
        stager.discard()
        raise
    return Staged(sink, batch, (*attempt,), bad.count, tuple(bad.samples))


class _Bad:
    """What to do with rows that are no messages."""

    def __init__(self, skip: bool) -> None:
        self.count = 0
        self.samples: list[str] = []
        self._skip = skip

    def take(self, row: int, problem: str) -> None:
        """One more."""
        context = TaskContext.get()
        error = InvalidRow(
            row=row, partition=context.partitionId() if context else 0, problem=problem
        )
        if not self._skip:
            raise error
        self.count += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(str(error))


# -- on the driver ----------------------------------------------------------------------------


def publish(
    settings: Settings,
    seen: Seen,
    sink: str,
    batch: int,
    messages: Sequence[WriterCommitMessage | None],
) -> SinkState:
    """Publish what the tasks of a batch have staged, in the order of the partitions; returns how
    far the sink has come."""
    db, queue = seen.open()
    attempts = [Attempt(*each.attempt) for each in messages if isinstance(each, Staged)]
    return Sink(queue, sink).publish(db, batch, attempts, timeout=settings.timeout)


def _tell(path: str, state: SinkState, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Write down what a batch write did."""
    staged = [each for each in messages if isinstance(each, Staged)]
    told = {
        "rows": state.rows,
        "new": state.new,
        "size": sum(Attempt(*each.attempt).size for each in staged),
        "rejected": sum(each.rejected for each in staged),
        "samples": [text for each in staged for text in each.samples][:_SAMPLES],
    }
    Path(path).write_text(json.dumps(told), "utf-8")


def discard(seen: Seen, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Remove what tasks have staged."""
    db, queue = seen.open()
    for each in messages:
        if isinstance(each, Staged):
            Sink(queue, each.sink).discard(db, each.batch, [Attempt(*each.attempt)])
