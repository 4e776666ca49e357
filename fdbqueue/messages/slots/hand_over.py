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
from ..transaction_budget import SIDE_BYTES, STEP_BYTES, fitting, weight
from . import backlog, limits, permits
from .permits import Permit, Permits
from .rates import Pace

MAX_FILLED = 100
"""The most messages of a key that one transaction gives free slots to."""
MAX_LOOKED_AT = 500
"""The most rows of keys with a backlog that one transaction looks at."""
MAX_DUE = 10
"""The most messages of each key that become ready when its timer is due."""


class _Next(NamedTuple):
    """The reads of what may become ready of a key, issued and not awaited."""

    own: fdb.Value
    first: fdb.FDBRange
    rate: fdb.Value | None


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
    return _Next(
        tr.get(scope.keys.limits(key)),
        backlog.first(tr, scope.keys, key, count + 1),
        _rate(tr, scope, key),
    )


def _rate(tr: fdb.Transaction, scope: Scope, key: str) -> fdb.Value | None:
    """Issue a snapshot read of the RATE of a key, if keys of the queue have any."""
    return tr.snapshot.get(scope.keys.rate(key)) if "rates" in scope.noted else None


def _handed_over(
    tr: fdb.Transaction, scope: Scope, found: Sequence[_Freed]
) -> list[tuple[int, Envelope]]:
    """Let what waits of keys become ready; returns it with its levels."""
    allowed = [limits.effective(scope, each.following.own.value).allowed for each in found]
    # No other message could become ready before: no more can now than one kind has freed.
    counts = [max(map(len, each.freed)) for each in found]
    others = [
        _others(tr, scope, *one) if one[0].backlog.settled == one[1] and not one[1].rate else None
        for one in zip(found, allowed, counts, strict=True)
    ]
    entries = []
    for each, now, count, held in zip(found, allowed, counts, others, strict=True):
        rows = each.following.first.to_list()
        if held is None:
            if each.waited:
                backlog.shrink(tr, scope.keys, each.key, each.waited, rows[:1])
            entries += _next_in_time(tr, scope, each, now) if rows else []
            continue
        kinds = zip(permits.kinds(scope.keys), now.numbers, held, each.freed, strict=True)
        some = [Permits(tr, kind, each.key, limit, of, n) for kind, limit, of, n in kinds]
        entries += _hand_over(tr, scope, each.key, some, count, rows, each.waited)
    return entries


def _others(
    tr: fdb.Transaction, scope: Scope, freed: _Freed, allowed: Allowed, count: int
) -> list[fdb.FDBRange | None]:
    """Issue snapshot reads of what is held of the kinds of permit of which fewer than ``count``
    were freed: others of these have to be free."""
    kinds = zip(permits.kinds(scope.keys), allowed.numbers, freed.freed, strict=True)
    return [
        None if limit is None or len(some) == count else permits.held(tr.snapshot, rows, freed.key)
        for rows, limit, some in kinds
    ]


def _next_in_time(
    tr: fdb.Transaction, scope: Scope, freed: _Freed, allowed: Allowed
) -> list[tuple[int, Envelope]]:
    """Let what waits of a key become ready that its rate lets come; looks no further if nothing may
    come yet."""
    if freed.following.rate is not None:
        pace = Pace(tr, scope, freed.key, allowed.rate, freed.following.rate)
        if not pace.left:
            pace.rely()
            return []
    return _filled(tr, scope, freed.key, _filling(tr, scope, freed.key))


@transactional
def fill(tr: fdb.Transaction, scope: Scope, key: str) -> int:
    """Give the free slots of a key to its messages that wait, up to a hundred; returns how many
    became ready.

    For a limit that has changed. Conflicts with enqueues and ends of the key.
    """
    entries = _filled(tr, scope, key, _filling(tr, scope, key))
    _make_ready(tr, scope, entries)
    return len(entries)


@transactional
def fire(tr: fdb.Transaction, scope: Scope, timers: fdb.FDBRange) -> tuple[int, int, int]:
    """Let messages become ready whose time has come by the rates of their keys; returns how many,
    how many timers were used up, and the weight of the messages.

    timers: those that are due and of which messages wait, see ``rates.due``. One more round trip if
    there are any, and another if messages become ready. Conflicts with others that use up the same
    timers, and with enqueues and ends of the same keys, but not with enqueues to a backlog that
    goes on.
    """
    due = [scope.keys.timer.parse(kv.key)[1:] for kv in timers]
    issued = [_filling(tr, scope, key, MAX_DUE) for _, key in due]
    entries: list[tuple[int, Envelope]] = []
    size = fired = 0
    for (due_ms, key), reads in zip(due, issued, strict=True):
        if size > SIDE_BYTES:
            break
        some = _filled(tr, scope, key, reads, due_ms)
        entries += some
        size += sum(weight(envelope) for _, envelope in some)
        fired += 1
    _make_ready(tr, scope, entries)
    return len(entries), fired, size


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


class _Filling(NamedTuple):
    """The reads of all that decides what may become ready of a key, issued and not awaited.

    most: how many messages may become ready at once.
    """

    backlog: fdb.Value
    own: fdb.Value
    held: list[fdb.FDBRange]
    rate: fdb.Value | None
    first: fdb.FDBRange
    most: int


def _filling(tr: fdb.Transaction, scope: Scope, key: str, most: int = MAX_FILLED) -> _Filling:
    keys = scope.keys
    return _Filling(
        tr.get(keys.backlog(key)),
        tr.get(keys.limits(key)),
        [permits.held(tr, rows, key) for rows in permits.kinds(keys)],
        _rate(tr, scope, key),
        backlog.first(tr, keys, key, most + 1),
        most,
    )


def _filled(
    tr: fdb.Transaction, scope: Scope, key: str, reads: _Filling, due_ms: int | None = None
) -> list[tuple[int, Envelope]]:
    """Let what may of a key become ready, all of its permits counted; returns that with its levels.

    due_ms: the time of its timer, to be used up.
    """
    keys, stored = scope.keys, reads.backlog
    allowed = limits.effective(scope, reads.own.value).allowed
    pace = None if reads.rate is None else Pace(tr, scope, key, allowed.rate, reads.rate)
    if due_ms is not None and (pace is None or not pace.fire(due_ms)):
        return []
    entries: list[tuple[int, Envelope]] = []
    if stored.present():
        kinds = zip(permits.kinds(keys), allowed.numbers, reads.held, strict=True)
        some: list[Permit] = [Permits(tr, rows, key, limit, those) for rows, limit, those in kinds]
        some += [] if pace is None else [pace]
        rows = reads.first.to_list()
        fits = fitting(((kv, unpack_delayed(kv.value)[1]) for kv in rows[: reads.most]), STEP_BYTES)
        entries = _hand_over(tr, scope, key, some, len(list(fits)), rows)
        if len(entries) < len(rows):
            known = unpack_backlog(stored.value)
            settled = allowed if allowed.rate or permits.exhausted(some) else None
            if known.settled != settled:
                tr[keys.backlog(key)] = pack_backlog(Backlog(known.since_ms, settled))
            if allowed.rate and pace is not None and all(each.left for each in some):
                pace.rely()  # The others come at once, in another transaction.
    if due_ms is not None and pace is not None:
        pace.rest()
    return entries


def _hand_over(
    tr: fdb.Transaction,
    scope: Scope,
    key: str,
    some: Sequence[Permit],
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
