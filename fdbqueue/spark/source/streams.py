"""What the two stream readers have in common: their options, limits and offsets.

Spark calls the readers in a process of the driver, in this order for each micro-batch: the latest
offset, which it writes down; the commit of the batch before; the partitions, which tasks then read.
Offsets come back from the checkpoint as they were given, so they tell what they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from ...errors import CheckpointMismatch, CorruptData, InvalidOptions
from ...messages.streams.planning import Limits
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.options import check_name
from ...values.records import record
from .. import stores
from ..stores import Seen
from . import tables
from .batch import BATCH_ROWS
from .rows import Decoder, Layout
from .settings import STREAM, Given, Place
from .tables import Wanted

BROWSE, CONSUME = "browse", "consume"
BATCH_MESSAGES = 50_000
BATCH_BYTES = 256_000_000
MAX_MESSAGES = 10_000_000
_ALL = Wanted()
_EARLIER = "an earlier queue of the same name, whose identity was"

Offset = dict[str, Any]


@record
class Settings:
    """What a stream is told by its options.

    consumer: in whose name messages are taken; empty where they are looked at. start: where a new
    stream begins to look. partitions: into how many a batch is split at most; None for as many as
    there are cores. strict: whether a gap ends the stream.
    """

    place: Place
    layout: Layout
    mode: str
    consumer: str
    start: str
    messages: int
    size: int
    partitions: int | None
    strict: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Checked; raises ``InvalidOptions``, ``InvalidName``."""
        given = Given(options, STREAM)
        layout = Layout.of(given)
        if layout.table != "ready":
            raise InvalidOptions(
                option="table", problem="a stream is of ready messages; read others as a table"
            )
        mode = given.choice("mode", (BROWSE, CONSUME), BROWSE)
        consumer, start = given.text("consumer"), given.text("startingPosition")
        if mode == CONSUME:
            if not consumer:
                raise InvalidOptions(
                    option="consumer",
                    problem="mode consume needs it: a name of the stream, the same whenever it is "
                    "started again, and no other stream's",
                )
            check_name(consumer)
            if start is not None:
                raise InvalidOptions(
                    option="startingPosition", problem="mode consume begins with the first message"
                )
        elif consumer is not None:
            raise InvalidOptions(option="consumer", problem="it needs mode to be 'consume'")
        return cls(
            place=Place.of(given),
            layout=layout,
            mode=mode,
            consumer=consumer or "",
            start=start or "first",
            messages=given.whole("maxMessagesPerBatch", BATCH_MESSAGES, 1, MAX_MESSAGES),
            size=given.size("maxBytesPerBatch", BATCH_BYTES, 1, 10**12),
            partitions=given.whole("partitions", None, 1, 10_000),
            strict=given.truth("failOnDataLoss", mode == CONSUME),
        )


class StreamReader(DataSourceStreamReader):
    """The part of both that is small and plain, and is pickled to where a task reads."""

    def __init__(self, settings: Settings, schema: StructType, seen: Seen) -> None:
        self._settings = settings
        self._schema = schema
        self._seen = seen

    def getDefaultReadLimit(self) -> ReadLimit:
        """What a batch may hold, unless Spark asks for all there is."""
        return ReadMaxRows(self._settings.messages)

    def reportLatestOffset(self) -> Offset:
        """For the progress report: what waits in the queue, and for how many milliseconds."""
        db, queue = self._seen.open()
        depth, since_ms = queue.depth(db), queue.ready_since_ms(db)
        lag_ms = 0 if since_ms is None else max(0, queue._clock.now_ms(db) - since_ms)
        return {
            "queue": queue.name,
            "ready": depth.ready,
            "delayed": depth.delayed,
            "leased": depth.leased,
            "dead": depth.dead,
            "lagMs": lag_ms,
        }

    def limits(self, limit: ReadLimit, ends: Mapping[int, int] | None) -> Limits:
        """What Spark asks for, and what the options say."""
        if isinstance(limit, ReadAllAvailable):
            return Limits(None, None, ends)
        asked = limit.max_rows if isinstance(limit, ReadMaxRows) else self._settings.messages
        return Limits(asked, self._settings.size, ends)

    def belongs(self, offset: Offset) -> Offset:
        """An offset of this stream; raises ``CheckpointMismatch``, ``CorruptData``."""
        mine: Offset = {"mode": self._settings.mode, "queue": self._settings.place.queue}
        if self._settings.consumer:
            mine["consumer"] = self._settings.consumer
        mine["identity"] = self._seen.identity
        for what, given in mine.items():
            if what not in offset:
                raise CorruptData(what="the checkpoint", problem=f"its offset has no {what!r}")
            if offset[what] != given:
                said = _EARLIER if what == "identity" else what
                raise CheckpointMismatch(what=said, stored=offset[what], given=given)
        return offset

    def rows(
        self, db: fdb.Database, queue: Queue, part: str, within: slice
    ) -> Iterator[pa.RecordBatch]:
        """The messages of a range of keys."""
        decoder = Decoder(self._settings.layout, self._schema)
        for block in tables.blocks(db, queue._keys, part, within, _ALL, 0):
            for begin in range(0, len(block), BATCH_ROWS):
                yield decoder.batch(block.part(begin, begin + BATCH_ROWS))
        # An identity never comes back: so all of that was of this queue, if it is still there.
        queue.options(db)


def mode(options: Mapping[str, str]) -> str:
    """Which of the two it is. Raises ``InvalidOptions``."""
    return Settings.of(options).mode


def prepare(options: Mapping[str, str], schema: StructType) -> tuple[Settings, StructType, Seen]:
    """What a reader is made of, after everything was checked that can be checked on the driver.

    Raises ``InvalidOptions``, ``InvalidSchema``, ``InvalidName``, ``QueueNotFound``, and a
    ``StoreError`` where the store is not there.
    """
    settings = Settings.of(options)
    Decoder(settings.layout, schema)
    return settings, schema, stores.look(settings.place)
