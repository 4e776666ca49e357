"""Batch reads: the tables of a queue as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ...errors import InvalidOptions
from ...messages.streams import table_scan
from ...values.records import record
from ...values.selector import Selector
from ..stores import SharedQueue
from . import pushdown, tables
from .rows import Decoder, Layout
from .settings import BATCH, Location, Options
from .tables import RowFilter

PARTITION_BYTES = 4_000_000


@record
class Settings:
    """The options of a batch read."""

    location: Location
    layout: Layout
    row_filter: RowFilter
    partition_bytes: int
    pushdown: bool

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
            options.size("partitionBytes", PARTITION_BYTES, 10_000, 100_000_000),
            options.truth("pushdown"),
        )


@dataclass
class TablePartition(InputPartition):
    """A range of keys of one part of a table."""

    part: str
    begin: bytes
    end: bytes


class BatchReader(DataSourceReader):
    """Reads a table. Plain values only: Spark pickles it to its tasks."""

    def __init__(self, settings: Settings, schema: StructType, queue: SharedQueue) -> None:
        self._settings = settings
        self._schema = schema
        self._queue = queue

    def partitions(self) -> list[InputPartition]:
        """Ranges of each level, none of them too large for a transaction."""
        settings = self._settings
        db, queue = self._queue.open()
        levels = range(self._queue.levels)
        parts = tables.ranges(queue._keys, settings.layout.table, levels, settings.row_filter)
        partitions: list[InputPartition] = [
            TablePartition(part, cut.start, cut.stop)
            for part, ranges in parts.items()
            for cut in table_scan.split(db, ranges, settings.partition_bytes)
        ]
        return partitions or [InputPartition(None)]

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
    """A reader that takes the query's conditions, so that it reads less."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read down. Spark still evaluates every condition."""
        time = pushdown.TIMES[self._settings.layout.table]
        levels = range(self._queue.levels)
        narrowed = pushdown.narrow(self._settings.row_filter, filters, time, levels)
        self._settings = replace(self._settings, row_filter=narrowed)
        return filters


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
