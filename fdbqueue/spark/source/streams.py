"""Settings, limits and offsets of both stream readers.

Spark calls a reader in a process of the driver, in this order for each micro-batch: the latest
offset, which it logs; the commit of the batch before; the partitions, which tasks then read.
Offsets come back from the checkpoint as they were given, so each names what it belongs to.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from msgspec import Struct
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...errors import CorruptData, InvalidInput, InvalidOptions, QueueError
from ...messages.streams import planning
from ...messages.streams.planning import Limits
from ...subscriptions.start_position import FIRST, StartPosition
from ...values.options import check_name
from ..stores import SharedQueue
from .leading import leading
from .rows import Decoder, Layout
from .settings import STREAM, Location, Options

BROWSE, CONSUME = "browse", "consume"
_EARLIER = "an earlier queue of the same name, whose identity was"

Offset = dict[str, Any]
Starts = tuple[tuple[int | None, StartPosition], ...]


class Settings(Struct, frozen=True):
    """The options of a stream.

    consumer: the owner of the plans; empty to browse. starts, since: where a new browsing stream
    begins, by level, or from which time on, in milliseconds. least, delay: how many messages a
    batch waits for, and how many seconds. partitions: at most so many a batch; None for one each
    core. strict: stop at a gap.
    """

    location: Location
    layout: Layout
    mode: str
    consumer: str
    starts: Starts
    since: int | None
    least: int
    delay: int
    messages: int
    size: int
    partitions: int | None
    strict: bool

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Settings:
        """Parse and check. Raises ``InvalidOptions``, ``InvalidArgument``."""
        options = Options(texts, STREAM)
        layout = Layout.of(options)
        if layout.table != "ready":
            raise InvalidOptions(
                option="table", problem="streams read ready messages; read others as a table"
            )
        mode = options.choice("mode")
        consumer, since = options.text("consumer"), options.time("startingTimestamp")
        start = options.text("startingOffsets")
        if mode == CONSUME:
            if not consumer:
                raise InvalidOptions(
                    option="consumer",
                    problem="mode consume needs it: a unique name of the query, the same at every "
                    "restart",
                )
            check_name(consumer)
            for name in ("startingOffsets", "startingTimestamp"):
                if name in options:
                    raise InvalidOptions(
                        option=name, problem="mode consume always begins with the first message"
                    )
        elif start is not None and since is not None:
            raise InvalidOptions(
                option="startingTimestamp", problem="give either this or startingOffsets"
            )
        elif consumer is not None:
            raise InvalidOptions(option="consumer", problem="it needs mode to be 'consume'")
        return cls(
            location=Location.of(options),
            layout=layout,
            mode=mode,
            consumer=consumer or "",
            starts=_starts(start or FIRST),
            since=since,
            least=options.number("minMessagesPerBatch"),
            delay=options.number("maxTriggerDelay"),
            messages=options.number("maxMessagesPerBatch"),
            size=options.size("maxBytesPerBatch"),
            partitions=options.integer("partitions"),
            strict=options.truth("failOnDataLoss"),
        )


def _starts(text: str) -> Starts:
    """Where a stream begins, by level; None for all levels."""
    option = "startingOffsets"
    if not text.lstrip().startswith("{"):
        return ((None, StartPosition.of(option, text)),)
    try:
        given = {int(level): StartPosition.of(option, name) for level, name in _pairs(text)}
    except (ValueError, AttributeError):
        raise InvalidOptions(
            option=option, problem=f'{text!r} is not JSON like {{"0": "now", "5": "first"}}'
        ) from None
    for level, start in given.items():
        if start.position is not None and start.position.level != level:
            raise InvalidOptions(option=option, problem=f"{start.name} is not of level {level}")
    return tuple(given.items())


def _pairs(text: str) -> list[tuple[str, object]]:
    return list(json.loads(text).items())


@dataclass(eq=False)
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The common part of both readers. Plain values only: Spark pickles it to its tasks."""

    _settings: Settings
    _schema: StructType
    _queue: SharedQueue
    _ends: dict[int, int] | None = None
    _waits_since: float | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> Self:
        """A reader whose options, schema and queue are checked.

        Raises ``InvalidOptions``, ``InvalidSchema``, ``InvalidArgument``, ``QueueNotFound``, and a
        ``StoreError`` if there is no store.
        """
        settings = Settings.of(options)
        Decoder(settings.layout, schema)
        queue = SharedQueue.find(settings.location)
        if any((level or 0) not in range(queue.levels) for level, _ in settings.starts):
            raise InvalidOptions(
                option="startingOffsets", problem=f"the levels are 0 to {queue.levels - 1}"
            )
        return cls(settings, schema, queue)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a batch, unless Spark asks for everything."""
        return ReadMaxRows(self._settings.messages)

    @leading()
    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the queue ends now."""
        self._ends = self.ends()

    @leading()
    def reportLatestOffset(self) -> Offset:
        """For the progress report: the queue's counters, and its lag in milliseconds; and the
        backlog of a stream that takes messages, under names as Delta's have."""
        db, queue = self._queue.open()
        depth, since_ms = queue.depth(db), queue.admin.ready_since_ms(db)
        lag_ms = 0 if since_ms is None else max(0, queue._clock.now_ms(db) - since_ms)
        told = {
            "queue": queue.name,
            "ready": depth.ready,
            "delayed": depth.delayed,
            "leased": depth.leased,
            "dead": depth.dead,
            "lagMs": lag_ms,
        }
        if self._settings.mode == CONSUME:
            told |= {
                "numMessagesOutstanding": depth.ready,
                "numBytesOutstanding": depth.ready_bytes,
            }
        return told

    @property
    def partitions_at_most(self) -> int:
        """The most partitions of a batch."""
        return self._settings.partitions or os.cpu_count() or 1

    def waits(self, ready: int) -> bool:
        """Whether a batch of so many messages waits for more."""
        if self._ends is not None or ready >= self._settings.least:
            self._waits_since = None
            return False
        now = time.monotonic()
        if ready and self._waits_since is None:
            self._waits_since = now
        if self._waits_since is None or now - self._waits_since < self._settings.delay:
            return True
        self._waits_since = None
        return False

    def ends(self) -> dict[int, int]:
        """How far each level reaches now."""
        db, queue = self._queue.open()
        return queue._read(db, lambda tr: planning.ends(tr, queue._scope(tr)))

    def limits(self, limit: ReadLimit) -> Limits:
        """The limits of a batch, of Spark and of the options."""
        if isinstance(limit, ReadAllAvailable):
            return Limits(None, None, self.ends() if self._ends is None else self._ends)
        asked = limit.max_rows if isinstance(limit, ReadMaxRows) else self._settings.messages
        return Limits(asked, self._settings.size, self._ends)

    def identify(self) -> Offset:
        """The part of each offset that names what it belongs to."""
        return {
            "mode": self._settings.mode,
            "queue": self._settings.location.queue,
            "consumer": self._settings.consumer,
            "identity": self._queue.identity,
        }

    def verify(self, offset: Offset) -> Offset:
        """An offset of this stream. Raises ``InvalidInput``, ``CorruptData`` for others."""
        for name, value in self.identify().items():
            if name not in offset:
                raise CorruptData(what="the checkpoint", problem=f"its offset has no {name!r}")
            if offset[name] != value:
                what = _EARLIER if name == "identity" else name
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


def other_checkpoint(stored: str, given: str) -> InvalidInput:
    """What is raised when a stream is started with the checkpoint of another one."""
    problem = (
        f"the checkpoint belongs to {stored}, but the query reads {given}: use the query's own "
        "checkpoint, or a new one"
    )
    return InvalidInput(problem=problem)
