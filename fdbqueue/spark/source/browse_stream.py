"""The stream that looks at messages, each once, and leaves them where they are.

The offset is a place in every level. A batch goes up to a place that is fenced when Spark learns of
it: nothing comes in before that place any more. So what the tasks read afterwards is complete, but
for what somebody has taken in the meantime.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...errors import BrowsedLost, CheckpointMismatch, CorruptData
from ...messages.streams import planning, table_scan
from ...messages.streams.planning import Limits
from ...queue.queue import Queue
from ...schema import once
from ...schema.keys import LOWEST
from ...store.binding import fdb
from ...subscriptions import external_cursors
from ...subscriptions.external_cursors import Passed
from ...subscriptions.start_position import Place
from .streams import BROWSE, Offset, StreamReader, prepare

SMALLEST_BYTES = 100_000
"""A part of a batch is not made smaller than this."""

R = TypeVar("R")
Places = dict[int, bytes]


@dataclass
class BrowsePartition(InputPartition):
    """A range of ready messages; ``messages`` must be there, where that is asked for."""

    begin: bytes
    end: bytes
    messages: int = 0


class BrowseReader(StreamReader, SupportsTriggerAvailableNow):
    """Reads a queue by places. One object of the driver lives as long as the query runs."""

    _first: Offset | None = None
    _known = False
    _ends: dict[int, int] | None = None

    def initialOffset(self) -> Offset:
        """Where a new stream begins. Asked for again until the first batch is done."""
        if self._first is None:
            db, queue = self._seen.open()
            places = _write(db, queue, partial(self._begin, queue))
            self._first = {**self._offset(places), "first": True}
        return self._first

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what there is now."""
        db, queue = self._seen.open()
        self._ends = queue._read(db, lambda tr: planning.ends(tr, queue._scope(tr)))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes; ``start`` where nothing more is ready."""
        db, queue = self._seen.open()
        places, ends = self._places(start), self._ends
        self._look_behind(places)
        if ends is None and isinstance(limit, ReadAllAvailable):
            ends = queue._read(db, lambda tr: planning.ends(tr, queue._scope(tr)))
        limits = self.limits(limit, ends)
        messages = size = 0
        while True:
            rest, more = _rest(limits, messages, size), messages > 0
            step = partial(_onward, queue, places, rest, more)
            passed = _write(db, queue, step, lambda passed: passed.messages > 0)
            places = passed.places
            messages, size = messages + passed.messages, size + passed.size
            if passed.ended:
                break
        if not messages:
            return start
        offset = {**self._offset(places), "messages": messages, "bytes": size}
        if start.get("first"):
            # Where a stream begins "now" is another place when Spark asks again after a crash.
            offset["from"] = start["places"]
        return offset

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch."""
        if start == end:
            return []
        db, queue = self._seen.open()
        begin = self._places({**end, "places": end["from"]} if "from" in end else start)
        ranges = [
            slice(queue._keys.ready_from(level, begin.get(level, LOWEST)).start, stop)
            for level, place in self._places(end).items()
            for stop in [queue._keys.ready_from(level, place).start]
        ]
        ranges = [each for each in ranges if each.start < each.stop]
        parts = self._settings.partitions or os.cpu_count() or 1
        if not self._settings.strict:
            size = max(SMALLEST_BYTES, ceil(int(end.get("bytes", 0)) / parts))
            return [BrowsePartition(p.start, p.stop) for p in table_scan.split(db, ranges, size)]
        messages = int(end.get("messages", 0))
        most = ceil(messages / parts)
        found = [piece for within in ranges for piece in _counted(db, within, most)]
        self._complete(messages, sum(piece.messages for piece in found))
        return list(found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one part that are ready when they are read, in order."""
        assert isinstance(partition, BrowsePartition)
        db, queue = self._seen.open()
        count = 0
        for batch in self.rows(db, queue, "ready", slice(partition.begin, partition.end)):
            count += len(batch)
            yield batch
        self._complete(partition.messages, count)

    def _look_behind(self, places: Places) -> None:
        """Once: raises ``CheckpointMismatch`` where the queue has not come to these places."""
        if self._known:
            return
        db, queue = self._seen.open()
        ends = queue._read(db, lambda tr: planning.ends(tr, queue._scope(tr)))
        for level, place in places.items():
            index = queue._keys.parse_place(place)
            if index > ends[level]:
                raise CheckpointMismatch(
                    what="a later state of the queue, with",
                    stored=f"index {index}",
                    given=f"index {ends[level]} at most, as it was restored",
                )
        self._known = True

    def _complete(self, wanted: int, found: int) -> None:
        if found < wanted:
            raise BrowsedLost(queue=self._settings.place.queue, missing=wanted - found)

    def _begin(self, queue: Queue, tr: fdb.Transaction) -> Places:
        place = Place.of("startingPosition", self._settings.start)
        return external_cursors.begin(tr, queue._scope(tr), place)

    def _offset(self, places: Mapping[int, bytes]) -> Offset:
        return {
            "mode": BROWSE,
            "queue": self._settings.place.queue,
            "identity": self._seen.identity,
            "places": {str(level): place.hex() for level, place in sorted(places.items())},
        }

    def _places(self, offset: Offset) -> Places:
        """The places of an offset; raises ``CheckpointMismatch``, ``CorruptData``."""
        stored: Any = self.belongs(offset).get("places")
        try:
            places = {int(level): bytes.fromhex(place) for level, place in stored.items()}
            if not places.keys() <= set(range(self._seen.levels)):
                raise ValueError(f"there is no level {max(places)}")
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptData(what="the checkpoint", problem=repr(error)) from None
        return places


def reader(options: Mapping[str, str], schema: StructType) -> BrowseReader:
    """A reader; see ``prepare``. Raises also ``InvalidArgument`` for a place that is none."""
    settings, schema, seen = prepare(options, schema)
    Place.of("startingPosition", settings.start)
    return BrowseReader(settings, schema, seen)


def _write(
    db: fdb.Database,
    queue: Queue,
    body: Callable[[fdb.Transaction], R],
    wrote: Callable[[R], bool] = lambda _: True,
) -> R:
    return once.run(db, queue._keys.once, body, wrote=wrote)


def _onward(
    queue: Queue, places: Places, limits: Limits, more: bool, tr: fdb.Transaction
) -> Passed:
    return external_cursors.advance(tr, queue._scope(tr), places, limits, more=more)


def _rest(limits: Limits, messages: int, size: int) -> Limits:
    return replace(
        limits,
        messages=None if limits.messages is None else limits.messages - messages,
        size=None if limits.size is None else limits.size - size,
    )


def _counted(db: fdb.Database, within: slice, most: int) -> Iterator[BrowsePartition]:
    """A range in parts of up to ``most`` messages, with how many each has."""
    begin, count = within.start, 0
    for page in table_scan.pages(db, within, lambda tr, rows: ([kv.key for kv in rows], len(rows))):
        for key in page:
            if count == most:
                yield BrowsePartition(begin, key, count)
                begin, count = key, 0
            count += 1
    if count:
        yield BrowsePartition(begin, within.stop, count)
