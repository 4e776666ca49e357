"""Batch reads: the tables of a queue as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

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

from ...messages import history
from ...messages.streams import table_scan
from ...queue.internals import Internals
from ...schema.keys import LOWEST, QueueKeys
from ...schema.scope import Scope
from ...store.binding import fdb
from . import places, tables
from .columns import TABLES
from .leading import leading
from .settings import BATCH, PLACES
from .tables import HISTORY, LATER, ReadSettings, RowFilter, Scan


class BatchReadSettings(ReadSettings, frozen=True, kw_only=True):
    """The options of a batch read. pushdown: None if they do not say."""

    KNOWN = BATCH
    partition_bytes: int
    pushdown: bool | None
    skip_expiring: int

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.row_filter.selector is not None and self.layout.table == HISTORY:
            yield "selector", "it selects messages, not history"
        for name, given in zip(PLACES, self.places, strict=True):
            if given and self.layout.table != "ready":
                yield name, "of tables, only ready has places"


class BatchReader(tables.TableReader, DataSourceReader):
    """Reads a table."""

    _settings: BatchReadSettings

    @leading()
    def partitions(self) -> list[InputPartition]:
        """Ranges of each level, none of them too large for a transaction."""
        db, queue = self._queue.open()
        ranges = self._queue.read(partial(_ranges, settings=self._settings))
        size, table = self._settings.partition_bytes, self._settings.layout.table
        cuts = table_scan.split(db, Internals(queue).keys, ranges, size)
        scans = [Scan(table, (cut,)) for cut in cuts]
        return [*scans] or [InputPartition(None)]


class FilteringReader(BatchReader):
    """A reader that takes the query's conditions, so that it reads less.

    Spark refuses such readers unless ``spark.sql.python.filterPushdown.enabled`` is true.
    """

    @leading()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read down. Spark still evaluates every condition, so it may be coarse."""
        layout, row_filter = self._settings.layout, self._settings.row_filter
        time = tables.TIMES[layout.table]
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
                known, holds = row_filter.levels, tables.COMPARE[type(each)]
                some = range(self._queue.levels) if known is None else known
                row_filter = replace(
                    row_filter, levels=frozenset(level for level in some if holds(level, value))
                )
            elif column == time and isinstance(value, datetime):
                row_filter = _of_time(row_filter, each, value)
            elif isinstance(columns.get(column), StringType | IntegralType) and (
                column in TABLES[layout.table] or isinstance(each, EqualTo | In)
            ):
                row_filter = replace(row_filter, conditions=(*row_filter.conditions, each))
        self._settings = replace(self._settings, row_filter=row_filter)
        return filters


def _of_time(row_filter: RowFilter, each: Filter, value: datetime) -> RowFilter:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    at_ms = int(aware.timestamp() * 1000)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return replace(row_filter, since=max(at_ms, row_filter.since or at_ms))
    if isinstance(each, LessThan | LessThanOrEqual):
        # The condition may include this very millisecond.
        return replace(row_filter, until=min(at_ms + 1, row_filter.until or at_ms + 1))
    return row_filter


def _ranges(tr: fdb.Transaction, scope: Scope, settings: BatchReadSettings) -> list[slice]:
    """The key ranges of a table."""
    keys, row_filter, table = scope.keys, settings.row_filter, settings.layout.table
    whole = {"leased": keys.lease, "dead": keys.dead, "waiting": keys.waiting}
    if table in whole:
        return [whole[table].rows]
    if table == HISTORY:
        return [history.lines(tr, scope, settings.skip_expiring)]
    levels = range(scope.options.levels) if row_filter.levels is None else row_filter.levels
    begins, ends = (places.find(tr, scope, some) for some in settings.places)

    def within(level: int) -> slice:
        if table in LATER:
            return _due(keys, level, row_filter)
        every = keys.ready_from(level, begins.get(level, LOWEST))
        return (
            slice(every.start, keys.ready_from(level, ends[level]).start)
            if level in ends
            else every
        )

    return [each for each in map(within, sorted(levels)) if each.start < each.stop]


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
    given = pushdown if settings.pushdown is None else settings.pushdown
    return (FilteringReader if given else BatchReader)(settings, schema, queue)
