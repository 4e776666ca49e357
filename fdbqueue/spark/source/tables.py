"""The tables of a queue: which keys they are, and what stands there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from ...messages.streams import table_scan
from ...schema.codec.dead_letters import open_dead
from ...schema.codec.delayed import open_delayed
from ...schema.codec.envelopes import FIELDS, all_stored_fields, unpack_envelope
from ...schema.codec.history import unpack_event
from ...schema.codec.leases import unpack_lease
from ...schema.keys import Kind, QueueKeys
from ...store.binding import fdb
from ...values.model import Due, Position
from ...values.records import record
from ...values.selector import Selector
from .rows import Block, trusting

HISTORY = "history"
_ID, _ENQUEUED_AT = FIELDS["id"], FIELDS["enqueued_at_ms"]
_EVENT = ("transition", "id", "level", "attempt", "consumer", "at", "place")


@record
class Wanted:
    """Which rows of a table are wanted.

    since, until: milliseconds, from the first on and before the second, of the table's own time.
    """

    levels: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    selector: Selector | None = None

    @property
    def everything(self) -> bool:
        """Whether all rows are."""
        return self == _EVERYTHING

    def takes(self, level: int, at_ms: int | None) -> bool:
        """Whether a row of that level and time is wanted, whatever else it is.

        One that has no time is, where no time is named.
        """
        if self.levels is not None and level not in self.levels:
            return False
        if at_ms is None:
            return self.since is None and self.until is None
        return (self.since is None or self.since <= at_ms) and (
            self.until is None or at_ms < self.until
        )


_EVERYTHING = Wanted()


@dataclass(slots=True)
class Rows:
    """Messages as they stand. ``packed`` are their envelopes, ``fields`` what is in them; ``extra``
    is what their kind of key adds, and ``times`` the table's own time, if not of the enqueue."""

    levels: Sequence[int]
    ids: Sequence[str]
    packed: Sequence[bytes]
    fields: Sequence[dict[int, Any]]
    extra: dict[str, Sequence[Any]] = field(default_factory=dict)
    times: Sequence[int | None] | None = None

    @classmethod
    def at(
        cls,
        places: Sequence[Position | Due],
        levels: Sequence[int],
        packed: Sequence[bytes],
        **extra: Sequence[Any],
    ) -> Rows:
        """Messages whose ids name these places, unless their envelopes say others."""
        return cls(
            levels, [each.to_id() for each in places], packed, all_stored_fields(packed), extra
        )

    def chosen(self, mask: Sequence[bool]) -> Rows:
        """Those for which the mask is true."""
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
    return Rows(levels, ids, packed, all_stored_fields(packed), {"blocked": [False] * len(rows)})


def _blocked(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    positions, packed = _columns([open_delayed(kv.value) for kv in rows], 2)
    return Rows.at(positions, _levels(positions), packed, blocked=[True] * len(rows))


def _delayed(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    dues = [keys.parse_delayed(kv.key) for kv in rows]
    positions, packed = _columns([open_delayed(kv.value) for kv in rows], 2)
    # A message that was scheduled never had a position, and its id names when it is due.
    places = [at if at.index else due for at, due in zip(positions, dues, strict=True)]
    times = [due.due_ms for due in dues]
    found = Rows.at(places, _levels(positions), packed, due_at=times)
    return replace(found, times=times)


def _leased(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    leases = [unpack_lease(kv.value) for kv in rows]
    positions = [lease.position for lease in leases]
    return Rows.at(
        positions,
        _levels(positions),
        [lease.envelope for lease in leases],
        consumer=[lease.consumer for lease in leases],
        lease_expires_at=[None if lease.planned else lease.expiry_ms for lease in leases],
    )


def _dead(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    positions, reasons, times, packed = _columns([open_dead(kv.value) for kv in rows], 4)
    found = Rows.at(positions, _levels(positions), packed, reason=reasons, died_at=times)
    return replace(found, times=times)


def _planned(keys: QueueKeys, rows: Sequence[fdb.KeyValue]) -> Rows:
    leases = [unpack_lease(kv.value) for kv in rows]
    positions = [lease.position for lease in leases]
    packed = [lease.envelope for lease in leases]
    return Rows.at(positions, _levels(positions), packed, blocked=[False] * len(rows))


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count


def _levels(positions: Sequence[Position]) -> list[int]:
    return [each.level for each in positions]


_PARTS: dict[str, Read] = {
    "ready": _ready,
    "blocked": _blocked,
    "planned": _planned,
    "delayed": _delayed,
    "leased": _leased,
    "dead": _dead,
}
"""By name; ``blocked`` is the part of ``ready`` that waits for others of its ordering key, and
``planned`` what a stream has taken of it."""


def ranges(
    keys: QueueKeys, table: str, levels: Sequence[int], wanted: Wanted
) -> dict[str, list[slice]]:
    """Where the rows stand, by the part of the table that they are of."""
    match table:
        case "ready":
            some = wanted.levels if wanted.levels is not None else levels
            each = [keys.ready_level(level) for level in sorted(some)]
            return {"ready": each, "blocked": [keys.kind(Kind.GROUP)]}
        case "delayed":
            delayed = keys.kind(Kind.DELAYED)
            if wanted.until is not None:
                delayed = keys.delayed_until(wanted.until - 1)
            if wanted.since is not None:
                delayed = slice(keys.delayed_until(wanted.since - 1).stop, delayed.stop)
            return {"delayed": [delayed] if delayed.start < delayed.stop else []}
        case "leased":
            return {"leased": [keys.kind(Kind.LEASE)]}
        case "dead":
            return {"dead": [keys.kind(Kind.DEAD)]}
    return {HISTORY: [keys.kind(Kind.EVENT)]}


def blocks(
    db: fdb.Database, keys: QueueKeys, part: str, within: slice, wanted: Wanted, now_ms: int
) -> Iterator[Block]:
    """The wanted rows of a range; see ``picture.pages`` for what they show."""
    if part == HISTORY:
        return table_scan.pages(db, within, lambda _, found: _events(keys, found, wanted))

    def read(tr: fdb.Transaction, found: list[fdb.KeyValue]) -> tuple[Block, int]:
        with trusting("a stored message"):
            rows = _PARTS[part](keys, found)
            count = table_scan.fitting(rows.fields)
            if count < len(found):
                rows = _PARTS[part](keys, found[:count])
            if not wanted.everything:
                rows = rows.chosen(_mask(rows, wanted, now_ms))
            return block(tr, keys, rows), count

    return table_scan.pages(db, within, read)


def block(tr: fdb.Transaction, keys: QueueKeys, rows: Rows) -> Block:
    """Rows with their payloads. A round trip if some of these stand in chunks."""
    ids = [f.get(_ID, i) for f, i in zip(rows.fields, rows.ids, strict=True)]
    payloads = table_scan.contents(tr, keys, rows.fields, rows.packed, ids)
    return Block(ids, rows.levels, rows.fields, payloads, rows.extra)


def _mask(rows: Rows, wanted: Wanted, now_ms: int) -> list[bool]:
    times = rows.times
    if times is None:
        times = [each.get(_ENQUEUED_AT) for each in rows.fields]
    mask = list(map(wanted.takes, rows.levels, times))
    if wanted.selector is None:
        return mask
    selected = wanted.selector.matches
    return [
        taken and selected(unpack_envelope(packed).properties(Position(level, 0, b"")), now_ms)
        for taken, packed, level in zip(mask, rows.packed, rows.levels, strict=True)
    ]


def _events(keys: QueueKeys, rows: Sequence[fdb.KeyValue], wanted: Wanted) -> tuple[Block, int]:
    lines = [(keys.event_stamp(kv.key), *unpack_event(kv.value)) for kv in rows]
    if not wanted.everything:
        lines = [line for line in lines if wanted.takes(line[3], line[6])]
    columns = _columns(lines, 1 + len(_EVENT))
    extra = dict(zip(("stamp", *_EVENT), columns, strict=True))
    return Block(extra["id"], extra["level"], (), (), extra), len(rows)
