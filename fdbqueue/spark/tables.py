"""The tables of a queue: which keys they are, and what stands there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..binding import fdb
from ..codec import (
    FIELDS,
    open_dead,
    open_delayed,
    stored_fields,
    unpack_envelope,
    unpack_event,
    unpack_lease,
)
from ..keys import Kind, QueueKeys
from ..model import Due, Position
from ..queue import picture
from ..queue.picture import Stored
from ..selector import Selector
from .rows import Block

_ID = FIELDS["id"]
_ENQUEUED_AT = FIELDS["enqueued_at_ms"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a table are wanted.

    since, until: milliseconds, from the first on and before the second, of the table's own time.
    """

    levels: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    selector: Selector | None = None

    def takes_time(self, at_ms: int | None) -> bool:
        """Whether a row of that time is wanted; one that has none is, where no time is named."""
        if at_ms is None:
            return self.since is None and self.until is None
        return (self.since is None or self.since <= at_ms) and (
            self.until is None or at_ms < self.until
        )

    def takes_level(self, level: int) -> bool:
        """Whether a row of that level is wanted."""
        return self.levels is None or level in self.levels


Parse = Callable[[QueueKeys, fdb.KeyValue], Stored]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of messages: what it reads, and which of a row's values is the table's time."""

    parse: Parse
    time: Callable[[Stored], int | None]
    columns: tuple[str, ...]


def _of(position: Position, packed: bytes, *extra: object, scheduled: Due | None = None) -> Stored:
    fields = stored_fields(packed)
    place = position if position.index or scheduled is None else scheduled
    return Stored(fields.get(_ID) or place.to_id(), position.level, fields, packed, extra)


def _ready(keys: QueueKeys, kv: fdb.KeyValue) -> Stored:
    return _of(keys.parse_ready(kv.key), kv.value, False)


def _blocked(keys: QueueKeys, kv: fdb.KeyValue) -> Stored:
    return _of(*open_delayed(kv.value), True)


def _delayed(keys: QueueKeys, kv: fdb.KeyValue) -> Stored:
    due = keys.parse_delayed(kv.key)
    return _of(*open_delayed(kv.value), due.due_ms, scheduled=due)


def _leased(keys: QueueKeys, kv: fdb.KeyValue) -> Stored:
    lease = unpack_lease(kv.value)
    return _of(lease.position, lease.envelope, lease.consumer, lease.expiry_ms)


def _dead(keys: QueueKeys, kv: fdb.KeyValue) -> Stored:
    position, reason, died_at_ms, packed = open_dead(kv.value)
    return _of(position, packed, reason, died_at_ms)


def _enqueued(stored: Stored) -> int | None:
    at_ms: int | None = stored.fields.get(_ENQUEUED_AT)
    return at_ms


TABLES: dict[str, Table] = {
    "ready": Table(_ready, _enqueued, ("blocked",)),
    "blocked": Table(_blocked, _enqueued, ("blocked",)),
    "delayed": Table(_delayed, lambda stored: stored.extra[0], ("due_at",)),
    "leased": Table(_leased, _enqueued, ("consumer", "lease_expires_at")),
    "dead": Table(_dead, lambda stored: stored.extra[1], ("reason", "died_at")),
}
"""By name; ``blocked`` is the part of ``ready`` that waits for others of its ordering key."""

HISTORY = "history"


def ranges(
    keys: QueueKeys, table: str, levels: Sequence[int], wanted: Wanted
) -> dict[str, list[slice]]:
    """Where the rows stand, by the part of the table that they are of."""
    match table:
        case "ready":
            each = [keys.ready_level(level) for level in levels if wanted.takes_level(level)]
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
        yield from picture.pages(db, within, lambda tr, rows: _events(keys, rows, wanted))
        return
    table = TABLES[part]

    def read(tr: fdb.Transaction, rows: list[fdb.KeyValue]) -> tuple[Block, int]:
        return _messages(tr, keys, table, rows, wanted, now_ms)

    yield from picture.pages(db, within, read)


def _messages(
    tr: fdb.Transaction,
    keys: QueueKeys,
    table: Table,
    rows: list[fdb.KeyValue],
    wanted: Wanted,
    now_ms: int,
) -> tuple[Block, int]:
    found: list[Stored] = []
    room = picture.PAGE_BYTES
    taken = 0
    for kv in rows:
        taken += 1
        stored = table.parse(keys, kv)
        if not _matches(table, stored, wanted, now_ms):
            continue
        found.append(stored)
        room -= stored.chunk_bytes
        if room < 0:
            break
    ids, levels, fields, _, extra = zip(*found, strict=True) if found else ((),) * 5
    columns = zip(*extra, strict=True) if found else ((),) * len(table.columns)
    block = Block(
        ids,
        levels,
        fields,
        picture.contents(tr, keys, found),
        dict(zip(table.columns, columns, strict=True)),
    )
    return block, taken


def _matches(table: Table, stored: Stored, wanted: Wanted, now_ms: int) -> bool:
    if not wanted.takes_level(stored.level) or not wanted.takes_time(table.time(stored)):
        return False
    if wanted.selector is None:
        return True
    position = Position(stored.level, 0, b"")
    message = unpack_envelope(stored.packed).properties(position)
    return wanted.selector.matches(message, now_ms)


def _events(keys: QueueKeys, rows: list[fdb.KeyValue], wanted: Wanted) -> tuple[Block, int]:
    names = ("transition", "id", "level", "attempt", "consumer", "at")
    lines = [(keys.event_stamp(kv.key), *unpack_event(kv.value)) for kv in rows]
    kept = [line for line in lines if wanted.takes_level(line[3]) and wanted.takes_time(line[6])]
    columns = zip(*kept, strict=True) if kept else ((),) * 7
    extra = dict(zip(("stamp", *names), columns, strict=True))
    return Block(extra["id"], extra["level"], (), (), extra), len(rows)
