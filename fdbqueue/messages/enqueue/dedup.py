"""Deduplication: messages that come in only once.

A dedup id is remembered for a window of time, a unique key while its message is ready, delayed or
leased. Both are read with a conflict: of two concurrent enqueues with the same id, one is retried
and finds the other. Enqueues of different ids do not conflict.

Dedup ids are kept by the window in which they came, so that one range clear removes old ones, when
an entry of the agenda falls due. An enqueue reads the window of its own clock and the two beside
it: the one before for what came less than a window ago, the one after for a clock that is ahead of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...schema import due
from ...schema.due import Entry
from ...schema.keys import What
from ...schema.records import DedupRecord, unpack_id
from ...schema.scope import Scope
from ...store.binding import fdb
from ..transaction_budget import Done


class DedupReads(Struct, frozen=True):
    """The reads of one message's names, issued and not awaited."""

    windows: Sequence[fdb.Value]
    unique: fdb.Value | None


def reads(
    tr: fdb.Transaction, scope: Scope, dedup_id: str | None, unique: str | None, now_ms: int
) -> DedupReads:
    """Issue the reads, with conflicts."""
    keys = scope.keys
    windows = () if dedup_id is None else _windows(scope, now_ms)
    return DedupReads(
        # With a conflict, even where nothing is stored: of two producers with one id, the second to
        # commit fails and finds the first.
        [tr.get(keys.dedup(window, dedup_id or "")) for window in windows],
        None if unique is None else tr.get(keys.unique(unique)),
    )


def existing(found: DedupReads, now_ms: int) -> str | None:
    """The id of the message that is there already, if one is."""
    for value in found.windows:
        if value.present():
            known = DedupRecord.unpack(value.value)
            if known.until_ms > now_ms:
                return known.id
    holder = None if found.unique is None else found.unique.value
    return None if holder is None else unpack_id(holder)


def holder(found: DedupReads, now_ms: int) -> str | None:
    """The id of the message that holds the unique key, unless the dedup id is known."""
    # The dedup id decides first: a message that it names is the same one, whoever holds the unique
    # key by now.
    known = existing(DedupReads(found.windows, None), now_ms)
    return existing(found, now_ms) if known is None else None


def remember(
    tr: fdb.Transaction,
    scope: Scope,
    dedup_id: str | None,
    unique: str | None,
    message_id: str,
    now_ms: int,
) -> None:
    """Keep the names of a message that has come in. Blind."""
    keys = scope.keys
    if dedup_id is not None:
        _, window, after = _windows(scope, now_ms)
        until_ms = now_ms + after - window
        tr[keys.dedup(window, dedup_id)] = DedupRecord(message_id, until_ms).pack()
        # At the end of the next window, when no id of this one can matter to any clock. All
        # messages of a window write the same entry.
        due.tidy(tr, keys, 2 * after - window, What.WINDOW, str(window))
    if unique is not None:
        tr[keys.unique(unique)] = message_id.encode()


def forget(tr: fdb.Transaction, scope: Scope, entries: Sequence[Entry], room: int) -> Done:
    """Remove the dedup ids of windows, by entries of the agenda. Blind."""
    for each in entries:
        old = scope.keys.dedup.under(int(str(each.name)))
        tr.clear_range(old.start, old.stop)
    return Done(handled=len(entries))


def _windows(scope: Scope, now_ms: int) -> tuple[int, int, int]:
    """When the window before, that of now, and the one after begin."""
    length = int(scope.options.dedup_window * 1000)
    current = now_ms - now_ms % length
    # Rounded down, so that processes agree on the windows without telling each other.
    return current - length, current, current + length
