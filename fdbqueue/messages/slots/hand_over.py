"""Handing slots over: whoever ends a message gives its slot to the next that waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...schema.codec.atomic import pack_index
from ...schema.codec.delayed import unpack_delayed
from ...schema.codec.envelopes import Envelope, pack_envelope
from ...schema.codec.slots import Backlog, pack_backlog, unpack_backlog
from ...schema.keys import Kind
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.limits import KeyLimits
from .. import lookup
from ..enqueue import index_allocation
from ..transaction_budget import STEP_BYTES, fitting
from . import backlog, limits

MAX_FILLED = 100
"""The most messages of a key that one transaction gives free slots to."""
MAX_LOOKED_AT = 500
"""The most rows of keys with a backlog that one transaction looks at."""


class _Reads(NamedTuple):
    """The reads of a key of which messages have ended, issued and not awaited."""

    limits: fdb.Value
    backlog: fdb.Value
    held: dict[int, fdb.Value]
    first: fdb.FDBRange


def ended(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> None:
    """Free the slots of messages that have ended, and hand them to those that wait.

    One round trip if any of the messages has a key; another if one becomes ready, and another if
    the limit of its key has changed. Conflicts with other ends of the same key that hand over to
    the same message, and with enqueues only where the backlog begins or ends.
    """
    keys = scope.keys
    of_key: defaultdict[str, list[StoredMessage]] = defaultdict(list)
    for message in messages:
        if message.envelope.key:
            of_key[message.envelope.key].append(message)
    reads = {}
    for key, those in of_key.items():
        # One that waits holds no slot. A dead letter has none either, but may still name one.
        slots = {each.envelope.slot for each in those if each.turn is None}
        reads[key] = _Reads(
            tr.get(keys.limits(key)),
            tr.get(keys.backlog(key)),
            {n: tr.get(keys.slot(key, n)) for n in slots if n is not None},
            backlog.first(tr, keys, key, len(those) + 1),
        )
    entries = []
    for key, found in reads.items():
        ids = {each.id for each in of_key[key]}
        freed = [n for n, held in found.held.items() if (held.value or b"").decode() in ids]
        for n in freed:
            del tr[keys.slot(key, n)]
        if not found.backlog.present():
            continue
        waited = sum(each.turn is not None for each in of_key[key])
        known = unpack_backlog(found.backlog.value)
        if _settled(known, limits.effective(scope, found.limits.value)):
            entries += _hand_over(tr, scope, key, freed, found.first.to_list(), waited)
        else:
            if waited:
                backlog.shrink(tr, keys, key, waited, found.first.to_list()[:1])
            entries += _filled(tr, scope, key)
    _make_ready(tr, scope, entries)


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
        if not _settled(known, limits.effective(scope, own.value)):
            filled = fill(tr, scope, key)
            # Again, until no slot is free.
            return filled, row if filled else row + b"\x00"
    return 0, rows[-1].key + b"\x00" if len(rows) == MAX_LOOKED_AT else b""


def _settled(stored: Backlog, now: KeyLimits) -> bool:
    """Whether all slots are taken that the limit allows, and no others."""
    return stored.settled is not None and stored.settled == now.slots


def _filled(tr: fdb.Transaction, scope: Scope, key: str) -> list[tuple[int, Envelope]]:
    keys = scope.keys
    stored, own = tr.get(keys.backlog(key)), tr.get(keys.limits(key))
    every = keys.slot.under(key)
    held = tr.get_range(every.start, every.stop)
    first = backlog.first(tr, keys, key, MAX_FILLED + 1)
    if not stored.present():
        return []
    limit = limits.effective(scope, own.value).slots
    used = {keys.slot.parse(kv.key)[1] for kv in held}
    numbers: list[int | None] = [None] * MAX_FILLED
    if limit is not None:
        free = [n for n in range(limit) if n not in used]
        numbers = [*free[: max(0, min(MAX_FILLED, limit - len(used)))]]
    rows = first.to_list()
    each = ((kv, unpack_delayed(kv.value)[1]) for kv in rows[: len(numbers)])
    numbers = numbers[: len(list(fitting(each, STEP_BYTES)))]
    entries = _hand_over(tr, scope, key, numbers, rows)
    used.update(n for n in numbers if n is not None)
    if len(numbers) < len(rows):
        settled = limit if limit is not None and used == set(range(limit)) else None
        known = unpack_backlog(stored.value)
        if known.settled != settled:
            tr[keys.backlog(key)] = pack_backlog(Backlog(known.since_ms, settled))
    return entries


def _hand_over(
    tr: fdb.Transaction,
    scope: Scope,
    key: str,
    slots: Sequence[int | None],
    rows: Sequence[fdb.KeyValue],
    waited: int = 0,
) -> list[tuple[int, Envelope]]:
    """Take the first that wait, one for each slot; returns them with their levels.

    rows: the first that wait, more than slots if there are so many. waited: how many have ended
    while they waited, already removed.
    """
    keys = scope.keys
    entries = []
    for n, kv in zip(slots, rows, strict=False):
        position, envelope = unpack_delayed(kv.value)
        tr.add_read_conflict_key(kv.key)
        del tr[kv.key]
        if n is not None:
            tr[keys.slot(key, n)] = (envelope.id or "").encode()
        entries.append((position.level, replace(envelope, slot=n)))
    taken = len(entries) + waited
    if taken:
        backlog.shrink(tr, keys, key, taken, rows[len(entries) :])
    return entries


def _make_ready(tr: fdb.Transaction, scope: Scope, entries: Sequence[tuple[int, Envelope]]) -> None:
    """Put messages behind all others of their levels, as an enqueue does."""
    if not entries:
        return
    keys = scope.keys
    for message in index_allocation.assign(tr, scope, entries):
        tr[keys.ready(message.position)] = pack_envelope(message.envelope)
        lookup.point(tr, keys, message, message.position)
    tr.add(keys.change, pack_index(1))
