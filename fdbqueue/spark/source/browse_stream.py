"""The stream that sees each message once, and leaves it in the queue.

The offset is a place in every level. When Spark learns how far a batch goes, the queue is fenced up
to there: no later enqueue commits a message before that place. So what the tasks read afterwards is
complete, except for messages that were taken in the meantime, which they miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ...errors import CorruptData, RowsLost
from ...messages.streams import table_scan
from ...messages.streams.planning import Limits
from ...messages.streams.table_scan import Page
from ...queue.queue import Queue
from ...schema import once
from ...schema.envelope import open_envelope
from ...schema.keys import LOWEST, QueueKeys
from ...store.binding import fdb
from ...subscriptions import external_cursors
from ...subscriptions.external_cursors import Passed, Stretch
from ...subscriptions.start_position import NOW, StartPosition
from ...values.model import Position
from . import tables
from .leading import all_leading, leading
from .rows import Decoder
from .streams import Offset, Starts, StreamReader, other_checkpoint

Levels = dict[int, Stretch]
Ranges = tuple[tuple[bytes, bytes], ...]


@dataclass
class BrowsePartition(InputPartition):
    """Some ranges of ready messages, of those of a batch; and how many there were."""

    ranges: Ranges
    messages: int
    batch: Ranges
    in_batch: int


class BrowseReader(StreamReader):
    """Reads a queue by places. One object in the driver lives as long as the query runs."""

    _first: Offset | None = None
    _planned: tuple[Offset, list[Stretch]] | None = None
    _verified = False

    @leading()
    def initialOffset(self) -> Offset:
        """Where a new stream begins. Spark asks again until the first batch is done."""
        if self._first is None:
            db, queue = self._queue.open()
            starts, since = self._settings.starts, self._settings.since
            if since is not None:
                starts = ((None, StartPosition.of("startingTimestamp", NOW)),)
            places = once.run(db, queue._keys.once, _begin, queue, starts)
            if since is not None:
                places = {n: _first_at(db, queue, n, end, since) for n, end in places.items()}
            self._first = self._offset(_levels(places, []))
        return self._first

    @leading()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes; ``start`` if nothing more is ready."""
        db, queue = self._queue.open()
        passed = Passed({level: each.end for level, each in self._parse(start).items()})
        self._verify_ends(passed.places)
        limits = self.limits(limit)
        stretches: list[Stretch] = []
        while not passed.ended:
            step = (queue, passed.places, limits, bool(stretches))
            passed = once.run(
                db, queue._keys.once, _advance, *step, wrote=lambda it: bool(it.stretches)
            )
            stretches += passed.stretches
            limits = _rest(limits, passed)
        if not stretches or self.waits(sum(each.messages for each in stretches)):
            return start
        self._planned = self._offset(_levels(passed.places, stretches)), stretches
        return self._planned[0]

    @leading()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch, one for each level if another run has planned it."""
        if start == end:
            return []
        levels = [each for each in self._parse(end).values() if each.messages]
        stretches = levels
        if self._planned is not None and self._planned[0] == end:
            stretches = self._planned[1]
        keys, count = self._queue.open()[1]._keys, sum(each.messages for each in levels)
        parts: list[InputPartition] = []
        some: list[Stretch] = []
        for n, each in enumerate(stretches, 1):
            some.append(each)
            messages = sum(one.messages for one in some)
            if messages >= count / self.partitions_at_most or n == len(stretches):
                ranges = _ranges(keys, some), _ranges(keys, levels)
                parts.append(BrowsePartition(ranges[0], messages, ranges[1], count))
                some = []
        return parts

    @all_leading
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one part that are ready when they are read, in order."""
        assert isinstance(partition, BrowsePartition)
        db, queue = self._queue.open()
        decoder = Decoder(self._settings.layout, self._schema)
        count = 0
        for each in partition.ranges:
            for messages, batch in tables.batches(db, queue, decoder, "ready", slice(*each)):
                count += messages
                yield batch
        if count < partition.messages and self._settings.strict:
            ranges = (slice(*each) for each in partition.batch)
            missing = partition.in_batch - sum(_count(db, queue._keys, each) for each in ranges)
            raise RowsLost(
                what=f"{missing:,} of {partition.in_batch:,} messages of a batch",
                queue=queue.name,
                gone="taken",
                missing=missing,
                remedy="set the option failOnDataLoss to false to continue without them",
            )

    def _verify_ends(self, places: Mapping[int, bytes]) -> None:
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

    def _offset(self, levels: Levels) -> Offset:
        """The offset behind a batch: in each level, from where to where it goes."""
        stored = {
            str(level): [each.begin.hex(), each.end.hex(), each.messages]
            for level, each in sorted(levels.items())
        }
        messages = sum(each.messages for each in levels.values())
        return {**self.identify(), "levels": stored, "messages": messages}

    def _parse(self, offset: Offset) -> Levels:
        """What an offset has of each level. Raises ``InvalidInput``, ``CorruptData``."""
        stored: Any = self.verify(offset).get("levels")
        try:
            levels = {
                int(level): Stretch(int(level), bytes.fromhex(begin), bytes.fromhex(end), int(n))
                for level, (begin, end, n) in stored.items()
            }
            if not levels.keys() <= set(range(self._queue.levels)):
                raise ValueError(f"there is no level {max(levels)}")
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptData(what="the checkpoint", problem=repr(error)) from None
        return levels


def _levels(places: Mapping[int, bytes], passed: Iterable[Stretch]) -> Levels:
    """What a batch has of each level, and where the others stand."""
    levels = {level: Stretch(level, place, place) for level, place in places.items()}
    for each in passed:
        level = levels[each.level]
        level.begin = level.begin if level.messages else each.begin
        level.messages += each.messages
    return levels


def _ranges(keys: QueueKeys, stretches: Iterable[Stretch]) -> Ranges:
    """The keys of ready messages in stretches."""
    return tuple(
        (keys.ready_from(each.level, each.begin).start, keys.ready_from(each.level, each.end).start)
        for each in stretches
    )


def _count(db: fdb.Database, keys: QueueKeys, within: slice) -> int:
    """How many ready messages a range has now."""
    return sum(table_scan.pages(db, keys, within, lambda tr, page: (len(page), len(page))))


def _begin(tr: fdb.Transaction, queue: Queue, starts: Starts) -> dict[int, bytes]:
    places: dict[int, bytes] = {}
    for level, start in starts:
        found = external_cursors.begin(tr, queue._scope(tr), start)
        places |= found if level is None else {level: found.get(level, LOWEST)}
    return places


def _first_at(db: fdb.Database, queue: Queue, level: int, end: bytes, since_ms: int) -> bytes:
    """The place of the first message before a place that was enqueued at a time or later, or else
    that place."""
    keys = queue._keys

    def read(tr: fdb.Transaction, page: Page) -> tuple[str | None, int]:
        found = zip(page.places()[1], map(open_envelope, page.values), strict=True)
        ids = (place for place, each in found if each.enqueued_at_ms >= since_ms)
        return next(ids, None), len(page)

    begin = keys.ready.under(level).start
    within = slice(begin, max(begin, keys.ready_from(level, end).start))
    for place in table_scan.pages(db, keys, within, read):
        if place is not None:
            return keys.place(Position.from_id(place))
    return end


def _advance(
    tr: fdb.Transaction, queue: Queue, places: Mapping[int, bytes], limits: Limits, more: bool
) -> Passed:
    return external_cursors.advance(tr, queue._scope(tr), places, limits, more=more)


def _rest(limits: Limits, passed: Passed) -> Limits:
    """What is left of the limits of a batch."""
    return replace(
        limits,
        messages=None if limits.messages is None else limits.messages - passed.messages,
        size=None if limits.size is None else limits.size - passed.size,
    )
