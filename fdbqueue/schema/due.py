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

from ..store.binding import fdb
from .codec import pack_time, unpack_time
from .keys import AgendaKeys


class Rank(NamedTuple):
    """A rank, and the time before which none of its entries is due."""

    rank: int
    from_ms: int


def add(
    tr: fdb.Transaction, keys: AgendaKeys, rank: int, due_ms: int, key: bytes, value: bytes = b""
) -> None:
    """Add an entry. Writes blindly."""
    tr[key] = value
    tr.byte_min(keys.earliest(rank), pack_time(due_ms))


def reads(tr: fdb.Transaction, keys: AgendaKeys) -> fdb.FDBRange:
    """Issue a snapshot read of when each rank is to be looked at."""
    every = keys.earliest.rows
    mode = fdb.StreamingMode.want_all
    return tr.snapshot.get_range(every.start, every.stop, streaming_mode=mode)


def ranks(keys: AgendaKeys, rows: Iterable[fdb.KeyValue]) -> list[Rank]:
    """The ranks that were read, the most urgent first."""
    found = [Rank(keys.earliest.parse(kv.key)[0], unpack_time(kv.value)) for kv in rows]
    return sorted(found, key=lambda each: AgendaKeys.urgency(each.rank))


def any_over(rows: Iterable[fdb.KeyValue], now_ms: int) -> bool:
    """Whether there is a rank to look at now."""
    return any(unpack_time(kv.value) <= now_ms for kv in rows)


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
        tr.byte_min(earliest, pack_time(keys.delayed.parse(following)[1]))
