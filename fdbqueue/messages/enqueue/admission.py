"""Letting messages in: at once or for later, and each only once where it asks for that."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...schema.codec.envelopes import Envelope, unpack_envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.content import check_payload
from ...values.model import RANDOM_BYTES, Due, Position
from ...values.records import record
from .. import delayed, payloads
from . import append, bounds, dedup, index_allocation, last_values, level_order


@record
class Draft:
    """A message that is to come in; ``due_ms`` is None where it is ready at once."""

    envelope: Envelope
    due_ms: int | None = None
    dedup_id: str | None = None

    @property
    def names(self) -> list[tuple[str, str]]:
        """What makes it the same message as another."""
        named = (("dedup", self.dedup_id), ("unique", self.envelope.unique))
        return [(kind, name) for kind, name in named if name is not None]


class Plain(NamedTuple):
    """Messages that are to come in at once and have nothing beside their envelopes.

    For each its priority, which is an int, the size of its payload, at most ``INLINE_LIMIT``, and
    its envelope, packed.
    """

    priorities: list[int]
    sizes: list[int]
    packed: list[bytes]

    def drafts(self) -> list[Draft]:
        """The same messages one by one."""
        return [Draft(unpack_envelope(each)) for each in self.packed]


@record
class Admitted:
    """The ids of messages in the order of their drafts, and how many of them are new."""

    ids: list[str]
    new: int


def counted(given: Plain | Sequence[Draft]) -> tuple[int, int]:
    """How many messages these are, and how many of them come in at once."""
    if isinstance(given, Plain):
        return len(given.packed), len(given.packed)
    return len(given), sum(draft.due_ms is None for draft in given)


@transactional
def admit(
    tr: fdb.Transaction, scope: Scope, given: Plain | Sequence[Draft], resuming: bool = False
) -> Admitted:
    """Let messages in, in their order, except those that are there already.

    resuming: whether the caller was refused before, since the queue was full.

    One round trip of snapshot reads, but for dedup ids and unique keys. Raises
    ``InvalidPriority``, ``PayloadTooLarge`` and ``QueueFull``, and where a header orders the queue
    what ``level_order.check`` raises, before anything is written.
    """
    if not isinstance(given, Plain):
        drafts = given
    elif max(given.sizes) > scope.plain_bytes:
        drafts = given.drafts()
    else:
        return _admit_plain(tr, scope, given)
    for draft in drafts if scope.options.ordered else ():
        level_order.check(scope.options, draft.envelope.headers, draft.envelope.key)
    now_ms = scope.now_ms(tr)
    levels = {_level(scope, draft) for draft in drafts if draft.due_ms is None}
    ends = {level: index_allocation.reads(tr, scope.keys, level) for level in levels}
    known = {
        n: dedup.reads(tr, scope, draft.dedup_id, draft.envelope.unique, now_ms)
        for n, draft in enumerate(drafts)
        if draft.dedup_id is not None or draft.envelope.unique is not None
    }
    load = bounds.reads(tr, scope)
    ids = {n: found for n, each in known.items() if (found := dedup.existing(each, now_ms))}
    twins = _twins(drafts, known, ids)
    new = [n for n in range(len(drafts)) if n not in ids and n not in twins]
    for n in new:
        check_payload(drafts[n].envelope.payload, scope.options.max_payload)
    entries = [(_level(scope, drafts[n]), drafts[n].envelope) for n in new]
    bounds.make_room(tr, scope, load, entries, resuming)
    added = list(_put(tr, scope, [drafts[n] for n in new], ends))
    for n, message in zip(new, added, strict=True):
        ids[n] = message.id
        if n in known:
            dedup.remember(tr, scope, drafts[n].dedup_id, message, now_ms)
        if message.envelope.expires_at_ms is not None:
            tr[scope.keys.mortal(message.envelope.expires_at_ms, message.id)] = b""
    last_values.replace_older(tr, scope, added)
    for n, twin in twins.items():
        ids[n] = ids[twin]
    return Admitted([ids[n] for n in range(len(drafts))], len(new))


def _admit_plain(tr: fdb.Transaction, scope: Scope, given: Plain) -> Admitted:
    """``admit`` in a queue that stores nothing else about such messages."""
    by_priority = {each: scope.options.level(each) for each in dict.fromkeys(given.priorities)}
    ends = {
        level: index_allocation.reads(tr, scope.keys, level)
        for level in dict.fromkeys(by_priority.values())
    }
    levels = [by_priority[each] for each in given.priorities]
    ids = append.append_packed(tr, scope, levels, given.sizes, given.packed, ends)
    return Admitted(ids, len(ids))


def _twins(drafts: Sequence[Draft], named: Iterable[int], ids: Mapping[int, str]) -> dict[int, int]:
    """The messages that an earlier one of the same call is the same as, by their numbers."""
    twins: dict[int, int] = {}
    seen: dict[tuple[str, str], int] = {}
    for n in named:
        names = drafts[n].names
        twin = next((seen[name] for name in names if name in seen), None)
        if n not in ids and twin is not None:
            twins[n] = twin
        for name in names:
            seen.setdefault(name, n if twin is None else twin)
    return twins


def _put(
    tr: fdb.Transaction,
    scope: Scope,
    drafts: Sequence[Draft],
    ends: Mapping[int, index_allocation.Reads],
) -> Iterator[StoredMessage]:
    """Put messages where they belong; yields them with their positions, in their order."""
    drafts = [
        Draft(payloads.store(tr, scope, each.envelope), each.due_ms, each.dedup_id)
        for each in drafts
    ]
    entries = [(_level(scope, each), each.envelope) for each in drafts if each.due_ms is None]
    appended = iter(append.append(tr, scope, entries, reads=ends) if entries else ())
    # Ascending: what is due at the same millisecond becomes ready in the order of the batch.
    randoms = iter(sorted(os.urandom(RANDOM_BYTES) for each in drafts if each.due_ms is not None))
    for draft in drafts:
        if draft.due_ms is None:
            yield next(appended)
            continue
        random = next(randoms)
        envelope = replace(draft.envelope, id=Due(draft.due_ms, random).to_id())
        message = StoredMessage(Position(_level(scope, draft), 0, random), envelope)
        delayed.schedule(tr, scope, draft.due_ms, message)
        yield message


def _level(scope: Scope, draft: Draft) -> int:
    return scope.options.level(draft.envelope.priority)
