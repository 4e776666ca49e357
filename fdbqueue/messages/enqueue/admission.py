"""Letting messages in: at once or for later, and each only once where it says so.

A dedup id is remembered for a window of time, a unique key while its message is ready, delayed or
leased. Both are read with a conflict, so that of two enqueues at once with the same id one comes
second; enqueues of different ids conflict as little as those of none.

Dedup ids are kept by the window in which they came, so that old ones go by one range clear, which
nobody reads. An enqueue looks in the window of its own clock and in those beside it: one back for
what came less than a window ago, one on for a clock that is ahead of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...schema.codec.envelopes import Envelope
from ...schema.codec.lookup import pack_known, unpack_known
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import RANDOM_BYTES, Due, Position
from ...values.records import record
from .. import delayed, payloads
from . import append, bounds, index_allocation


@record
class Draft:
    """A message that is to come in; ``due_ms`` is None where it is ready at once."""

    envelope: Envelope
    due_ms: int | None = None
    dedup_id: str | None = None


@record
class Admitted:
    """The ids of messages in the order of their drafts, and how many of them are new."""

    ids: list[str]
    new: int


@record
class Looked:
    """The reads that an admission needs, issued and not awaited."""

    ends: dict[int, index_allocation.Looked]
    known: list[tuple[list[fdb.Value], fdb.Value | None]]
    load: fdb.FDBRange | None


def look(tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft]) -> Looked:
    """Issue the reads. Raises ``InvalidPriority``."""
    levels = {_level(scope, draft) for draft in drafts if draft.due_ms is None}
    return Looked(
        {level: index_allocation.look(tr, scope.keys, level) for level in levels},
        [_known(tr, scope, draft) for draft in drafts],
        bounds.look(tr, scope),
    )


@transactional
def admit(
    tr: fdb.Transaction,
    scope: Scope,
    drafts: Sequence[Draft],
    looked: Looked,
    resuming: bool = False,
) -> Admitted:
    """Let messages in, in their order, except those that are there already.

    resuming: whether the caller was refused before, since the queue was full.

    One round trip, with ``look``: snapshot reads, but for dedup ids and unique keys. Raises
    ``QueueFull``, before anything is written.
    """
    ids: list[str | None] = []
    twins: dict[int, int] = {}
    seen: dict[tuple[str, str], int] = {}
    now_ms = scope.now_ms(tr)
    for n, (draft, values) in enumerate(zip(drafts, looked.known, strict=True)):
        names = list(_names(draft))
        found = _existing(values, now_ms)
        twin = next((seen[name] for name in names if name in seen), None)
        ids.append(found)
        if found is None and twin is not None:
            twins[n] = twin
        for name in names:
            seen.setdefault(name, n if twin is None else twin)
    new = [n for n, found in enumerate(ids) if found is None and n not in twins]
    entries = [(_level(scope, drafts[n]), drafts[n].envelope) for n in new]
    bounds.make_room(tr, scope, looked.load, entries, resuming)
    for n, message in zip(new, _place(tr, scope, [drafts[n] for n in new], looked), strict=True):
        ids[n] = message.id
        _remember(tr, scope, drafts[n], message, now_ms)
    for n, twin in twins.items():
        ids[n] = ids[twin]
    return Admitted([found for found in ids if found is not None], len(new))


def _place(
    tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft], looked: Looked
) -> Iterator[StoredMessage]:
    """Put messages where they belong; yields where they stand, in their order."""
    drafts = [
        replace(draft, envelope=payloads.store(tr, scope, draft.envelope)) for draft in drafts
    ]
    entries = [(_level(scope, each), each.envelope) for each in drafts if each.due_ms is None]
    placed = iter(append.append(tr, scope, entries, looks=looked.ends) if entries else ())
    # Ascending: what is due at the same millisecond becomes ready in the order of the batch.
    randoms = iter(sorted(os.urandom(RANDOM_BYTES) for each in drafts if each.due_ms is not None))
    for draft in drafts:
        if draft.due_ms is None:
            yield next(placed)
            continue
        random = next(randoms)
        envelope = replace(draft.envelope, id=Due(draft.due_ms, random).to_id())
        message = StoredMessage(Position(_level(scope, draft), 0, random), envelope)
        delayed.schedule(tr, scope, draft.due_ms, message)
        yield message


def _level(scope: Scope, draft: Draft) -> int:
    return scope.options.level(draft.envelope.priority)


def _names(draft: Draft) -> Iterator[tuple[str, str]]:
    if draft.dedup_id is not None:
        yield "dedup", draft.dedup_id
    if draft.envelope.unique is not None:
        yield "unique", draft.envelope.unique


def _known(
    tr: fdb.Transaction, scope: Scope, draft: Draft
) -> tuple[list[fdb.Value], fdb.Value | None]:
    dedup, unique = draft.dedup_id, draft.envelope.unique
    windows = _windows(tr, scope) if dedup is not None else ()
    return (
        [tr.get(scope.keys.dedup(window, dedup or "")) for window in windows],
        None if unique is None else tr.get(scope.keys.unique(unique)),
    )


def _existing(values: tuple[list[fdb.Value], fdb.Value | None], now_ms: int) -> str | None:
    """The id of the message that is there already, if one is."""
    remembered, unique = values
    for value in remembered:
        if value.present():
            message_id, until_ms = unpack_known(value.value or b"")
            if until_ms > now_ms:
                return message_id
    holder = None if unique is None else unique.value
    return None if holder is None else holder.decode()


def _remember(
    tr: fdb.Transaction, scope: Scope, draft: Draft, message: StoredMessage, now_ms: int
) -> None:
    keys, envelope = scope.keys, message.envelope
    if draft.dedup_id is not None:
        before, window, _ = _windows(tr, scope)
        until_ms = now_ms + int(scope.options.dedup_window * 1000)
        tr[keys.dedup(window, draft.dedup_id)] = pack_known(message.id, until_ms)
        old = keys.dedup_before(2 * before - window)
        tr.clear_range(old.start, old.stop)
    if envelope.unique is not None:
        tr[keys.unique(envelope.unique)] = message.id.encode()
    if envelope.expires_at_ms is not None:
        tr[keys.mortal(envelope.expires_at_ms, message.id)] = b""


def _windows(tr: fdb.Transaction, scope: Scope) -> tuple[int, int, int]:
    """When the windows began, or will, that an enqueue of now has to do with."""
    length = int(scope.options.dedup_window * 1000)
    now_ms = scope.now_ms(tr)
    current = now_ms - now_ms % length
    return current - length, current, current + length
