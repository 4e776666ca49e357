"""Batch reads: the tables of a queue as they are now."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from msgspec import Struct
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
from pyspark.sql.types import StructType

from ...errors import InvalidOptions
from ...messages.streams import table_scan
from ...values.selector import Selector
from ..stores import SharedQueue
from . import tables
from .leading import all_leading, leading
from .rows import Decoder, Layout
from .settings import BATCH, Location, Options
from .tables import RowFilter


class Settings(Struct, frozen=True):
    """The options of a batch read."""

    location: Location
    layout: Layout
    row_filter: RowFilter
    partition_bytes: int
    pushdown: bool
    spare: int

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Settings:
        """Parse and check. Raises ``InvalidOptions``, ``InvalidSelector``."""
        options = Options(texts, BATCH)
        selector = options.text("selector")
        layout = Layout.of(options)
        if selector is not None and layout.table == tables.HISTORY:
            raise InvalidOptions(option="selector", problem="it selects messages, not history")
        return cls(
            Location.of(options),
            layout,
            RowFilter(
                options.numbers("levels"),
                options.time("since"),
                options.time("until"),
                None if selector is None else Selector(selector),
            ),
            options.size("partitionBytes"),
            options.truth("pushdown"),
            options.number("skipExpiring"),
        )


@dataclass
class TablePartition(InputPartition):
    """A range of keys of one part of a table."""

    part: str
    begin: bytes
    end: bytes


@dataclass(eq=False)
class BatchReader(DataSourceReader):
    """Reads a table. Plain values only: Spark pickles it to its tasks."""

    _settings: Settings
    _schema: StructType
    _queue: SharedQueue

    @leading()
    def partitions(self) -> list[InputPartition]:
        """Ranges of each level, none of them too large for a transaction."""
        settings = self._settings
        db, queue = self._queue.open()
        parts = tables.ranges(db, queue, settings.layout.table, settings.row_filter, settings.spare)
        partitions: list[InputPartition] = [
            TablePartition(part, cut.start, cut.stop)
            for part, ranges in parts.items()
            for cut in table_scan.split(db, queue._keys, ranges, settings.partition_bytes)
        ]
        return partitions or [InputPartition(None)]

    @all_leading
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition at one version: see ``table_scan.pages``."""
        if not isinstance(partition, TablePartition):
            return
        db, queue = self._queue.open()
        decoder = Decoder(self._settings.layout, self._schema)
        within = slice(partition.begin, partition.end)
        for _, batch in tables.batches(
            db, queue, decoder, partition.part, within, self._settings.row_filter
        ):
            yield batch


class FilteringReader(BatchReader):
    """A reader that takes the query's conditions, so that it reads less.

    Only with the option ``pushdown``: Spark refuses such readers unless
    ``spark.sql.python.filterPushdown.enabled`` is true.
    """

    @leading()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read down. Spark still evaluates every condition, so it may be coarse."""
        time = tables.TIMES.get(self._settings.layout.table, "enqueued_at")
        levels = range(self._queue.levels)
        narrowed = _narrowed(self._settings.row_filter, filters, time, levels)
        self._settings = replace(self._settings, row_filter=narrowed)
        return filters


_COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    In: lambda value, values: value in values,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def _narrowed(
    row_filter: RowFilter, filters: Iterable[Filter], time: str, levels: Sequence[int]
) -> RowFilter:
    """The row filter, narrowed by conditions on level and time that must all hold."""
    allowed, since, until = row_filter.levels, row_filter.since, row_filter.until
    for each in filters:
        column, value = getattr(each, "attribute", None), getattr(each, "value", None)
        compare = _COMPARE.get(type(each))
        if compare and column == ("level",) and value is not None:
            known = levels if allowed is None else allowed
            allowed = frozenset(level for level in known if compare(level, value))
        elif column == (time,) and isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            at_ms = int(aware.timestamp() * 1000)
            if isinstance(each, GreaterThan | GreaterThanOrEqual):
                since = max(at_ms, since or at_ms)
            elif isinstance(each, LessThan | LessThanOrEqual):
                # The condition may include this very millisecond.
                until = min(at_ms + 1, until or at_ms + 1)
    return replace(row_filter, levels=allowed, since=since, until=until)


def reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """A reader whose options, schema and queue are checked.

    Raises ``InvalidOptions``, ``InvalidSchema``, ``InvalidSelector``, ``QueueNotFound``, and a
    ``StoreError`` if there is no store.
    """
    settings = Settings.of(options)
    Decoder(settings.layout, schema)
    queue = SharedQueue.find(settings.location)
    levels = settings.row_filter.levels or frozenset()
    if any(level >= queue.levels for level in levels):
        raise InvalidOptions(option="levels", problem=f"the levels are 0 to {queue.levels - 1}")
    kind = FilteringReader if settings.pushdown else BatchReader
    return kind(settings, schema, queue)
