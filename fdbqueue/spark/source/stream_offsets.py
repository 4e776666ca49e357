"""Settings, limits and offsets of both stream readers.

Spark calls a reader in a process of the driver, in this order for each micro-batch: the latest
offset, which it logs; the commit of the batch before; the partitions, which tasks then read.
Offsets come back from the checkpoint as they were given, so each names what it belongs to.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...errors import CorruptData, InvalidInput, QueueError
from ...messages.streams import table_scan
from ...messages.streams.planning import BatchLimits
from ...messages.streams.table_scan import ScanPage
from ...queue.internals import Internals
from ...queue.streams.planner import Planner
from ...schema import once
from ...schema.keys import LOWEST, QueueKeys
from ...store.binding import fdb
from ...subscriptions.external_cursors import Stretch
from ...subscriptions.start_position import FIRST, NOW, StartPosition
from ..stores import SharedQueue
from . import browsed, places, tables
from .browsed import BrowsedReady
from .leading import leading
from .places import Places
from .settings import STREAM

BROWSE, CONSUME = "browse", "consume"
_EARLIER = "an earlier queue of the same name, whose identity was"
_NO_END = 1 << 62
_COUNTED = ("ready", "waiting", "retrying", "scheduled", "leased", "dead")
_FIRST: Places = ((None, StartPosition.of("startingOffsets", FIRST)),)
_NOW: Places = ((None, StartPosition.of("startingTimestamp", NOW)),)

Offset = dict[str, Any]


class StreamSettings(tables.ReadSettings, frozen=True, kw_only=True):
    """The options of a stream."""

    KNOWN = STREAM
    mode: str
    consumer: str | None
    starting_timestamp: int | None
    min_messages_per_batch: int
    max_trigger_delay: int
    max_messages_per_batch: int
    max_bytes_per_batch: int
    partitions: int | None
    fail_on_data_loss: bool

    def problems(self) -> Iterator[tuple[str, str]]:
        table, (starts, ends) = self.layout.table, self.places
        if self.mode == CONSUME:
            if table != "ready":
                yield "table", "a stream takes ready messages only"
            if self.consumer is None:
                yield "consumer", "mode consume needs it: a unique name, the same at every restart"
        elif self.consumer is not None:
            yield "consumer", "it needs mode to be 'consume'"
        if table not in browsed.TABLES:
            yield "table", "streams browse ready messages, dead letters and history"
        if starts and self.starting_timestamp is not None:
            yield "startingTimestamp", "give either this or startingOffsets"
        if table == "ready":
            return
        if ends:
            yield "endingOffsets", "only ready messages have places"
        if any(level is not None or place.position for level, place in starts):
            yield "startingOffsets", "a log begins at first, or now"


class PlannedBatch(NamedTuple):
    """A batch of a stream that browses: between which offsets, and what it passes."""

    start: Offset
    end: Offset
    stretches: list[Stretch]


@dataclass
class StreamProgress:
    """How far a stream has come, as only the driver knows: tasks get nothing of it.

    stops: where the stream ends, if Spark wants it to end; bounds: where the options want it to.
    waits_since: since when messages wait for more of them. planner: this run of a consumer.

    Of one that browses: first: where it begins. planned: the last batch, and those behind it.
    verified: whether the checkpoint fits the queue. seen: the version at which nothing more was
    there.
    """

    stops: dict[int, int] | None = None
    bounds: dict[int, int] | None = None
    waits_since: float | None = None
    planner: Planner | None = None
    first: Offset | None = None
    planned: deque[PlannedBatch] = field(default_factory=deque)
    verified: bool = False
    seen: int = 0


class StreamReader(tables.TableReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The common part of both readers. parallelism: of the cluster."""

    _settings: StreamSettings

    def __init__(
        self, settings: StreamSettings, schema: StructType, queue: SharedQueue, parallelism: int = 0
    ) -> None:
        super().__init__(settings, schema, queue)
        self._progress = StreamProgress()
        self._parts = settings.partitions or parallelism or os.cpu_count() or 1

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._settings, self._schema, self._queue)

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, parallelism: int = 0) -> Self:
        """A reader whose options, schema and queue are checked.

        Raises what ``StreamSettings.of`` and ``find`` raise.
        """
        settings = StreamSettings.of(options)
        return cls(settings, schema, settings.find(schema), parallelism)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a batch, unless Spark asks for everything."""
        return ReadMaxRows(self._settings.max_messages_per_batch)

    @leading()
    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the queue ends now."""
        self._progress.stops = self.ends()

    @leading()
    def reportLatestOffset(self) -> Offset:
        """For the progress report: the queue's counters, and its lag in milliseconds; and the
        backlog of a stream that takes messages, under names as Delta's have."""
        db, queue = self._queue.open()
        depth, since_ms = queue.depth(db), queue.admin.ready_since_ms(db)
        lag_ms = 0 if since_ms is None else max(0, Internals(queue).clock.now_ms(db) - since_ms)
        told = {"queue": queue.name, **{each: getattr(depth, each) for each in _COUNTED}}
        told["lagMs"] = lag_ms
        if self._settings.mode == CONSUME:
            told |= {
                "numMessagesOutstanding": depth.ready + depth.waiting,
                "numBytesOutstanding": depth.ready_bytes,
            }
        return told

    def waits(self, ready: int) -> bool:
        """Whether a batch of so many messages waits for more."""
        # A run that is to end with what is there waits for nothing more.
        if self._progress.stops is not None or ready >= self._settings.min_messages_per_batch:
            self._progress.waits_since = None
            return False
        now, since = time.monotonic(), self._progress.waits_since
        if since is None or now - since < self._settings.max_trigger_delay:
            # The delay counts from the first message that waits, and not from each look.
            self._progress.waits_since = now if since is None and ready else since
            return True
        self._progress.waits_since = None
        return False

    @property
    def _table(self) -> BrowsedReady:
        return browsed.TABLES[self._settings.layout.table]

    def begins(self) -> dict[int, bytes]:
        """Where a new stream begins, by level. No later enqueue commits a message before it."""
        db, queue = self._queue.open()
        table, since = self._table, self._settings.starting_timestamp
        starts = (self._settings.starting_offsets or _FIRST) if since is None else _NOW

        def begin(tr: fdb.Transaction) -> dict[int, bytes]:
            return table.begin(tr, Internals(queue).scope(tr), starts)

        places = once.run(db, Internals(queue).keys.once, begin)
        if since is None:
            return places
        return {
            level: _first_at(db, Internals(queue).keys, table, level, end, since)
            for level, end in places.items()
        }

    def ends(self) -> dict[int, int]:
        """How far each level reaches now."""
        return self._queue.read(self._table.ends)

    def limits(self, limit: ReadLimit) -> BatchLimits:
        """The limits of a batch, of Spark and of the options."""
        stops, everything = self._progress.stops, isinstance(limit, ReadAllAvailable)
        if everything and stops is None:
            stops = self.ends()
        _, ends = self._settings.places
        if ends:
            if self._progress.bounds is None:
                found = self._queue.read(partial(places.find, places=ends))
                self._progress.bounds = {
                    level: QueueKeys.parse_place(place) for level, place in found.items()
                }
            every = stops or dict.fromkeys(range(self._queue.levels), _NO_END)
            bounds = self._progress.bounds
            stops = {level: min(end, bounds.get(level, end)) for level, end in every.items()}
        if everything:
            return BatchLimits(None, None, stops)
        asked = (
            limit.max_rows
            if isinstance(limit, ReadMaxRows)
            else self._settings.max_messages_per_batch
        )
        return BatchLimits(asked, self._settings.max_bytes_per_batch, stops)

    def identify(self) -> Offset:
        """The part of each offset that names what it belongs to."""
        return {
            "mode": self._settings.mode,
            "table": self._settings.layout.table,
            "queue": self._settings.location.queue,
            "consumer": self._settings.consumer or "",
            "identity": self._queue.identity,
        }

    def verify(self, offset: Offset) -> Offset:
        """An offset of this stream. Raises ``InvalidInput``, ``CorruptData`` for others."""
        for name, value in self.identify().items():
            if name not in offset:
                raise CorruptData(what="the checkpoint", problem=f"its offset has no {name!r}")
            if offset[name] != value:
                what = _EARLIER if name == "identity" else name
                # A checkpoint of another queue would acknowledge, or skip, messages that its query
                # never saw.
                raise other_checkpoint(f"{what} {offset[name]!r}", repr(value))
        return offset


class Refused(DataSourceStreamReader):
    """Raises an error at the first call: Spark hides one that it gets instead of a reader."""

    def __init__(self, error: QueueError) -> None:
        self._error = error

    @leading()
    def _refuse(self, *_: object) -> Any:
        raise self._error

    latestOffset = partitions = read = _refuse  # type: ignore[assignment]
    initialOffset = getDefaultReadLimit = _refuse


def _first_at(
    db: fdb.Database, keys: QueueKeys, table: BrowsedReady, level: int, end: bytes, since_ms: int
) -> bytes:
    """The place of the first row before a place that has a time or a later one, or that place."""
    prefix = table.prefix(keys, level)

    def read(tr: fdb.Transaction, page: ScanPage) -> tuple[bytes | None, int]:
        each = zip(page.keys, page.values, strict=True)
        found = (key[len(prefix) :] for key, value in each if table.at_ms(value) >= since_ms)
        return next(found, None), len(page)

    for place in table_scan.pages(db, keys, slice(prefix + LOWEST, prefix + end), read):
        if place is not None:
            return place
    return end


def other_checkpoint(stored: str, given: str) -> InvalidInput:
    """What is raised when a stream is started with the checkpoint of another one."""
    problem = (
        f"the checkpoint belongs to {stored}, but the query reads {given}: use the query's own "
        "checkpoint, or a new one"
    )
    return InvalidInput(problem=problem)
