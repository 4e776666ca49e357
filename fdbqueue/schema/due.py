"""The agenda: entries by rank and time, and of each rank a time before which none is due.

DUE has the entries. EARLIEST has for each rank a time that is not later than that of any entry.
Whoever adds an entry lowers it by BYTE_MIN, so that additions conflict with nothing. Whoever
removes one leaves it as it is. So one range read of at most one small row for each rank tells that
nothing is due, or which ranks to look at: by time alone, an urgent entry could stand behind any
number of others, and by rank alone every rank would have to be read.

Who looks at a rank raises its time to that of the first entry that stays. That relies on there
being none before, with a conflict range up to there: so it is only aborted by an entry that comes
in ahead of all others meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import CorruptData
from ..store.binding import fdb
from ..store.client import parse_int
from ..values.limits import Gate
from .codec import pack_time, unpack_time
from .keys import SHARED, AgendaKeys, What

NEVER_MS = 2**63


class Rank(NamedTuple):
    """A rank, and the time before which none of its entries is due."""

    rank: int
    from_ms: int


class Entry(NamedTuple):
    """What falls due beside messages. name: of what that is."""

    key: bytes
    rank: int
    due_ms: int
    what: What
    name: Gate
    value: bytes

    def add(self, tr: fdb.Transaction, keys: AgendaKeys) -> None:
        """Add it again. Writes blindly."""
        add(tr, keys, self.key, self.value)


def add(tr: fdb.Transaction, keys: AgendaKeys, key: bytes, value: bytes = b"") -> None:
    """Add an entry. Writes blindly."""
    rank, due_ms = parse(keys, key)
    tr[key] = value
    # Without a read: two that add at once do not conflict, and the earlier time stays.
    tr.byte_min(keys.earliest(rank), pack_time(due_ms))


def tidy(tr: fdb.Transaction, keys: AgendaKeys, time_ms: int, what: What, name: str) -> None:
    """Add what brings no message. Writes blindly."""
    add(tr, keys, keys.tidying(time_ms, what, name))


def mark_shared(tr: fdb.Transaction, keys: AgendaKeys) -> None:
    """Let who looks at the agenda of a queue look at that of the root, too. Blind."""
    # Without a conflict, though every enqueue with a limit writes it: all write the same.
    tr[keys.earliest(SHARED)] = pack_time(NEVER_MS)


def shared(tr: fdb.Transaction, keys: AgendaKeys) -> bool:
    """Whether messages of a queue count in limits. One round trip, no conflicts."""
    return tr.snapshot.get(keys.earliest(SHARED)).present()


def parse(keys: AgendaKeys, key: bytes) -> tuple[int, int]:
    """The rank and the time of an entry. Raises ``CorruptData``."""
    rank, end = parse_int(key, len(keys.delayed.prefix))
    return rank, parse_int(key, end)[0]


def entry(keys: AgendaKeys, kv: fdb.KeyValue) -> Entry:
    """An entry that is no message. Raises ``CorruptData``."""
    rank, due_ms, what, name = keys.entry.parse(kv.key)
    try:
        return Entry(bytes(kv.key), rank, due_ms, What(what), name, bytes(kv.value))
    except ValueError as error:
        raise CorruptData(what="an entry of the agenda", problem=str(error)) from None


def reads(tr: fdb.Transaction, keys: AgendaKeys) -> fdb.FDBRange:
    """Issue a snapshot read of when each rank is to be looked at."""
    every = keys.earliest.rows
    mode = fdb.StreamingMode.want_all
    # Additions lower these all the time: a conflict would abort every receiver beside a producer of
    # delayed messages.
    return tr.snapshot.get_range(every.start, every.stop, streaming_mode=mode)


def ranks(keys: AgendaKeys, rows: Iterable[fdb.KeyValue]) -> list[Rank]:
    """The ranks that were read, the most urgent first."""
    found = [Rank(keys.earliest.parse(kv.key)[0], unpack_time(kv.value)) for kv in rows]
    return sorted(found, key=lambda each: AgendaKeys.urgency(each.rank))


def rise(tr: fdb.Transaction, keys: AgendaKeys, seen: Rank, following: bytes | None) -> None:
    """Look at a rank again when its first entry is due that stays.

    following: that entry; None if none stays. All before it are removed in the same transaction,
    and entries are only added after this. Conflicts with others that are added before it.
    """
    every, earliest = keys.delayed.under(seen.rank), keys.earliest(seen.rank)
    stop = every.stop if following is None else following
    if every.start < stop:
        tr.add_read_conflict_range(every.start, stop)
    # An addition that this does not see has lowered it, or left it to that of an entry before.
    tr.compare_and_clear(earliest, pack_time(seen.from_ms))
    if following is not None:
        tr.byte_min(earliest, pack_time(parse(keys, following)[1]))
