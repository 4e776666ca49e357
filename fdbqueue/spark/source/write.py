"""Writes of tables and streams into a queue, each row once: see ``Queue.streams``.

Tasks stage rows, and the driver publishes them. A task's commit message only names its attempt, so
it does not matter how often Spark runs a task, or the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa
from msgspec import Struct
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ...errors import InvalidInput, InvalidOptions, SinkUnfinished
from ...queue.streams.sinks import ANONYMOUS_DAYS
from ...schema.streams import SinkState, StagingAttempt
from ..stores import SharedQueue
from . import encoding
from .encoding import Encoder
from .leading import leading
from .settings import SPARKS, WRITE, Location, Option, UserOptions

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties of the jobs of a streaming query."""
_SAMPLES = 5
"""Most invalid rows that a task describes."""
CommitMessages = Sequence[WriterCommitMessage | None]


class WriteSettings(Struct, frozen=True):
    """The options of a write. KNOWN: all that may be given."""

    KNOWN: ClassVar[Mapping[str, Option]] = {**WRITE, **SPARKS}
    location: Location
    id: str | None
    batch: int | None
    room: int
    bad_rows: str
    content_type: str | None
    summary: str | None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> WriteSettings:
        """Parse and check. Raises ``InvalidOptions``, ``InvalidArgument``."""
        options = UserOptions(texts, cls.KNOWN)
        return cls(Location.of(options), **options.fields(cls))


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged. It left out ``rejected`` rows; ``samples`` describe some of them."""

    sink: str
    batch: int
    attempt: StagingAttempt
    rejected: int = 0
    samples: tuple[str, ...] = ()


@dataclass(eq=False)
class _Writer:
    """The common part of both writers. Plain values only: Spark pickles it to its tasks."""

    _settings: WriteSettings
    _schema: StructType
    _queue: SharedQueue

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> Self:
        """A writer whose options, schema and queue are checked.

        Raises ``InvalidOptions``, ``InvalidSchema``, ``QueueNotFound``, and a ``StoreError`` if
        there is no store.
        """
        if overwrite:
            raise InvalidOptions(
                option="mode",
                problem='rows are added to a queue: write with mode("append"), and a stream with '
                'outputMode("append") or outputMode("update")',
            )
        settings = WriteSettings.of(options)
        encoding.check(schema)
        queue = SharedQueue.find(settings.location)
        encoding.content_type(schema, settings.content_type, queue.serializer)
        return cls(settings, schema, queue)

    def stage(self, sink: str, batch: int, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task. Raises ``InvalidInput``."""
        db, queue = self._queue.open()
        given = self._settings.content_type
        encoder = Encoder(self._schema, given)
        content_type = encoding.content_type(self._schema, given, self._queue.serializer)
        stager = queue.streams.sink(sink).stage(db, batch, content_type)
        invalid = _InvalidRows(self._settings.bad_rows == "skip")
        try:
            for some in rows:
                if not stager.fixed:  # else read them all the same, as Spark expects
                    encoder.stage(some, stager, invalid.add)
            attempt = stager.finish()
        except BaseException:
            # Rows of a task that failed would stay for a week: its retry stages them again under
            # another name.
            stager.discard()
            raise
        return Staged(sink, batch, attempt, invalid.count, tuple(invalid.samples))

    def publish(self, messages: CommitMessages) -> SinkState:
        """Publish what the tasks of a batch have staged, in the order of the partitions.

        Of a write without tasks, nothing is noted.
        """
        db, queue = self._queue.open()
        staged = [each for each in messages if isinstance(each, Staged)]
        if not staged:
            return SinkState()
        sink, attempts = queue.streams.sink(staged[0].sink), [each.attempt for each in staged]
        # In the order of the partitions, so that a sorted table arrives in its order.
        return sink.publish(db, staged[0].batch, attempts, room=self._settings.room)

    def abort(self, messages: CommitMessages, batchId: int = 0) -> None:
        """Remove what tasks have staged, unless it is being published."""
        db, queue = self._queue.open()
        for each in messages:
            if isinstance(each, Staged):
                sink = queue.streams.sink(each.sink)
                sink.discard(db, each.batch, [each.attempt])


@dataclass(eq=False)
class BatchWriter(_Writer, DataSourceArrowWriter):
    """For ``DataFrame.write``."""

    def __post_init__(self) -> None:
        # Named on the driver, so that it is the same in every task.
        _, queue = self._queue.open()
        self._sink = queue.streams.sink(self._settings.id).name

    @leading()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task. Raises ``InvalidInput``."""
        given = self._settings
        if given.batch is None:
            return self.stage(self._sink, 0, iterator)
        query = _property(_QUERY)
        if not query and not given.id:
            raise InvalidOptions(
                option="batch",
                problem="set the option id, too: Spark does not tell the query (outside of "
                "a foreachBatch, and with Spark Connect)",
            )
        # Named by the query: a batch that Spark repeats finds its sink, and publishes nothing
        # twice.
        name = f"query:{query} {given.id or ''}".strip() if query else given.id or ""
        return self.stage(name, given.batch, iterator)

    @leading()
    def commit(self, messages: CommitMessages) -> None:
        """Publish what the tasks have staged. Raises what ``Sink.publish`` raises."""
        try:
            state = self.publish(messages)
        except SinkUnfinished as error:
            # Spark itself repeats a numbered batch: nobody has to resume it by hand.
            if self._settings.batch is not None:
                raise
            again = (
                f"{error.__dict__['problem']}. To resume, write the same rows again with the "
                f"option id set to {self._sink!r}, within {ANONYMOUS_DAYS} days"
            )
            raise SinkUnfinished(**{**error.__dict__, "problem": again}) from None
        if self._settings.summary:
            _summarize(self._settings.summary, state, messages)


@dataclass(eq=False)
class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """For ``DataFrame.writeStream``.

    The sink is named by the query's id, which is in its checkpoint, so that the next run of the
    query continues with the same batches.
    """

    def __post_init__(self) -> None:
        for name in ("id", "batch"):
            if getattr(self._settings, name) is not None:
                problem = "a streaming query has it in its checkpoint"
                raise InvalidOptions(option=name, problem=problem)

    @leading()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task. Raises ``InvalidInput``."""
        return self.stage(f"query:{_property(_QUERY)}", int(_property(_BATCH)), iterator)

    @leading()
    def commit(self, messages: CommitMessages, batchId: int) -> None:
        """Publish a batch, unless it is published. Raises what ``Sink.publish`` raises."""
        self.publish(messages)


def _property(name: str) -> str:
    """A property of the job of this task; empty if it has none."""
    context = TaskContext.get()
    assert context is not None, "this runs in tasks"
    return context.getLocalProperty(name) or ""


class _InvalidRows:
    """Skips invalid rows and keeps samples of them, or raises ``InvalidInput``."""

    def __init__(self, skip: bool) -> None:
        self.count = 0
        self.samples: list[str] = []
        self._skip = skip

    def add(self, row: int, problem: str) -> None:
        """One more."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        error = InvalidInput(
            row=row, partition=partition, problem=f"row {row:,} of partition {partition}: {problem}"
        )
        if not self._skip:
            raise error
        self.count += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(str(error))


def _summarize(path: str, state: SinkState, messages: CommitMessages) -> None:
    """Write the result of a batch write to a file."""
    staged = [each for each in messages if isinstance(each, Staged)]
    summary = {
        "rows": state.rows,
        "new": state.new,
        "size": sum(each.attempt.size for each in staged),
        "rejected": sum(each.rejected for each in staged),
        "samples": [text for each in staged for text in each.samples][:_SAMPLES],
    }
    Path(path).write_text(json.dumps(summary), "utf-8")
