"""The stream that takes messages: every batch is a plan, which is acknowledged when it is done.

The offset names a batch, and the batch has the same messages until it is acknowledged, so whatever
Spark does again after a crash, it does with the same rows. A batch is done when the one behind it
is asked for, or committed; that comes after the sink has committed it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...errors import CorruptData, PlanLost
from ...queue.bulk.planner import Mark, Piece, Planner
from ...store.binding import fdb
from .streams import Offset, StreamReader, prepare


@dataclass
class ConsumePartition(InputPartition):
    """A part of a plan."""

    piece: Piece


class ConsumeReader(StreamReader, SupportsTriggerAvailableNow):
    """Reads a queue by plans. One object of the driver lives as long as the query runs."""

    _run: Planner | None = None
    _ends: dict[int, int] | None = None

    def initialOffset(self) -> Offset:
        """Behind what the consumer has acknowledged: that stays until the first batch is done."""
        return self._offset(self._planner().begin(self._db()))

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what there is now."""
        self._ends = self._planner().ends(self._db())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Acknowledge what is done, and plan the next batch; ``start`` where nothing is ready."""
        run, db, since = self._planner(), self._db(), self._mark(start)
        ends = self._ends
        if ends is None and isinstance(limit, ReadAllAvailable):
            ends = run.ends(db)
        limits = self.limits(limit, ends)
        until = run.next(db, since, limits.messages, limits.size, limits.ends)
        return start if until == since else self._offset(until)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch."""
        parts = self._settings.partitions or os.cpu_count() or 1
        since, until = self._mark(start), self._mark(end)
        pieces = self._planner().pieces(self._db(), since, until, parts)
        return [ConsumePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in the order of delivery."""
        assert isinstance(partition, ConsumePartition)
        db, queue = self._seen.open()
        count = 0
        for span in partition.piece.spans:
            for batch in self.rows(db, queue, "planned", queue._keys.planned_between(*span)):
                count += len(batch)
                yield batch
        if count != partition.piece.messages:
            raise PlanLost(
                queue=queue.name,
                consumer=self._settings.consumer,
                batch=partition.piece.batch,
                problem="it was given back, or another run has acknowledged it",
            )

    def commit(self, end: Offset) -> None:
        """The sink has all batches up to this one."""
        self._planner().acknowledge(self._db(), self._mark(end))

    def _planner(self) -> Planner:
        if self._run is None:
            _, queue = self._seen.open()
            self._run = queue.plans.planner(
                self._settings.consumer, lenient=not self._settings.strict
            )
        return self._run

    def _db(self) -> fdb.Database:
        return self._seen.open()[0]

    def _offset(self, mark: Mark) -> Offset:
        return {
            "mode": self._settings.mode,
            "queue": self._settings.place.queue,
            "identity": self._seen.identity,
            "consumer": self._settings.consumer,
            **mark._asdict(),
        }

    def _mark(self, offset: Offset) -> Mark:
        match self.belongs(offset):
            case {"line": str(line), "batch": int(batch)}:
                return Mark(line, batch)
        raise CorruptData(what="the checkpoint", problem="its offset names no batch")


def reader(options: Mapping[str, str], schema: StructType) -> ConsumeReader:
    """A reader; see ``prepare``."""
    return ConsumeReader(*prepare(options, schema))
