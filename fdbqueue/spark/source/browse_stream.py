"""The stream that sees each message once, and leaves it in the queue.

The offset is a place in every level. When Spark learns how far a batch goes, the queue is fenced up
to there: no later enqueue commits a message before that place. So what the tasks read afterwards is
complete, except for messages that were taken in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Self

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ...errors import BrowsedLost, CorruptData
from ...messages.streams import table_scan
from ...messages.streams.planning import Limits
from ...messages.streams.table_scan import Page
from ...queue.queue import Queue
from ...schema import once
from ...schema.keys import LOWEST, QueueKeys
from ...store.binding import fdb
from ...subscriptions import external_cursors
from ...subscriptions.external_cursors import Passed
from ...subscriptions.start_position import StartPosition
from . import tables
from .rows import Decoder
from .streams import Offset, StreamReader, other_checkpoint

SMALLEST_BYTES = 100_000
"""Partitions are not made smaller than this."""

Places = dict[int, bytes]


@dataclass
class BrowsePartition(InputPartition):
    """A range of ready messages. ``messages`` of them must be there, if that is checked."""

    begin: bytes
    end: bytes
    messages: int = 0


class BrowseReader(StreamReader):
    """Reads a queue by places. One object in the driver lives as long as the query runs."""

    _first: Offset | None = None
    _verified = False

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> Self:
        """Raises also ``InvalidArgument`` for a wrong ``startingPosition``."""
        made = super().of(options, schema)
        StartPosition.of("startingPosition", made._settings.start)
        return made

    def initialOffset(self) -> Offset:
        """Where a new stream begins. Spark asks again until the first batch is done."""
        if self._first is None:
            db, queue = self._queue.open()
            start = StartPosition.of("startingPosition", self._settings.start)
            places = once.run(db, queue._keys.once, _begin, queue, start)
            self._first = {**self._offset(places), "first": True}
        return self._first

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes; ``start`` if nothing more is ready."""
        db, queue = self._queue.open()
        places = self._places(start)
        self._verify_ends(places)
        limits = self.limits(limit)
        messages = size = 0
        while True:
            rest = _rest(limits, messages, size)
            step = (queue, places, rest, messages > 0)
            passed = once.run(
                db, queue._keys.once, _advance, *step, wrote=lambda it: it.messages > 0
            )
            places = passed.places
            messages, size = messages + passed.messages, size + passed.size
            if passed.ended:
                break
        if not messages:
            return start
        offset = {**self._offset(places), "messages": messages, "bytes": size}
        if start.get("first"):
            # A stream that begins "now" would begin elsewhere when Spark asks again after a crash.
            offset["from"] = start["places"]
        return offset

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch."""
        if start == end:
            return []
        db, queue = self._queue.open()
        begin = self._places({**end, "places": end["from"]} if "from" in end else start)
        ranges = [
            slice(queue._keys.ready_from(level, begin.get(level, LOWEST)).start, stop)
            for level, place in self._places(end).items()
            for stop in [queue._keys.ready_from(level, place).start]
        ]
        ranges = [each for each in ranges if each.start < each.stop]
        if not self._settings.strict:
            part = ceil(int(end.get("bytes", 0)) / self.partitions_at_most)
            cuts = table_scan.split(db, queue._keys, ranges, max(SMALLEST_BYTES, part))
            return [BrowsePartition(cut.start, cut.stop) for cut in cuts]
        messages = int(end.get("messages", 0))
        most = ceil(messages / self.partitions_at_most)
        found = [part for within in ranges for part in _counted(db, queue._keys, within, most)]
        self._require(messages, sum(part.messages for part in found))
        return list(found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one part that are ready when they are read, in order."""
        assert isinstance(partition, BrowsePartition)
        db, queue = self._queue.open()
        decoder = Decoder(self._settings.layout, self._schema)
        within = slice(partition.begin, partition.end)
        count = 0
        for messages, batch in tables.batches(db, queue, decoder, "ready", within):
            count += messages
            yield batch
        self._require(partition.messages, count)

    def _verify_ends(self, places: Places) -> None:
        """Once: raise ``InvalidInput`` if the queue has not come as far as its checkpoint."""
        if self._verified:
            return
        _, queue = self._queue.open()
        ends = self.ends()
        for level, place in places.items():
            index = queue._keys.parse_place(place)
            if index > ends[level]:
                raise other_checkpoint(
                    f"a later state of the queue, with index {index}",
                    f"index {ends[level]} at most, as it was restored",
                )
        self._verified = True

    def _require(self, messages: int, found: int) -> None:
        if found < messages:
            raise BrowsedLost(queue=self._settings.location.queue, missing=messages - found)

    def _offset(self, places: Mapping[int, bytes]) -> Offset:
        stored = {str(level): place.hex() for level, place in sorted(places.items())}
        return {**self.identify(), "places": stored}

    def _places(self, offset: Offset) -> Places:
        """The places of an offset. Raises ``InvalidInput``, ``CorruptData``."""
        stored: Any = self.verify(offset).get("places")
        try:
            places = {int(level): bytes.fromhex(place) for level, place in stored.items()}
            if not places.keys() <= set(range(self._queue.levels)):
                raise ValueError(f"there is no level {max(places)}")
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptData(what="the checkpoint", problem=repr(error)) from None
        return places


def _begin(tr: fdb.Transaction, queue: Queue, start: StartPosition) -> Places:
    return external_cursors.begin(tr, queue._scope(tr), start)


def _advance(
    tr: fdb.Transaction, queue: Queue, places: Places, limits: Limits, more: bool
) -> Passed:
    return external_cursors.advance(tr, queue._scope(tr), places, limits, more=more)


def _rest(limits: Limits, messages: int, size: int) -> Limits:
    return replace(
        limits,
        messages=None if limits.messages is None else limits.messages - messages,
        size=None if limits.size is None else limits.size - size,
    )


def _keys_of(tr: fdb.Transaction, page: Page) -> tuple[list[bytes], int]:
    return page.keys, len(page)


def _counted(
    db: fdb.Database, keys: QueueKeys, within: slice, most: int
) -> Iterator[BrowsePartition]:
    """A range in parts of up to ``most`` messages, with the number in each."""
    begin, count = within.start, 0
    for page in table_scan.pages(db, keys, within, _keys_of):
        for key in page:
            if count == most:
                yield BrowsePartition(begin, key, count)
                begin, count = key, 0
            count += 1
    if count:
        yield BrowsePartition(begin, within.stop, count)
