"""The tables of a queue: their key ranges, and the rows that are stored there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import pyarrow as pa

from ...errors import CorruptData, FormatTooNew
from ...messages.streams import table_scan
from ...queue.queue import Queue
from ...schema.codec.dead_letters import open_dead
from ...schema.codec.delayed import open_delayed
from ...schema.codec.envelopes import FIELDS, open_envelope, open_fields
from ...schema.codec.history import unpack_event
from ...schema.codec.leases import Lease, unpack_lease
from ...schema.keys import Kind, QueueKeys
from ...store.binding import fdb
from ...values.model import Due, Position
from ...values.records import record
from ...values.selector import Selector
from .rows import Block, Decoder, decoding

HISTORY = "history"
_BATCH_ROWS = 10_000
_ID, _ENQUEUED_AT = FIELDS["id"], FIELDS["enqueued_at_ms"]
_NOWHERE = Position(0, 0, b"")
"""Of a message whose position cannot be read either."""
_EVENT = ("transition", "id", "level", "attempt", "consumer", "at", "place")


@record
class RowFilter:
    """Which rows of a table to read.

    since, until: the range of the table's own time, in milliseconds, without ``until`` itself.
    """

    levels: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    selector: Selector | None = None

    def accepts(self, level: int | None, at_ms: int | None) -> bool:
        """Whether level and time are in range. A row without a time passes if no range is set."""
        if self.levels is not None and level not in self.levels:
            return False
        if at_ms is None:
            return self.since is None and self.until is None
        return (self.since is None or self.since <= at_ms) and (
            self.until is None or at_ms < self.until
        )


EVERYTHING = RowFilter()


@dataclass(slots=True)
class Rows:
    """Stored messages.

    packed: their envelopes. fields: the contents of these. extra: columns that their kind of key
    adds. times: the table's own time, if it is not the time of the enqueue.
    """

    levels: Sequence[int | None]
    ids: Sequence[str | None]
    packed: Sequence[bytes]
    fields: Sequence[dict[int, Any]]
    extra: dict[str, Sequence[Any]] = field(default_factory=dict)
    times: Sequence[int | None] | None = None

    @classmethod
    def at(
        cls,
        places: Sequence[Position | Due],
        levels: Sequence[int | None],
        packed: Sequence[bytes],
        **extra: Sequence[Any],
    ) -> Rows:
        """Messages whose ids name these places, unless their envelopes have other ids."""
        ids = [None if each is _NOWHERE else each.to_id() for each in places]
        return cls(levels, ids, packed, open_fields(packed), extra)

    def chosen(self, mask: Sequence[bool]) -> Rows:
        """The rows for which the mask is true."""
        return Rows(
            list(compress(self.levels, mask)),
            list(compress(self.ids, mask)),
            list(compress(self.packed, mask)),
            list(compress(self.fields, mask)),
            {name: list(compress(values, mask)) for name, values in self.extra.items()},
        )


Read = Callable[[QueueKeys, Sequence[fdb.KeyValue]], Rows]


def _ready(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    packed = [kv.value for kv in rows]
    levels, ids = keys.ready_ids([kv.key for kv in rows])
    return Rows(levels, ids, packed, open_fields(packed), {"blocked": [False] * len(rows)})


def _blocked(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    positions, packed = _columns(_opened(open_delayed, rows, _NOWHERE), 2)
    return Rows.at(positions, _levels(positions), packed, blocked=[True] * len(rows))


def _delayed(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    dues = [Due(*keys.delayed.parse(kv.key)) for kv in rows]
    positions, packed = _columns(_opened(open_delayed, rows, _NOWHERE), 2)
    # A scheduled message never had a position: its id names when it is due.
    places = [at if at.index else due for at, due in zip(positions, dues, strict=True)]
    times = [due.due_ms for due in dues]
    found = Rows.at(places, _levels(positions), packed, due_at=times)
    return replace(found, times=times)


def _leased(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    leases = [Lease(*each) for each in _opened(unpack_lease, rows, _NOWHERE, 0, 0, "")]
    positions = [lease.position for lease in leases]
    return Rows.at(
        positions,
        _levels(positions),
        [lease.envelope for lease in leases],
        consumer=[lease.consumer for lease in leases],
        lease_expires_at=[None if lease.planned else lease.expiry_ms for lease in leases],
    )


def _dead(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    found_rows = _opened(open_dead, rows, _NOWHERE, None, None)
    positions, reasons, times, packed = _columns(found_rows, 4)
    found = Rows.at(positions, _levels(positions), packed, reason=reasons, died_at=times)
    return replace(found, times=times)


def _planned(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    return replace(_leased(keys, rows), extra={"blocked": [False] * len(rows)})


def _opened(
    read: Callable[[bytes], tuple[Any, ...]], rows: Sequence[fdb.KeyValue], *instead: Any
) -> list[tuple[Any, ...]]:
    """The values of rows. One that cannot be read is ``instead``, and all of it for an envelope."""
    try:
        return [read(kv.value) for kv in rows]
    except (CorruptData, FormatTooNew):
        return [_opened_one(read, kv.value, instead) for kv in rows]


def _opened_one(
    read: Callable[[bytes], tuple[Any, ...]], value: bytes, instead: tuple[Any, ...]
) -> tuple[Any, ...]:
    try:
        return read(value)
    except (CorruptData, FormatTooNew):
        return (*instead, value)


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count


def _levels(positions: Sequence[Position]) -> list[int | None]:
    return [None if each is _NOWHERE else each.level for each in positions]


_PARTS: dict[str, Read] = {
    "ready": _ready,
    "blocked": _blocked,
    "planned": _planned,
    "delayed": _delayed,
    "leased": _leased,
    "dead": _dead,
}
"""Readers of parts of tables. ``blocked`` is the part of ``ready`` that waits for others of its
ordering key; ``planned`` is what a stream has taken."""


def ranges(
    keys: QueueKeys, table: str, levels: Sequence[int], row_filter: RowFilter
) -> dict[str, list[slice]]:
    """The key ranges of a table, by part."""
    match table:
        case "ready":
            some = row_filter.levels if row_filter.levels is not None else levels
            each = [keys.ready_level(level) for level in sorted(some)]
            return {"ready": each, "blocked": [keys.kind(Kind.GROUP)]}
        case "delayed":
            delayed = keys.kind(Kind.DELAYED)
            if row_filter.until is not None:
                delayed = keys.delayed.before(row_filter.until)
            if row_filter.since is not None:
                delayed = slice(keys.delayed.before(row_filter.since).stop, delayed.stop)
            return {"delayed": [delayed] if delayed.start < delayed.stop else []}
        case "leased":
            return {"leased": [keys.kind(Kind.LEASE)]}
        case "dead":
            return {"dead": [keys.kind(Kind.DEAD)]}
    return {HISTORY: [keys.kind(Kind.EVENT)]}


def batches(
    db: fdb.Database,
    queue: Queue,
    decoder: Decoder,
    part: str,
    within: slice,
    row_filter: RowFilter = EVERYTHING,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a key range as Arrow batches, each with the number of its messages.

    See ``table_scan.pages`` for consistency. A batch may leave out messages that cannot be read.

    Raises ``QueueReplaced`` if another queue has the name at the end.
    """
    for block in _blocks(db, queue, part, within, row_filter):
        for begin in range(0, len(block), _BATCH_ROWS):
            some = block.part(begin, begin + _BATCH_ROWS)
            yield len(some), decoder.batch(some)
    # An identity never comes back: if it is still the same, all rows were this queue's.
    queue.options(db)


def _blocks(
    db: fdb.Database, queue: Queue, part: str, within: slice, row_filter: RowFilter
) -> Iterator[Block]:
    keys = queue._keys
    if part == HISTORY:
        return table_scan.pages(db, within, lambda _, found: _events(keys, found, row_filter))
    now_ms = queue._clock.now_ms(db) if row_filter.selector is not None else 0

    def read(tr: fdb.Transaction, found: list[fdb.KeyValue]) -> tuple[Block, int]:
        with decoding("a stored message"):
            rows = _PARTS[part](keys, found)
            count = table_scan.fitting(rows.fields)
            if count < len(found):
                rows = _PARTS[part](keys, found[:count])
            if row_filter != EVERYTHING:
                rows = rows.chosen(_mask(rows, row_filter, now_ms))
            return _block(tr, keys, rows), count

    return table_scan.pages(db, within, read)


def _block(tr: fdb.Transaction, keys: QueueKeys, rows: Rows) -> Block:
    """Rows with their payloads. One more round trip if some payloads are in chunks."""
    ids = [f.get(_ID, i) for f, i in zip(rows.fields, rows.ids, strict=True)]
    payloads = table_scan.contents(tr, keys, rows.fields, rows.packed, ids)
    return Block(ids, rows.levels, rows.fields, payloads, rows.extra)


def _mask(rows: Rows, row_filter: RowFilter, now_ms: int) -> list[bool]:
    times = rows.times
    if times is None:
        times = [each.get(_ENQUEUED_AT) for each in rows.fields]
    mask = list(map(row_filter.accepts, rows.levels, times))
    if row_filter.selector is None:
        return mask
    selected = row_filter.selector.matches
    return [
        taken and selected(open_envelope(packed).properties(Position(level or 0, 0, b"")), now_ms)
        for taken, packed, level in zip(mask, rows.packed, rows.levels, strict=True)
    ]


def _events(
    keys: QueueKeys, rows: Sequence[fdb.KeyValue], row_filter: RowFilter
) -> tuple[Block, int]:
    lines = [(keys.event_stamp(kv.key), *unpack_event(kv.value)) for kv in rows]
    if row_filter != EVERYTHING:
        lines = [line for line in lines if row_filter.accepts(line[3], line[6])]
    columns = _columns(lines, 1 + len(_EVENT))
    extra = dict(zip(("stamp", *_EVENT), columns, strict=True))
    return Block(extra["id"], extra["level"], (), (), extra), len(rows)
