"""Reading tables of a queue: what stands there now."""

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
from .. import stores
from ..stores import Seen
from . import pushdown as pushing
from . import tables
from .rows import Decoder, Layout
from .settings import BATCH, Given, Place
from .tables import Wanted

PARTITION_BYTES = 4_000_000
BATCH_ROWS = 10_000


@record
class Settings:
    """What a batch read is told by its options."""

    place: Place
    layout: Layout
    wanted: Wanted
    partition_bytes: int
    pushdown: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Checked; raises ``InvalidOptions``, ``InvalidSelector``."""
        given = Given(options, BATCH)
        selector = given.text("selector")
        layout = Layout.of(given)
        if selector is not None and layout.table == tables.HISTORY:
            raise InvalidOptions(option="selector", problem="it is about messages, not history")
        return cls(
            Place.of(given),
            layout,
            Wanted(
                given.numbers("levels"),
                given.moment("since"),
                given.moment("until"),
                None if selector is None else Selector(selector),
            ),
            given.size("partitionBytes", PARTITION_BYTES, 10_000, 100_000_000),
            given.truth("pushdown"),
        )


@dataclass
class Piece(InputPartition):
    """A range of keys of one part of a table."""

    part: str
    begin: bytes
    end: bytes


class BatchReader(DataSourceReader):
    """Reads a table. Small and plain: it is pickled to where it reads."""

    def __init__(self, settings: Settings, schema: StructType, seen: Seen) -> None:
        self._settings = settings
        self._schema = schema
        self._seen = seen

    def partitions(self) -> list[InputPartition]:
        """The pieces of the table: by level, and so that none is too large for a transaction."""
        settings = self._settings
        db, queue = self._seen.open()
        parts = tables.ranges(
            queue._keys, settings.layout.table, range(self._seen.levels), settings.wanted
        )
        pieces: list[InputPartition] = [
            Piece(part, piece.start, piece.stop)
            for part, ranges in parts.items()
            for piece in table_scan.split(db, ranges, settings.partition_bytes)
        ]
        return pieces or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one piece, as they stand at one version: see ``picture.pages``."""
        if not isinstance(partition, Piece):
            return
        db, queue = self._seen.open()
        decoder = Decoder(self._settings.layout, self._schema)
        within = slice(partition.begin, partition.end)
        now_ms = queue._clock.now_ms(db)
        for block in tables.blocks(
            db, queue._keys, partition.part, within, self._settings.wanted, now_ms
        ):
            for begin in range(0, len(block), BATCH_ROWS):
                yield decoder.batch(block.part(begin, begin + BATCH_ROWS))
        # An identity never comes back: so all of that was of this queue, if it is still there.
        queue.options(db)


class PushingReader(BatchReader):
    """Reads a table, and less of it where the query's conditions allow it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow down what is read; every condition still stands."""
        time = pushing.TIMES[self._settings.layout.table]
        wanted = pushing.narrowed(self._settings.wanted, filters, time, range(self._seen.levels))
        self._settings = replace(self._settings, wanted=wanted)
        return filters


def reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """A reader, after everything was checked that can be checked on the driver.

    Raises ``InvalidOptions``, ``InvalidSchema``, ``InvalidSelector``, ``QueueNotFound``, and a
    ``StoreError`` where the store is not there.
    """
    settings = Settings.of(options)
    Decoder(settings.layout, schema)
    seen = stores.look(settings.place)
    levels = settings.wanted.levels or frozenset()
    if any(level >= seen.levels for level in levels):
        raise InvalidOptions(option="levels", problem=f"the levels are 0 to {seen.levels - 1}")
    if settings.pushdown:
        return PushingReader(settings, schema, seen)
    return BatchReader(settings, schema, seen)
