"""The stream that takes messages: each batch is a plan, acknowledged when it is done.

The offset names a batch, and a batch keeps its messages until it is acknowledged, so a
batch that Spark repeats after a crash has the same rows. A batch is done when Spark asks for the
next one or commits it; either comes after the sink has committed it.
"""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ...errors import BatchLost, CorruptData
from ...messages import run
from ...queue.internals import Internals
from ...queue.queue import Queue
from ...queue.streams.planner import Mark, Planner
from ...store.binding import fdb
from ...subscriptions.start_position import FIRST
from .leading import leading
from .stream_offsets import Offset, StreamReader
from .tables import Scan


class ConsumeReader(StreamReader):
    """Reads a queue by plans. One object in the driver lives as long as the query runs."""

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
        if self._settings.min_messages_per_batch > 1:
            db, queue = self._queue.open()
            # First of all: while the batch before is not acknowledged, its messages count as held,
            # and room for others may be lacking.
            self._planner().acknowledge(db, since)
            if self.waits(queue.depth(db).ready):
                return start
        until = self._planner().next(self._db(), since, limits.messages, limits.size, limits.ends)
        return start if until == since else self._offset(until)

    @leading()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch."""
        db, queue = self._queue.open()
        pieces = self._planner().pieces(db, self._mark(start), self._mark(end), self._parts)
        keys = Internals(queue).keys
        return [
            Scan(
                "leased",
                tuple(run.planned(keys, *span) for span in piece.spans),
                piece.messages,
                number=piece.batch,
            )
            for piece in pieces
        ]

    def _miss(self, db: fdb.Database, queue: Queue, scan: Scan) -> None:
        raise BatchLost(
            batch=scan.number,
            what=f"consumer {self._settings.consumer!r} of queue {queue.name!r}",
            problem="is not planned: it was given back, or another run has acknowledged it",
        )

    @leading()
    def commit(self, end: Offset) -> None:
        """The sink has committed all batches up to this one."""
        self._planner().acknowledge(self._db(), self._mark(end))

    def _planner(self) -> Planner:
        if self._progress.planner is None:
            _, queue = self._queue.open()
            self._progress.planner = queue.streams.plans.planner(
                self._settings.consumer or "",
                lenient=not self._settings.fail_on_data_loss,
                begins=self._begins,
            )
        return self._progress.planner

    def _begins(self) -> dict[int, bytes]:
        starts, since = self._settings.starting_offsets or (), self._settings.starting_timestamp
        # A sorted queue has no places, and is taken from its first message.
        first = since is None and all(place.name == FIRST for _, place in starts)
        return {} if first else self.begins()

    def _db(self) -> fdb.Database:
        return self._queue.open()[0]

    def _offset(self, mark: Mark) -> Offset:
        return {**self.identify(), **mark._asdict()}

    def _mark(self, offset: Offset) -> Mark:
        match self.verify(offset):
            case {"line": str(line), "batch": int(batch)}:
                return Mark(line, batch)
        raise CorruptData(what="the checkpoint", problem="its offset names no batch")
