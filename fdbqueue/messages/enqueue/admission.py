"""Letting messages in: at once or for later, and each only once where it asks for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...schema import due
from ...schema.envelope import Envelope
from ...schema.keys import What
from ...schema.scope import Scope, StoredMessage
from ...store import world
from ...store.binding import fdb, transactional
from ...values.content import check_payload
from ...values.model import RANDOM_BYTES, Due, OnConflict, Position
from .. import payloads, place
from ..groups import members
from . import append, bounds, dedup, last_values, level_order, unique_keys


class Draft(Struct, frozen=True, gc=False):
    """A message that is to come in; ``due_ms`` is None where it is ready at once.

    ``on_conflict`` says what happens if another holds its unique key, ``max_delay_ms`` how long
    after its first enqueue that one may be put off. ``bare``: whether it is known to be ready at
    once, with nothing to store beside its envelope.
    """

    envelope: Envelope
    due_ms: int | None = None
    dedup_id: str | None = None
    on_conflict: OnConflict = "keep"
    max_delay_ms: int | None = None
    bare: bool = False

    @property
    def names(self) -> list[tuple[str, str]]:
        """What makes it the same message as another."""
        named = (("dedup", self.dedup_id), ("unique", self.envelope.unique))
        return [(kind, name) for kind, name in named if name is not None]


class Admitted(Struct, frozen=True):
    """The ids of messages in the order of their drafts, how many of them are new, and how many
    replaced what a waiting message said."""

    ids: list[str]
    new: int
    replaced: int = 0


@transactional
def admit(
    tr: fdb.Transaction,
    scope: Scope,
    drafts: Sequence[Draft],
    resuming: bool = False,
    room_made: bool = False,
) -> Admitted:
    """Let messages in, in their order, except those that are there already.

    resuming: whether the caller was refused before, since the queue was full. room_made: whether
    there is room for them.

    One round trip of snapshot reads, but for dedup ids and unique keys; another if these are known:
    whoever holds one and has expired ends. Raises
    ``InvalidArgument``, ``PayloadTooLarge`` and ``QueueFull``, and where a header orders the queue
    what ``level_order.check`` raises, before anything is written.
    """
    if all([each.bare for each in drafts]):  # noqa: C419 (faster)
        bare = [each.envelope for each in drafts]
        if max([len(each.payload) for each in bare]) <= scope.plain_bytes:
            return _admit_bare(tr, scope, bare)
    if any(draft.on_conflict != "keep" for draft in drafts):
        return _admit_in_turn(tr, scope, drafts, resuming)
    for draft in drafts if scope.options.ordered else ():
        level_order.check(scope.options, draft.envelope.headers, draft.envelope.gate)
    now_ms = scope.now_ms(tr)
    levels = {scope.level(draft.envelope.priority) for draft in drafts if draft.due_ms is None}
    ends = {level: place.reads(tr, scope.keys, level) for level in levels}
    known = _known(tr, scope, drafts, now_ms)
    load = None if room_made else bounds.reads(tr, scope)
    ids = {n: found for n, each in known.items() if (found := dedup.existing(each, now_ms))}
    holders = dict.fromkeys(ids[n] for n in ids if dedup.holder(known[n], now_ms))
    if holders and (gone := unique_keys.end_expired(tr, scope, holders, now_ms)):
        ids = {n: found for n, found in ids.items() if found not in gone}
        load = None if room_made else bounds.reads(tr, scope)
    twins = _twins(drafts, known, ids)
    new = [n for n in range(len(drafts)) if n not in ids and n not in twins]
    for n in new:
        check_payload(drafts[n].envelope.payload, scope.options.max_payload)
    entries = [(scope.level(drafts[n].envelope.priority), drafts[n].envelope) for n in new]
    bounds.make_room(tr, scope, load, entries, resuming)
    added = list(_put(tr, scope, [drafts[n] for n in new], ends))
    for n, message in zip(new, added, strict=True):
        ids[n] = message.id
        if n in known:
            dedup.remember(tr, scope, drafts[n].dedup_id, message, now_ms)
        if message.envelope.expires_at_ms is not None:
            due.tidy(tr, scope.keys, message.envelope.expires_at_ms, What.EXPIRED, message.id)
    members.add(tr, scope, added)
    last_values.replace_older(tr, scope, added)
    for n, twin in twins.items():
        ids[n] = ids[twin]
    return Admitted([ids[n] for n in range(len(drafts))], len(new))


def _admit_in_turn(
    tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft], resuming: bool
) -> Admitted:
    """``admit`` one after the other, so that each finds what those before it have left. Some are
    written before ``QueueFull`` is raised for another."""
    for draft in drafts:
        check_payload(draft.envelope.payload, scope.options.max_payload)
        scope.level(draft.envelope.priority)
        if scope.options.ordered:
            level_order.check(scope.options, draft.envelope.headers, draft.envelope.gate)
    _make_room(tr, scope, drafts, resuming)
    each = [
        admit(tr, scope, [draft], room_made=True)
        if draft.on_conflict == "keep"
        else _replace(tr, scope, draft)
        for draft in drafts
    ]
    return Admitted(
        [one.ids[0] for one in each],
        sum(one.new for one in each),
        sum(one.replaced for one in each),
    )


def _make_room(tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft], resuming: bool) -> None:
    """Make room for those of some messages that come in beside what waits: for all at once, as each
    alone would read the oldest messages anew. One that replaces another needs none, unless that is
    among those that go to make room."""
    before, found = 0, bounds.reads(tr, scope)
    while found is not None:
        new = [(scope.level(each.priority), each) for each in _coming(tr, scope, drafts)]
        if len(new) == before:
            return
        bounds.make_room(tr, scope, found, new, resuming)
        before, found = len(new), bounds.reads(tr, scope)


def _coming(tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft]) -> list[Envelope]:
    """Those of some messages that come in beside what waits."""
    now_ms = scope.now_ms(tr)
    known = _known(tr, scope, drafts, now_ms)
    ids = {n: found for n, each in known.items() if (found := dedup.existing(each, now_ms))}
    twins = _twins(drafts, known, ids)

    def is_new(n: int) -> bool:
        if n not in ids:
            return n not in twins
        holder, on_conflict = dedup.holder(known[n], now_ms), drafts[n].on_conflict
        found = None if holder is None else unique_keys.waiting(tr, scope, holder)
        over = found is not None and found.message.envelope.expired(now_ms)
        return over or (holder is not None and found is None and on_conflict != "keep")

    return [each.envelope for n, each in enumerate(drafts) if is_new(n)]


def _replace(tr: fdb.Transaction, scope: Scope, draft: Draft) -> Admitted:
    """Let in a message that may replace what a waiting one says; there is room for it if it is new.
    Raises ``QueueFull`` where it is larger than what it replaces."""
    now_ms = scope.now_ms(tr)
    plain = replace(draft, on_conflict="keep")
    names = dedup.reads(tr, scope, draft.dedup_id, draft.envelope.unique, now_ms)
    holder = dedup.holder(names, now_ms)
    if holder is not None and unique_keys.end_expired(tr, scope, [holder], now_ms):
        return admit(tr, scope, [plain], room_made=True)
    found = None if holder is None else unique_keys.waiting(tr, scope, holder)
    if holder is None or found is None:
        if holder is not None and draft.envelope.unique is not None:
            unique_keys.take_over(tr, scope, holder, draft.envelope.unique)
        return admit(tr, scope, [plain], room_made=True)
    due_ms = None
    if draft.on_conflict == "debounce":
        due_ms = unique_keys.due(found, draft.due_ms or now_ms, draft.max_delay_ms, now_ms)
    if unique_keys.stays(scope, found, draft.envelope):
        unique_keys.put(tr, scope, found, draft.envelope, due_ms)
        message = found.message
        if draft.dedup_id is not None:
            dedup.remember(tr, scope, draft.dedup_id, message, now_ms)
        return Admitted([message.id], 0, 1)
    if due_ms is None and isinstance(found.place, Due):
        due_ms = found.place.due_ms
    old = found.message.envelope
    leaves = 0 if isinstance(found.place, Due) else old.size
    comes = draft.envelope.size if due_ms is None else 0
    bounds.check_room(tr, scope, bounds.reads(tr, scope), bounds.Load(0, comes - leaves))
    unique_keys.end(tr, scope, found)
    kept_ms = unique_keys.longer(draft.envelope, old)
    envelope = replace(draft.envelope, enqueued_at_ms=old.enqueued_at_ms, keep_result_ms=kept_ms)
    again = replace(plain, envelope=envelope, due_ms=due_ms)
    return Admitted(admit(tr, scope, [again], room_made=True).ids, 0, 1)


def _known(
    tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft], now_ms: int
) -> dict[int, dedup.Reads]:
    """Issue the reads of the names of messages, by their numbers."""
    return {
        n: dedup.reads(tr, scope, draft.dedup_id, draft.envelope.unique, now_ms)
        for n, draft in enumerate(drafts)
        if draft.dedup_id is not None or draft.envelope.unique is not None
    }


def _admit_bare(tr: fdb.Transaction, scope: Scope, envelopes: Sequence[Envelope]) -> Admitted:
    """``admit`` in a queue that stores nothing else about such messages."""
    level_of = {each: scope.level(each) for each in {each.priority for each in envelopes}}
    ends = {level: place.reads(tr, scope.keys, level) for level in sorted({*level_of.values()})}
    ids = append.append_bare(
        tr, scope, [(level_of[each.priority], each) for each in envelopes], ends
    )
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
    ends: Mapping[int, place.Reads],
) -> Iterator[StoredMessage]:
    """Put messages where they belong; yields them with their positions, in their order."""
    stored = [payloads.store(tr, scope, each.envelope) for each in drafts]
    entries = [
        (scope.level(envelope.priority), envelope)
        for draft, envelope in zip(drafts, stored, strict=True)
        if draft.due_ms is None
    ]
    appended = iter(append.append(tr, scope, entries, reads=ends) if entries else ())
    # Ascending: what is due at the same millisecond becomes ready in the order of the batch.
    randoms = iter(
        sorted(world.urandom(RANDOM_BYTES) for each in drafts if each.due_ms is not None)
    )
    for draft, envelope in zip(drafts, stored, strict=True):
        if draft.due_ms is None:
            yield next(appended)
            continue
        random, level = next(randoms), scope.level(envelope.priority)
        named = replace(envelope, id=Due(level, draft.due_ms, random).to_id())
        message = StoredMessage(Position(level, 0, random), named)
        append.schedule(tr, scope, draft.due_ms, message)
        yield message
