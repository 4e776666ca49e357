"""Batch reads: the tables of a queue as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import IntegralType, StringType, StructType

from ...errors import InvalidOptions
from ...messages import history
from ...messages.streams import table_scan
from ...queue.internals import Internals
from ...queue.queue import Queue
from ...schema.keys import LOWEST, QueueKeys
from ...store.binding import fdb
from . import places, tables
from .columns import TABLES, Layout
from .leading import leading
from .settings import BATCH, PLACES, Location, UserOptions
from .tables import HISTORY, LATER, ReadSettings, RowFilter, Scan


class BatchReadSettings(ReadSettings, frozen=True, kw_only=True):
    """The options of a batch read. pushdown: None if they do not say."""

    partition_bytes: int
    pushdown: bool | None
    skip_expiring: int

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> BatchReadSettings:
        """Parse and check. Raises ``InvalidOptions``, ``InvalidSelector``, ``InvalidArgument``."""
        options = UserOptions(texts, BATCH)
        layout, row_filter = Layout.of(options), RowFilter(**options.fields(RowFilter))
        if row_filter.selector is not None and layout.table == HISTORY:
            raise InvalidOptions(option="selector", problem="it selects messages, not history")
        for name in PLACES:
            if name in options and layout.table != "ready":
                raise InvalidOptions(option=name, problem="of tables, only ready has places")
        location = Location.of(options)
        return cls(location=location, layout=layout, row_filter=row_filter, **options.fields(cls))


class BatchReader(tables.TableReader, DataSourceReader):
    """Reads a table."""

    _settings: BatchReadSettings

    @leading()
    def partitions(self) -> list[InputPartition]:
        """Ranges of each level, none of them too large for a transaction."""
        db, queue = self._queue.open()
        size, ranges = self._settings.partition_bytes, _ranges(db, queue, self._settings)
        partitions: list[InputPartition] = [
            Scan(self._settings.layout.table, ((cut.start, cut.stop),))
            for cut in table_scan.split(db, Internals(queue).keys, ranges, size)
        ]
        return partitions or [InputPartition(None)]


class FilteringReader(BatchReader):
    """A reader that takes the query's conditions, so that it reads less.

    Spark refuses such readers unless ``spark.sql.python.filterPushdown.enabled`` is true.
    """

    @leading()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read down. Spark still evaluates every condition, so it may be coarse."""
        row_filter, layout = self._settings.row_filter, self._settings.layout
        time = tables.TIMES.get(layout.table, "enqueued_at")
        columns = TABLES[layout.table] | layout.header_columns
        for each in filters:
            path: list[str] = [*getattr(each, "attribute", ())]
            value = getattr(each, "value", None)
            # Fields within columns, and null, which compares in its own way in SQL, are left to
            # Spark.
            if len(path) != 1 or value is None or type(each) not in tables.COMPARE:
                continue
            column = path[0]
            if column == "level":
                row_filter = _of_levels(row_filter, each, value, self._queue.levels)
            elif column == time and isinstance(value, datetime):
                row_filter = _of_time(row_filter, each, value)
            elif isinstance(columns.get(column), StringType | IntegralType) and (
                column in TABLES[layout.table] or isinstance(each, EqualTo | In)
            ):
                row_filter = replace(row_filter, conditions=(*row_filter.conditions, each))
        self._settings = replace(self._settings, row_filter=row_filter)
        return filters


def _of_levels(row_filter: RowFilter, each: Filter, value: Any, levels: int) -> RowFilter:
    known = range(levels) if row_filter.levels is None else row_filter.levels
    holds = tables.COMPARE[type(each)]
    return replace(row_filter, levels=frozenset(level for level in known if holds(level, value)))


def _of_time(row_filter: RowFilter, each: Filter, value: datetime) -> RowFilter:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    at_ms = int(aware.timestamp() * 1000)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return replace(row_filter, since=max(at_ms, row_filter.since or at_ms))
    if isinstance(each, LessThan | LessThanOrEqual):
        # The condition may include this very millisecond.
        return replace(row_filter, until=min(at_ms + 1, row_filter.until or at_ms + 1))
    return row_filter


def _ranges(db: fdb.Database, queue: Queue, settings: BatchReadSettings) -> list[slice]:
    """The key ranges of a table."""
    keys, row_filter, table = Internals(queue).keys, settings.row_filter, settings.layout.table
    whole = {"leased": keys.lease, "dead": keys.dead, "waiting": keys.waiting}
    if table in whole:
        return [whole[table].rows]
    if table == HISTORY:
        kept = Internals(queue).read(
            db, lambda tr: history.lines(tr, Internals(queue).scope(tr), settings.skip_expiring)
        )
        return [kept]
    levels = row_filter.levels
    if levels is None:
        levels = frozenset(range(queue.options(db).levels))
    if table in LATER:
        each = [_due(keys, level, row_filter) for level in sorted(levels)]
        return [one for one in each if one.start < one.stop]
    if not any(settings.places):
        return [keys.ready.under(level) for level in sorted(levels)]

    def find(tr: fdb.Transaction) -> tuple[dict[int, bytes], dict[int, bytes]]:
        scope, (starts, ends) = Internals(queue).scope(tr), settings.places
        return places.find(tr, scope, starts), places.find(tr, scope, ends)

    begins, ends = Internals(queue).read(db, find)
    each = [
        slice(
            keys.ready_from(level, begins.get(level, LOWEST)).start,
            keys.ready_from(level, ends[level]).start
            if level in ends
            else keys.ready.under(level).stop,
        )
        for level in sorted(levels)
    ]
    return [one for one in each if one.start < one.stop]


def _due(keys: QueueKeys, level: int, row_filter: RowFilter) -> slice:
    """The delayed messages of a level that are due in the time of a filter."""
    due, every = keys.delayed, keys.delayed_messages(level)
    return slice(
        every.start if row_filter.since is None else due.begin(level, row_filter.since),
        every.stop if row_filter.until is None else due.begin(level, row_filter.until),
    )


def reader(options: Mapping[str, str], schema: StructType, pushdown: bool = False) -> BatchReader:
    """A reader whose options, schema and queue are checked.

    pushdown: whether to take conditions, unless the options say. Raises what
    ``BatchReadSettings.of`` and ``find`` raise.
    """
    settings = BatchReadSettings.of(options)
    queue = settings.find(schema)
    levels = settings.row_filter.levels or frozenset()
    if any(level >= queue.levels for level in levels):
        raise InvalidOptions(option="levels", problem=f"the levels are 0 to {queue.levels - 1}")
    given = pushdown if settings.pushdown is None else settings.pushdown
    return (FilteringReader if given else BatchReader)(settings, schema, queue)
