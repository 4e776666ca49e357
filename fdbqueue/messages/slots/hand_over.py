"""Handing slots over: whoever ends a message gives its slot to the next that waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...schema import changes
from ...schema.codec.delayed import unpack_delayed
from ...schema.codec.envelopes import Envelope, pack_envelope
from ...schema.codec.slots import Backlog, pack_backlog, unpack_backlog
from ...schema.keys import Kind
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.limits import Allowed
from .. import lookup
from ..enqueue import index_allocation
from ..transaction_budget import STEP_BYTES, fitting
from . import backlog, limits, permits
from .permits import Permits

MAX_FILLED = 100
"""The most messages of a key that one transaction gives free slots to."""
MAX_LOOKED_AT = 500
"""The most rows of keys with a backlog that one transaction looks at."""


class _Next(NamedTuple):
    """The reads of what may become ready of a key, issued and not awaited."""

    own: fdb.Value
    first: fdb.FDBRange


class _Reads(NamedTuple):
    """The reads of a key of which messages have ended or were taken, issued and not awaited.

    held: by kind of permit, the rows of those that the messages may hold. following: None where the
    key probably has no backlog, since it had none lately.
    """

    backlog: fdb.Value
    held: list[dict[int, fdb.Value]]
    following: _Next | None


class _Freed(NamedTuple):
    """What messages of a key with a backlog have freed, and what may get it.

    freed: the numbers, by kind of permit. waited: how many of the messages have ended while they
    waited.
    """

    key: str
    backlog: Backlog
    freed: list[list[int]]
    waited: int
    following: _Next


def ended(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage], *, ready: bool
) -> int:
    """Free what messages that have ended hold of their keys, and hand it to those that wait;
    returns how many of these became ready.

    ready: whether the messages were ready: only then may they hold a place in a window.

    One round trip if any of the messages has a key. Another if a key has a backlog and had none
    lately, and if its next message is of another level; another if it has a window, and another if
    its limits have changed. Conflicts with other ends of the same key that
    hand over to the same message, and with enqueues only where the backlog begins or ends.
    """
    with_key = [each for each in messages if each.envelope.key]
    return _free(tr, scope, with_key, (True, ready))


def taken(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> int:
    """Free the places of messages that are ready no more in the windows of their keys, and hand
    them to those that wait. As ``ended``, but a message without such a place costs nothing."""
    of_window = [each for each in messages if each.envelope.window is not None]
    return _free(tr, scope, of_window, (False, True)) if of_window else 0


def _free(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage], frees: tuple[bool, bool]
) -> int:
    """frees: by kind of permit, whether the messages lose it."""
    keys = scope.keys
    of_key: defaultdict[str, list[StoredMessage]] = defaultdict(list)
    for message in messages:
        of_key[message.envelope.key or ""].append(message)
    reads = {key: _read(tr, scope, key, those, frees) for key, those in of_key.items()}
    # Where the next that wait probably go.
    levels = {each.position.level for key in of_key.keys() & scope.waited for each in of_key[key]}
    behind = {level: index_allocation.reads(tr, keys, level) for level in levels}
    found = []
    for key, (stored, held, following) in reads.items():
        those = of_key[key]
        ids = {each.id for each in those}
        freed = []
        for rows, some in zip(permits.kinds(keys), held, strict=True):
            freed.append([n for n, row in some.items() if (row.value or b"").decode() in ids])
            for n in freed[-1]:
                tr.clear(rows(key, n))
        if not stored.present():
            scope.waited.discard(key)
            continue
        scope.note_backlog(key)
        waited = sum(each.turn is not None for each in those)
        found.append(
            _Freed(
                key,
                unpack_backlog(stored.value),
                freed,
                waited,
                following or _next(tr, scope, key, len(those)),
            )
        )
    entries = _handed_over(tr, scope, found)
    _make_ready(tr, scope, entries, behind)
    return len(entries)


def _read(
    tr: fdb.Transaction,
    scope: Scope,
    key: str,
    messages: Sequence[StoredMessage],
    frees: tuple[bool, bool],
) -> _Reads:
    # The place of a message that was taken before is another's, who is not to be disturbed.
    reading: tuple[fdb.TransactionRead, ...] = tr, tr.snapshot
    # One that waits holds nothing. A dead letter does not either, but may still name a slot.
    out = [(each.envelope.slot, each.envelope.window) for each in messages if each.turn is None]
    numbers = ({each[of] for each in out if freed} for of, freed in enumerate(frees))
    kinds = zip(reading, permits.kinds(scope.keys), numbers, strict=True)
    return _Reads(
        tr.get(scope.keys.backlog(key)),
        [{n: read.get(rows(key, n)) for n in some if n is not None} for read, rows, some in kinds],
        _next(tr, scope, key, len(messages)) if key in scope.waited else None,
    )


def _next(tr: fdb.Transaction, scope: Scope, key: str, count: int) -> _Next:
    """Issue the reads of a key's own limits, and of ``count`` messages that wait and another."""
    return _Next(tr.get(scope.keys.limits(key)), backlog.first(tr, scope.keys, key, count + 1))


def _handed_over(
    tr: fdb.Transaction, scope: Scope, found: Sequence[_Freed]
) -> list[tuple[int, Envelope]]:
    """Let what waits of keys become ready; returns it with its levels."""
    allowed = [limits.effective(scope, each.following.own.value).allowed for each in found]
    # No other message could become ready before: no more can now than one kind has freed.
    counts = [max(map(len, each.freed)) for each in found]
    others = [
        _others(tr, scope, *one) if one[0].backlog.settled == one[1] else None
        for one in zip(found, allowed, counts, strict=True)
    ]
    entries = []
    for each, now, count, held in zip(found, allowed, counts, others, strict=True):
        rows = each.following.first.to_list()
        if held is None:
            if each.waited:
                backlog.shrink(tr, scope.keys, each.key, each.waited, rows[:1])
            entries += _filled(tr, scope, each.key)
            continue
        kinds = zip(permits.kinds(scope.keys), now, held, each.freed, strict=True)
        some = [Permits(tr, kind, each.key, limit, of, n) for kind, limit, of, n in kinds]
        entries += _hand_over(tr, scope, each.key, some, count, rows, each.waited)
    return entries


def _others(
    tr: fdb.Transaction, scope: Scope, freed: _Freed, allowed: Allowed, count: int
) -> list[fdb.FDBRange | None]:
    """Issue snapshot reads of what is held of the kinds of permit of which fewer than ``count``
    were freed: others of these have to be free."""
    kinds = zip(permits.kinds(scope.keys), allowed, freed.freed, strict=True)
    return [
        None if limit is None or len(some) == count else permits.held(tr.snapshot, rows, freed.key)
        for rows, limit, some in kinds
    ]


@transactional
def fill(tr: fdb.Transaction, scope: Scope, key: str) -> int:
    """Give the free slots of a key to its messages that wait, up to a hundred; returns how many
    became ready.

    For a limit that has changed. Conflicts with enqueues and ends of the key.
    """
    entries = _filled(tr, scope, key)
    _make_ready(tr, scope, entries)
    return len(entries)


@transactional
def refill(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """Give the free slots of a key whose limit has changed to its messages that wait.

    begin: the key of the store to continue from; empty for the first. Returns how many became
    ready, and where to continue, empty at the end. Conflicts as ``fill``.
    """
    keys = scope.keys
    every = keys.kind(Kind.BACKLOG)
    rows = tr.snapshot.get_range(begin or every.start, every.stop, limit=MAX_LOOKED_AT).to_list()
    found = [
        (kv.key, key, unpack_backlog(kv.value), tr.snapshot.get(keys.limits(key)))
        for kv in rows
        for key, *count in [keys.backlog_count.parse(kv.key)]
        if not count
    ]
    for row, key, known, own in found:
        if known.settled != limits.effective(scope, own.value).allowed:
            filled = fill(tr, scope, key)
            # Again, until no slot is free.
            return filled, row if filled else row + b"\x00"
    return 0, rows[-1].key + b"\x00" if len(rows) == MAX_LOOKED_AT else b""


def _filled(tr: fdb.Transaction, scope: Scope, key: str) -> list[tuple[int, Envelope]]:
    keys = scope.keys
    stored, own = tr.get(keys.backlog(key)), tr.get(keys.limits(key))
    held = [permits.held(tr, rows, key) for rows in permits.kinds(keys)]
    first = backlog.first(tr, keys, key, MAX_FILLED + 1)
    if not stored.present():
        return []
    allowed = limits.effective(scope, own.value).allowed
    kinds = zip(permits.kinds(keys), allowed, held, strict=True)
    some = [Permits(tr, rows, key, limit, those) for rows, limit, those in kinds]
    rows = first.to_list()
    fits = fitting(((kv, unpack_delayed(kv.value)[1]) for kv in rows[:MAX_FILLED]), STEP_BYTES)
    entries = _hand_over(tr, scope, key, some, len(list(fits)), rows)
    if len(entries) < len(rows):
        known = unpack_backlog(stored.value)
        settled = allowed if permits.exhausted(some) else None
        if known.settled != settled:
            tr[keys.backlog(key)] = pack_backlog(Backlog(known.since_ms, settled))
    return entries


def _hand_over(
    tr: fdb.Transaction,
    scope: Scope,
    key: str,
    some: Sequence[Permits],
    count: int,
    rows: Sequence[fdb.KeyValue],
    waited: int = 0,
) -> list[tuple[int, Envelope]]:
    """Let the first that wait become ready, up to ``count`` and as the permits last; returns them
    with their levels.

    rows: the first that wait, more than ``count`` if there are so many. waited: how many have ended
    while they waited, already removed.
    """
    opened = [(kv, *unpack_delayed(kv.value)) for kv in rows[:count]]
    given = permits.give(some, [envelope.id or "" for _, _, envelope in opened])
    entries = []
    for (kv, position, envelope), (slot, place) in zip(opened, given, strict=False):
        tr.add_read_conflict_key(kv.key)
        del tr[kv.key]
        entries.append((position.level, replace(envelope, slot=slot, window=place)))
    if entries or waited:
        backlog.shrink(tr, scope.keys, key, len(entries) + waited, rows[len(entries) :])
    return entries


def _make_ready(
    tr: fdb.Transaction,
    scope: Scope,
    entries: Sequence[tuple[int, Envelope]],
    behind: Mapping[int, index_allocation.Reads] | None = None,
) -> None:
    """Put messages behind all others of their levels, as an enqueue does.

    behind: the reads of the ends of some levels, if they have been issued.
    """
    if not entries:
        return
    keys = scope.keys
    ends = dict(behind or {})
    for level in {level for level, _ in entries} - ends.keys():
        ends[level] = index_allocation.reads(tr, keys, level)
    messages = index_allocation.assign(tr, scope, entries, ends)
    for message in messages:
        tr[keys.ready(message.position)] = pack_envelope(message.envelope)
        lookup.point(tr, keys, message, message.position)
    changes.announce(tr, scope, messages)
