"""The tables of a queue: where they are stored, and how a task reads a part of one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple
from pyspark.sql.datasource import (
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

from ...errors import InvalidOptions, RowsLost
from ...messages import history
from ...messages.run import NOWHERE
from ...messages.streams import table_scan
from ...messages.streams.table_scan import ScanPage
from ...queue.internals import Internals
from ...queue.queue import Queue
from ...schema.envelope import Envelope, open_envelope
from ...schema.keys import QueueKeys
from ...schema.records import DeadLetter, Delayed, HistoryLine
from ...store.binding import fdb
from ...values.model import Due, Position
from ...values.selector import Selector
from ..stores import SharedQueue
from . import places
from .columns import ENVELOPES, TABLES, ColumnRows, Decoder, Layout, as_text, decoding, values
from .leading import leading
from .places import Places
from .settings import Location, Option, UserOptions

HISTORY = "history"
TIMES = dict.fromkeys(TABLES, "enqueued_at")
TIMES |= {"retrying": "due_at", "scheduled": "due_at", "dead": "died_at", HISTORY: "at"}
"""The columns of the tables' own times."""
LATER = {"retrying": True, "scheduled": False}
"""Whether the messages of the tables of what comes later have failed; these stand together."""
_BATCH_ROWS = 10_000
_FAILURES_PAGE_BYTES = 500_000
"""How much is read at once of messages whose failed attempts are read, too."""
_NONE = Envelope(b"", 0, 0)
_EVENT = ("stamp", "transition", "id", "level", "attempt", "consumer", "at", "place")

COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    In: lambda value, some: value in some,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
"""The conditions of Spark that a read can check."""


class RowFilter(Struct, frozen=True):
    """Which rows of a table to read.

    since, until: the range of the table's own time, in milliseconds, without ``until`` itself.
    conditions: of ``COMPARE``, on columns that ``columns.values`` knows.
    """

    levels: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    selector: Selector | None = None
    conditions: tuple[Filter, ...] = ()

    def accepts(self, level: int | None, at_ms: int | None) -> bool:
        """Whether level and time are in range. A row without a time passes if no range is set."""
        if self.levels is not None and level not in self.levels:
            return False
        if at_ms is None:
            return self.since is None and self.until is None
        return (self.since is None or self.since <= at_ms) and (
            self.until is None or at_ms < self.until
        )

    def mask(self, rows: ColumnRows, time: str, now_ms: int) -> list[bool]:
        """Which of some rows to read. time: the column of the table's own time."""
        mask = list(map(self.accepts, rows["level"], values(rows, time)))
        for each in self.conditions:
            holds, wanted = COMPARE[type(each)], vars(each)["value"]
            some = wanted if isinstance(wanted, tuple) else (wanted,)
            found: Iterable[Any] = values(rows, vars(each)["attribute"][0])
            if any(isinstance(one, str) for one in some):
                found = map(as_text, found)
            mask = [
                taken and value is not None and holds(value, wanted)
                for taken, value in zip(mask, found, strict=True)
            ]
        if self.selector is not None:
            placed = zip(mask, rows[ENVELOPES], rows["level"], strict=True)
            mask = [
                taken
                and self.selector.matches(each.properties(Position(level or 0, 0, b"")), now_ms)
                for taken, each, level in placed
            ]
        return mask


EVERYTHING = RowFilter()


def _messages(
    packed: Sequence[bytes], ids: Sequence[str | None], levels: Sequence[int | None], **others: Any
) -> ColumnRows:
    envelopes = [open_envelope(each) for each in packed]
    ids = [each.id or place for each, place in zip(envelopes, ids, strict=True)]
    return ColumnRows({"id": ids, "level": levels, ENVELOPES: envelopes}, **others)


def _placed(
    positions: Sequence[Position],
    packed: Sequence[bytes],
    places: Sequence[Position | Due] | None = None,
    **others: Any,
) -> ColumnRows:
    """Messages with these positions. places: what their ids name, if not the positions."""
    ids = [None if each is NOWHERE else each.to_id() for each in places or positions]
    levels = [None if each is NOWHERE else each.level for each in positions]
    return _messages(packed, ids, levels, **others)


def _ready(keys: QueueKeys, page: ScanPage) -> ColumnRows:
    levels, ids = page.places()
    return _messages(page.values, ids, levels)


def _waiting(keys: QueueKeys, page: ScanPage) -> ColumnRows:
    return _placed(*_columns(_opened(page), 2))


def _later(keys: QueueKeys, page: ScanPage) -> ColumnRows:
    dues = [Due(*keys.delayed.parse(key)) for key in page.keys]
    positions, packed = _columns(_opened(page), 2)
    # A scheduled message never had a position: its id names when it is due.
    places = [at if at.index else due for at, due in zip(positions, dues, strict=True)]
    return _placed(positions, packed, places, due_at=[due.due_ms for due in dues])


def _leased(keys: QueueKeys, page: ScanPage) -> ColumnRows:
    levels, ids = page.places()
    return _messages(
        page.values,
        ids,
        levels,
        consumer=[lease.consumer if lease else "" for lease in page.leases],
        lease_expires_at=[
            None if lease is None or lease.planned else lease.expiry_ms for lease in page.leases
        ],
    )


def _dead(keys: QueueKeys, page: ScanPage) -> ColumnRows:
    letters = [DeadLetter.opened(each, NOWHERE) for each in page.values]
    known = [None if each.position is NOWHERE else each for each in letters]
    return _placed(
        [each.position for each in letters],
        [each.packed for each in letters],
        reason=[each and each.reason for each in known],
        died_at=[each and each.died_at_ms for each in known],
    )


def _history(keys: QueueKeys, page: ScanPage) -> ColumnRows:
    events = []
    for key, value in zip(page.keys, page.values, strict=True):
        line = HistoryLine.unpack(value).events
        each = zip(keys.event.stamps(key, len(line)), line, strict=True)
        events += [(stamp, *fields) for stamp, fields in each]
    columns = zip(_EVENT, _columns(events, len(_EVENT)), strict=True)
    return ColumnRows({ENVELOPES: [_NONE] * len(events), **dict(columns)})


def _opened(page: ScanPage) -> list[tuple[Any, ...]]:
    return [astuple(Delayed.opened(each, NOWHERE)) for each in page.values]


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count


_PARTS: dict[str, Callable[[QueueKeys, ScanPage], ColumnRows]] = {
    "ready": _ready,
    "waiting": _waiting,
    **dict.fromkeys(LATER, _later),
    "leased": _leased,
    "dead": _dead,
    HISTORY: _history,
}
"""Readers of tables. ``leased`` is also what a stream has taken."""


@dataclass
class Scan(InputPartition):
    """What a task reads: ranges of keys of one table.

    planned: at least so many messages are there. every, in_every: the ranges of all that a stream
    which browses has planned, and how many messages they had. number: of a batch that a stream
    takes.
    """

    part: str
    ranges: tuple[slice, ...]
    planned: int = 0
    every: tuple[slice, ...] = ()
    in_every: int = 0
    number: int = 0


class ReadSettings(Struct, frozen=True, kw_only=True):
    """The options of every read. KNOWN: all that may be given."""

    KNOWN: ClassVar[Mapping[str, Option]]
    location: Location
    layout: Layout
    row_filter: RowFilter = EVERYTHING
    starting_offsets: Places | None
    ending_offsets: Places | None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Self:
        """Parse and check. Raises ``InvalidOptions``, ``InvalidSelector``, ``InvalidArgument``."""
        options = UserOptions(texts, cls.KNOWN)
        settings = cls(
            location=Location.of(options),
            layout=Layout.of(options),
            row_filter=RowFilter(**options.fields(RowFilter)),
            **options.fields(cls),
        )
        for option, problem in settings.problems():
            raise InvalidOptions(option=option, problem=problem)
        return settings

    def problems(self) -> Iterator[tuple[str, str]]:
        """Options that do not fit the others, and why."""
        raise NotImplementedError

    @property
    def places(self) -> tuple[Places, Places]:
        """Where to begin and to end."""
        return self.starting_offsets or (), self.ending_offsets or ()

    def find(self, schema: StructType) -> SharedQueue:
        """The queue, which is asked for rows of a schema.

        Raises ``InvalidOptions``, ``InvalidSchema``, ``QueueNotFound``, and a ``StoreError`` if
        there is no store.
        """
        # Made only for its errors: this process plans, and others decode.
        Decoder(self.layout, schema)
        queue = SharedQueue.find(self.location)
        places.check(sum(self.places, ()), queue.levels)
        if any(level >= queue.levels for level in self.row_filter.levels or ()):
            raise InvalidOptions(option="levels", problem=f"the levels are 0 to {queue.levels - 1}")
        return queue


@dataclass(eq=False)
class TableReader:
    """What tasks get of every reader: plain values only, which Spark pickles."""

    _settings: ReadSettings
    _schema: StructType
    _queue: SharedQueue

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in the order of their keys."""
        if isinstance(partition, Scan):
            with leading():
                yield from self._read(partition)

    def _read(self, partition: Scan) -> Iterator[pa.RecordBatch]:
        db, queue = self._queue.open()
        decoder = Decoder(self._settings.layout, self._schema)
        count = 0
        for each in partition.ranges:
            for messages, batch in self._batches(db, queue, decoder, partition, each):
                count += messages
                yield batch
        # Spark believes a short partition: rows that were taken meanwhile would vanish from the
        # result unnoticed.
        if count < partition.planned:
            self._miss(db, queue, partition)

    def _batches(
        self, db: fdb.Database, queue: Queue, decoder: Decoder, scan: Scan, within: slice
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a key range as Arrow batches, each with the number of its messages.

        See ``table_scan.pages`` for consistency. A batch may leave out messages that cannot be
        read. Raises ``QueueReplaced`` if another queue has the name at the end.
        """
        keys, row_filter, part = Internals(queue).keys, self._settings.row_filter, scan.part
        now_ms = Internals(queue).clock.now_ms(db) if row_filter.selector is not None else 0
        failed = part == "dead" and "failures" in self._schema.names

        def read(tr: fdb.Transaction, page: ScanPage) -> tuple[ColumnRows, int]:
            with decoding("a stored message"):
                rows = _PARTS[part](keys, page)
                # A line of history has several events, and no chunks.
                count = min(table_scan.fitting(rows[ENVELOPES]), len(page))
                if failed:
                    count = min(table_scan.fitting_failures(rows[ENVELOPES]), count)
                if count < len(page):
                    rows = rows.part(0, count)
                if part in LATER:
                    rows = rows.chosen([e.has_failed is LATER[part] for e in rows[ENVELOPES]])
                if row_filter != EVERYTHING:
                    # Before payloads are read: what the filter leaves out costs no chunks.
                    rows = rows.chosen(row_filter.mask(rows, TIMES[part], now_ms))
                # One more round trip if some payloads are in chunks.
                payloads = table_scan.contents(tr, keys, rows[ENVELOPES], rows["id"])
                rows = ColumnRows(rows, payload=payloads)
                if failed:
                    ids = rows["id"]
                    rows["failures"] = table_scan.failures(tr, keys, rows[ENVELOPES], ids)
                return rows, count

        def check(tr: fdb.Transaction, begin: bytes) -> None:
            # Lines are trimmed while a long table is read: its beginning would be missing without a
            # word. A stream checks that by its places.
            whole = part == HISTORY and not scan.in_every
            if whole and not history.are_kept(tr, keys, begin, row_filter.since):
                raise lines_lost(queue)

        size = _FAILURES_PAGE_BYTES if failed else table_scan.PAGE_BYTES
        for rows in table_scan.pages(db, keys, within, read, check=check, size=size):
            # Arrow batches of bounded size: Python's and Spark's memory hold one of them at a time.
            for begin in range(0, len(rows["id"]), _BATCH_ROWS):
                some = rows.part(begin, begin + _BATCH_ROWS)
                yield len(some["id"]), decoder.batch(some)
        # An identity never comes back: if it is still the same, all rows were this queue's.
        queue.options(db)

    def _miss(self, db: fdb.Database, queue: Queue, scan: Scan) -> None:
        """Raise an error about messages that are not there any more."""
        raise NotImplementedError


def lines_lost(queue: Queue, what: str = "lines of the history") -> RowsLost:
    """What is raised where lines of a history were removed before they were read."""
    return RowsLost(
        what=what,
        queue=queue.name,
        gone="removed",
        remedy="set the option skipExpiring to the seconds that a read takes, or since to a later "
        "time, or keep the history longer; of a stream, set failOnDataLoss to false",
    )
