"""The stream that takes messages: each batch is a plan, acknowledged when it is done.

The offset names a batch, and a batch keeps its messages until it is acknowledged, so a
batch that Spark repeats after a crash has the same rows. A batch is done when Spark asks for the
next one or commits it; either comes after the sink has committed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ...errors import BatchLost, CorruptData
from ...messages import run
from ...queue.streams.planner import Mark, Piece, Planner
from ...store.binding import fdb
from . import tables
from .leading import all_leading, leading
from .rows import Decoder
from .streams import Offset, StreamReader


@dataclass
class ConsumePartition(InputPartition):
    """A part of a plan."""

    piece: Piece


class ConsumeReader(StreamReader):
    """Reads a queue by plans. One object in the driver lives as long as the query runs."""

    _run: Planner | None = None

    @leading()
    def initialOffset(self) -> Offset:
        """Behind what the consumer has acknowledged. Stays the same until a batch is done."""
        return self._offset(self._planner().begin(self._db()))

    def ends(self) -> dict[int, int]:
        """How far each level reaches, with what has become due by now."""
        return self._planner().ends(self._db())

    @leading()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Acknowledge what is done, and plan the next batch; ``start`` if nothing is ready."""
        since, limits = self._mark(start), self.limits(limit)
        if self._settings.least > 1:
            db, queue = self._queue.open()
            self._planner().acknowledge(db, since)
            if self.waits(queue.depth(db).ready):
                return start
        until = self._planner().next(self._db(), since, limits.messages, limits.size, limits.ends)
        return start if until == since else self._offset(until)

    @leading()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch."""
        pieces = self._planner().pieces(
            self._db(), self._mark(start), self._mark(end), self.partitions_at_most
        )
        return [ConsumePartition(piece) for piece in pieces]

    @all_leading
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in the order of delivery."""
        assert isinstance(partition, ConsumePartition)
        db, queue = self._queue.open()
        decoder = Decoder(self._settings.layout, self._schema)
        count = 0
        for claim, first, end in partition.piece.spans:
            within = run.planned(queue._keys, claim, first, end)
            for messages, batch in tables.batches(db, queue, decoder, "leased", within):
                count += messages
                yield batch
        if count != partition.piece.messages:
            raise BatchLost(
                batch=partition.piece.batch,
                what=f"consumer {self._settings.consumer!r} of queue {queue.name!r}",
                problem="is not planned: it was given back, or another run has acknowledged it",
            )

    @leading()
    def commit(self, end: Offset) -> None:
        """The sink has committed all batches up to this one."""
        self._planner().acknowledge(self._db(), self._mark(end))

    def _planner(self) -> Planner:
        if self._run is None:
            _, queue = self._queue.open()
            self._run = queue.streams.plans.planner(
                self._settings.consumer, lenient=not self._settings.strict
            )
        return self._run

    def _db(self) -> fdb.Database:
        return self._queue.open()[0]

    def _offset(self, mark: Mark) -> Offset:
        return {**self.identify(), **mark._asdict()}

    def _mark(self, offset: Offset) -> Mark:
        match self.verify(offset):
            case {"line": str(line), "batch": int(batch)}:
                return Mark(line, batch)
        raise CorruptData(what="the checkpoint", problem="its offset names no batch")
