"""The stream that sees each message once, and leaves it in the queue.

The offset is a place in every level: see ``browsed``. So what the tasks read afterwards is
complete, except for messages that were taken in the meantime, which they miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ...errors import CorruptData, RowsLost
from ...messages.streams import table_scan
from ...messages.streams.table_scan import ScanPage
from ...queue.internals import Internals
from ...queue.queue import Queue
from ...schema import once
from ...schema.keys import LOWEST
from ...store.binding import fdb
from ...subscriptions.external_cursors import PassedMessages, Stretch
from . import tables
from .leading import leading
from .stream_offsets import Offset, StreamReader, other_checkpoint
from .tables import HISTORY, Ranges, Scan

Levels = dict[int, Stretch]


class BrowseReader(StreamReader):
    """Reads a table by places. One object in the driver lives as long as the query runs."""

    @leading()
    def initialOffset(self) -> Offset:
        """Where a new stream begins. Spark asks again until the first batch is done."""
        # Spark may ask again before the first batch is logged: another answer would skip what came
        # in between.
        if self._progress.first is None:
            self._progress.first = self._offset(_levels(self.begins(), []))
        return self._progress.first

    @leading()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes; ``start`` if nothing more is there."""
        db, queue = self._queue.open()
        table, limits = self._table, self.limits(limit)
        passed = PassedMessages({level: each.end for level, each in self._parse(start).items()})
        self._verify_ends(passed.places)
        reads = self._verify_kept(db, queue, passed.places)

        def advance(tr: fdb.Transaction) -> PassedMessages:
            return table.advance(tr, Internals(queue).scope(tr), passed, limits)

        def moves(made: PassedMessages) -> bool:
            return made.places != passed.places

        while not passed.ended:
            passed = once.run(db, Internals(queue).keys.once, advance, wrote=moves)
        stretches = passed.stretches
        if not stretches:
            self._progress.seen = reads
        if not stretches or self.waits(passed.messages):
            return start
        # Kept for the partitions that Spark asks for next: planned anew, the batch could not be
        # split by its messages.
        self._progress.planned = self._offset(_levels(passed.places, stretches)), stretches
        return self._progress.planned[0]

    @leading()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch, one for each level if another run has planned it."""
        if start == end:
            return []
        levels = [each for each in self._parse(end).values() if each.messages]
        planned = self._progress.planned
        stretches = planned[1] if planned is not None and planned[0] == end else levels
        count = sum(each.messages for each in levels)
        batch, part = self._ranges(levels), self._settings.layout.table
        parts: list[InputPartition] = []
        some: list[Stretch] = []
        for n, each in enumerate(stretches, 1):
            some.append(each)
            messages = sum(one.messages for one in some)
            if messages >= count / self._parts or n == len(stretches):
                parts.append(Scan(part, self._ranges(some), messages, batch, count))
                some = []
        return parts

    def _miss(self, db: fdb.Database, queue: Queue, scan: Scan) -> None:
        if not self._settings.fail_on_data_loss:
            return
        keys, table = Internals(queue).keys, self._table

        def count(tr: fdb.Transaction, page: ScanPage) -> tuple[int, int]:
            return table.count(page.values), len(page)

        # Of the whole batch: each task sees its own part only, and all would report different
        # numbers.
        ranges = (slice(*each) for each in scan.batch)
        there = sum(sum(table_scan.pages(db, keys, each, count)) for each in ranges)
        missing = scan.in_batch - there
        some = f"{missing:,} of {scan.in_batch:,}"
        if scan.part == HISTORY:
            raise tables.lines_lost(queue, f"{some} lines of the history in a batch")
        raise RowsLost(
            what=f"{some} messages of a batch",
            queue=queue.name,
            gone="taken",
            missing=missing,
            remedy="set the option failOnDataLoss to false to continue without them",
        )

    def _verify_ends(self, places: Mapping[int, bytes]) -> None:
        """Once: raise ``InvalidInput`` if the queue has not come as far as its checkpoint."""
        if self._progress.verified:
            return
        ends = self.ends()
        for level, place in places.items():
            index = self._table.reached(place)
            # A store that was restored gives these indexes again: the stream would pass new
            # messages unseen.
            if index > ends[level]:
                raise other_checkpoint(
                    f"a later state of the queue, with index {index}",
                    f"index {ends[level]} at most, as it was restored",
                )
        self._progress.verified = True

    def _verify_kept(self, db: fdb.Database, queue: Queue, places: Mapping[int, bytes]) -> int:
        """Raise ``RowsLost`` if rows were removed that no batch had; returns the version."""

        def look(tr: fdb.Transaction) -> tuple[int, bool]:
            scope, place = Internals(queue).scope(tr), places.get(0, LOWEST)
            lost = self._table.lost(tr, scope, place, self._progress.seen)
            return scope.version(tr), lost

        if self._settings.layout.table != HISTORY:
            return 0
        version, lost = Internals(queue).read(db, look)
        if lost and self._settings.fail_on_data_loss:
            raise tables.lines_lost(queue)
        return version

    def _ranges(self, stretches: Iterable[Stretch]) -> Ranges:
        """The keys of stretches."""
        keys, table = self._queue.open()[1]._keys, self._table
        return tuple(
            (table.prefix(keys, each.level) + each.begin, table.prefix(keys, each.level) + each.end)
            for each in stretches
        )

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
