"""The stream that sees each message once, and leaves it in the queue.

The offset is a place in every level: see ``browsed``. So what the tasks read afterwards is
complete, except for messages that were taken in the meantime, which they miss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import ValidationError, convert, to_builtins
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ...errors import CorruptData, RowsLost
from ...messages.streams import table_scan
from ...messages.streams.planning import BatchLimits
from ...messages.streams.table_scan import ScanPage
from ...queue.internals import Internals
from ...queue.queue import Queue
from ...schema import once
from ...schema.keys import LOWEST
from ...schema.scope import Scope
from ...store.binding import fdb
from ...subscriptions.external_cursors import PassedMessages, Stretch
from . import tables
from .leading import leading
from .stream_offsets import Offset, PlannedBatch, StreamReader, other_checkpoint
from .tables import HISTORY, Scan

Levels = dict[int, Stretch]
AHEAD = 1_000_000
"""How many messages a run that ends plans at once, or a few more."""


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
        planned = self._progress.planned
        if planned and planned[0].end == start:
            planned.popleft()
        if not planned or planned[0].start != start:
            planned = self._progress.planned = self._plan(start, self.limits(limit))
        return planned[0].end if planned else start

    def _plan(self, start: Offset, limits: BatchLimits) -> deque[PlannedBatch]:
        """The next batch; of a run that ends, all its batches: what is taken before its batch comes
        is then missed, and counted."""
        db, queue = self._queue.open()
        table, planned, messages = self._table, deque[PlannedBatch](), 0
        passed = PassedMessages({level: each.end for level, each in self._parse(start).items()})
        self._verify_ends(passed.places)
        reads = self._verify_kept(db, queue, passed.places)

        def advance(tr: fdb.Transaction) -> PassedMessages:
            return table.advance(tr, Internals(queue).scope(tr), passed, limits)

        def moves(made: PassedMessages) -> bool:
            return made.places != passed.places

        while True:
            while not passed.ended:
                passed = once.run(db, Internals(queue).keys.once, advance, wrote=moves)
            if not passed.stretches:
                break
            end = self._offset(_levels(passed.places, passed.stretches))
            planned.append(PlannedBatch(start, end, passed.stretches))
            messages += passed.messages
            if self._progress.stops is None or messages >= AHEAD:
                break
            start, passed = end, PassedMessages(passed.places)
        if not planned:
            self._progress.seen = reads
        elif self.waits(messages):
            planned.clear()
        return planned

    @leading()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a batch, one for each level if another run has planned it."""
        if start == end:
            return []
        stretches = every = [each for each in self._parse(end).values() if each.messages]
        planned, part = self._progress.planned, self._settings.layout.table
        if planned and planned[0].end == end:
            stretches = planned[0].stretches
            every = [each for batch in planned for each in batch.stretches]
        count, total = (sum(each.messages for each in some) for some in (stretches, every))
        ranges = self._ranges(_merged(every).values())
        parts: list[InputPartition] = []
        some: list[Stretch] = []
        for n, each in enumerate(stretches, 1):
            some.append(each)
            messages = sum(one.messages for one in some)
            if messages >= count / self._parts or n == len(stretches):
                parts.append(Scan(part, self._ranges(some), messages, ranges, total))
                some = []
        return parts

    def _miss(self, db: fdb.Database, queue: Queue, scan: Scan) -> None:
        if not self._settings.fail_on_data_loss:
            return
        keys, table = Internals(queue).keys, self._table

        def count(tr: fdb.Transaction, page: ScanPage) -> tuple[int, int]:
            return table.count(page.values), len(page)

        # Of all that is planned: each task sees its own part only, and all would report different
        # numbers.
        there = sum(sum(table_scan.pages(db, keys, each, count)) for each in scan.every)
        missing = scan.in_every - there
        some = f"{missing:,} of {scan.in_every:,}"
        if scan.part == HISTORY:
            raise tables.lines_lost(queue, f"{some} lines of the history")
        raise RowsLost(
            what=f"{some} messages",
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

        def look(tr: fdb.Transaction, scope: Scope) -> tuple[int, bool]:
            lost = self._table.lost(tr, scope, places.get(0, LOWEST), self._progress.seen)
            return scope.version(tr), lost

        if self._settings.layout.table != HISTORY:
            return 0
        version, lost = self._queue.read(look)
        if lost and self._settings.fail_on_data_loss:
            raise tables.lines_lost(queue)
        return version

    def _ranges(self, stretches: Iterable[Stretch]) -> tuple[slice, ...]:
        """The keys of stretches."""
        keys = Internals(self._queue.open()[1]).keys
        placed = ((self._table.prefix(keys, each.level), each) for each in stretches)
        return tuple(slice(prefix + each.begin, prefix + each.end) for prefix, each in placed)

    def _offset(self, levels: Levels) -> Offset:
        """The offset behind a batch: in each level, from where to where it goes."""
        every = [levels[level] for level in sorted(levels)]
        messages = sum(each.messages for each in every)
        return {**self.identify(), "levels": to_builtins(every), "messages": messages}

    def _parse(self, offset: Offset) -> Levels:
        """What an offset has of each level. Raises ``InvalidInput``, ``CorruptData``."""
        try:
            stored = convert(self.verify(offset).get("levels"), list[Stretch])
        except ValidationError as error:
            raise CorruptData(what="the checkpoint", problem=str(error)) from None
        levels = {each.level: each for each in stored}
        if not levels.keys() <= set(range(self._queue.levels)):
            raise CorruptData(what="the checkpoint", problem=f"there is no level {max(levels)}")
        return levels


def _levels(places: Mapping[int, bytes], passed: Iterable[Stretch]) -> Levels:
    """What a batch has of each level, and where the others stand."""
    there = {level: Stretch(level, place, place) for level, place in places.items()}
    return there | _merged(passed)


def _merged(stretches: Iterable[Stretch]) -> Levels:
    """A stretch for each level, of some that follow each other."""
    levels: Levels = {}
    for each in stretches:
        level = levels.setdefault(each.level, Stretch(each.level, each.begin, each.end))
        level.end = each.end
        level.messages += each.messages
    return levels
