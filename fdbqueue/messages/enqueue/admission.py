"""Letting messages in: at once or for later, and each only once where it asks for that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

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
from ...values.states import ENQUEUE
from .. import payloads, place
from ..delivery import failures
from ..groups import members
from ..slots import taking
from . import append, bounds, dedup, last_values, level_order, unique_keys
from .bounds import Room


class Draft(Struct, frozen=True, gc=False):
    """A message that is to come in; ``due_ms`` is None where it is ready at once.

    ``on_conflict`` says what happens if another holds its unique key, ``max_delay_ms`` how long
    after its first enqueue that one may be put off. ``bare``: whether it is known to be ready at
    once, with nothing to store beside its envelope. ``failures``: what its failed attempts have
    left in another queue.
    """

    envelope: Envelope
    due_ms: int | None = None
    dedup_id: str | None = None
    on_conflict: OnConflict = "keep"
    max_delay_ms: int | None = None
    bare: bool = False
    failures: Sequence[bytes] = ()

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


class EnqueueReads(Struct, frozen=True):
    """What enqueuing reads, issued and not awaited.

    bare: whether all messages are. later: whether any is due later. levels: of the messages, by
    their priorities. ends: of the levels of those that are ready at once. names: dedup ids and
    unique keys, by the numbers of their messages. load: None where there is room in any case. way:
    the keys and limits that messages come to.
    """

    bare: bool
    later: bool
    levels: Mapping[int, int]
    ends: Mapping[int, place.LevelEndReads]
    names: Mapping[int, dedup.DedupReads]
    load: fdb.FDBRange | None
    way: taking.Way | None


def reads(
    tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft], room: Room = Room.UNKNOWN
) -> EnqueueReads | None:
    """Issue the reads for messages: snapshot reads, but for those of dedup ids and unique keys.
    None for messages that read one after the other. Raises ``InvalidArgument``."""
    bare, later, levels = True, False, {}
    ends: dict[int, place.LevelEndReads] = {}
    for draft in drafts:
        priority = draft.envelope.priority
        if priority not in levels:
            levels[priority] = scope.level(priority)
        if not draft.bare:
            bare = False
            # What replaces others depends on what those before it in the call have written: no
            # reads can be issued ahead.
            if draft.on_conflict != "keep":
                return None
            if draft.due_ms is not None:
                later = True
                continue
        level = levels[priority]
        if level not in ends:
            # One read for each level, not for each message: its messages stand behind each other.
            ends[level] = place.reads(tr, scope.keys, level)
    load = None if room is Room.MADE else bounds.reads(tr, scope)
    if bare:
        return EnqueueReads(bare, later, levels, ends, {}, load, None)
    ready = [draft.envelope for draft in drafts if draft.due_ms is None]
    names = _names(tr, scope, drafts)
    way = taking.reads(tr, scope, ready)
    return EnqueueReads(bare, later, levels, ends, names, load, way)


@transactional
def admit(
    tr: fdb.Transaction,
    scope: Scope,
    drafts: Sequence[Draft],
    found: EnqueueReads | None = None,
    room: Room = Room.UNKNOWN,
) -> Admitted:
    """Let messages in, in their order, except those that are there already.

    found: the reads, if the caller has issued them.

    One round trip; another if a unique key is known: whoever holds one and has expired ends; two
    more if others are dropped to make room, since these free what was read. Raises
    ``InvalidArgument``, ``PayloadTooLarge`` and ``QueueFull``, and where a header orders the queue
    what ``level_order.check_sortable`` raises, before anything is written.
    """
    for draft in drafts if scope.options.ordered else ():
        level_order.check_sortable(scope.options, draft.envelope.headers, draft.envelope.gate)
    found = found or reads(tr, scope, drafts, room)
    if found is None:
        return _admit_in_turn(tr, scope, drafts, room)
    ids: dict[int, str] = {}
    twins: dict[int, int] = {}
    new: Sequence[int] = range(len(drafts))
    if found.names:
        ids, twins, ended = _known(tr, scope, drafts, found.names)
        if ended:  # What was read is no more.
            # Issued reads still say that the ended ones are there; reads of the same transaction do
            # not.
            return admit(tr, scope, drafts, None, room)
        # Of several, one may replace by its value what another is the same as.
        if scope.options.last_value is not None and len(drafts) > 1 and (ids or twins):
            return _admit_in_turn(tr, scope, drafts, room)
        new = [n for n in new if n not in ids and n not in twins]
    entries = [(found.levels[each.priority], each) for each in [drafts[n].envelope for n in new]]
    # Otherwise some may have to be compressed, or to stand in chunks.
    longest = max([len(each.payload) for _, each in entries], default=0)
    inline = found.bare and longest <= scope.inline_bytes
    for _, envelope in () if inline else entries:
        check_payload(envelope.payload, scope.options.max_payload)
    # Before payloads are stored: ``QueueFull`` must leave nothing behind in a caller's transaction.
    dropped = found.load is not None and bounds.make_room(tr, scope, found.load, entries, room)
    if dropped and found.names:  # Who was known by the name of one is new, and needs room, too.
        return admit(tr, scope, drafts)
    if not inline:
        entries = [(level, payloads.store(tr, scope, each)) for level, each in entries]
    if dropped:  # What they held is free, or others have it.
        found = reads(tr, scope, drafts, room=Room.MADE) or found
    alone: Collection[StoredMessage]
    if found.later:
        added, alone = _put(tr, scope, [drafts[n] for n in new], entries, found)
    else:
        appended = append.append(tr, scope, entries, ENQUEUE, found.ends, found.way)
        added, alone = appended.ids, appended.alone.values()
    if found.names:
        _remember(tr, scope, drafts, dict(zip(new, added, strict=True)), found.names)
    for n, message_id in () if found.bare else zip(new, added, strict=True):
        failures.bring(tr, scope.keys, message_id, drafts[n].failures)
    if alone:
        _write_beside(tr, scope, alone)
    if len(added) < len(drafts):
        ids |= zip(new, added, strict=True)
        ids |= {n: ids[twin] for n, twin in twins.items()}
        # Whoever enqueues a message that is there already gets the id of that one.
        added = [ids[n] for n in range(len(drafts))]
    return Admitted(added, len(new))


def _write_beside(tr: fdb.Transaction, scope: Scope, messages: Collection[StoredMessage]) -> None:
    """Write what belongs to new messages beside their rows."""
    for message in messages:
        if message.envelope.expires_at_ms is not None:
            due.tidy(tr, scope.keys, message.envelope.expires_at_ms, What.EXPIRED, message.id)
    members.add(tr, scope, messages)
    last_values.replace_older(tr, scope, messages)


def _admit_in_turn(
    tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft], room: Room
) -> Admitted:
    """``admit`` one after the other, so that each finds what those before it have left. Some are
    written before ``QueueFull`` is raised for another."""
    for draft in drafts:
        check_payload(draft.envelope.payload, scope.options.max_payload)
        scope.level(draft.envelope.priority)
    _make_room(tr, scope, drafts, room)
    each = [
        admit(tr, scope, [draft], room=Room.MADE)
        if draft.on_conflict == "keep"
        else _replace(tr, scope, draft)
        for draft in drafts
    ]
    return Admitted(
        [one.ids[0] for one in each],
        sum(one.new for one in each),
        sum(one.replaced for one in each),
    )


def _make_room(tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft], room: Room) -> None:
    """Make room for those of some messages that come in beside what waits: for all at once, as each
    alone would read the oldest messages anew. One that replaces another needs none, unless that is
    among those that go to make room."""
    before, found = 0, bounds.reads(tr, scope)
    while found is not None:
        new = [(scope.level(each.priority), each) for each in _coming(tr, scope, drafts)]
        if len(new) == before:
            return
        bounds.make_room(tr, scope, found, new, room)
        # Dropping may have ended a message that one of these was to replace: then that one is new,
        # and needs room, too. It ends, since more become new each time.
        before, found = len(new), bounds.reads(tr, scope)


def _coming(tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft]) -> list[Envelope]:
    """Those of some messages that come in beside what waits."""
    now_ms = scope.now_ms(tr)
    known = _names(tr, scope, drafts)
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
        return admit(tr, scope, [plain], room=Room.MADE)
    found = None if holder is None else unique_keys.waiting(tr, scope, holder)
    if holder is None or found is None:
        if holder is not None and draft.envelope.unique is not None:
            unique_keys.take_over(tr, scope, holder, draft.envelope.unique)
        return admit(tr, scope, [plain], room=Room.MADE)
    due_ms = None
    if draft.on_conflict == "debounce":
        due_ms = unique_keys.due(found, draft.due_ms or now_ms, draft.max_delay_ms, now_ms)
    if unique_keys.stays(scope, found, draft.envelope):
        unique_keys.rewrite(tr, scope, found, draft.envelope, due_ms)
        message = found.message
        if draft.dedup_id is not None:
            dedup.remember(tr, scope, draft.dedup_id, message.envelope.unique, message.id, now_ms)
        return Admitted([message.id], 0, 1)
    if due_ms is None and isinstance(found.place, Due):
        due_ms = found.place.due_ms
    old = found.message.envelope
    leaves = 0 if isinstance(found.place, Due) else old.size
    comes = draft.envelope.size if due_ms is None else 0
    # Checked before the old message ends, which cannot be taken back in the caller's transaction.
    bounds.check_room(tr, scope, bounds.reads(tr, scope), bounds.Load(0, comes - leaves))
    unique_keys.end(tr, scope, found)
    kept_ms = unique_keys.longer(draft.envelope, old)
    # It counts as enqueued when the first of them was: otherwise each replacement would put its
    # debounce off further.
    envelope = replace(draft.envelope, enqueued_at_ms=old.enqueued_at_ms, keep_result_ms=kept_ms)
    again = replace(plain, envelope=envelope, due_ms=due_ms)
    return Admitted(admit(tr, scope, [again], room=Room.MADE).ids, 0, 1)


def _names(
    tr: fdb.Transaction, scope: Scope, drafts: Sequence[Draft]
) -> dict[int, dedup.DedupReads]:
    """Issue the reads of the names of messages, by their numbers."""
    now_ms = scope.now_ms(tr)
    return {
        n: dedup.reads(tr, scope, draft.dedup_id, draft.envelope.unique, now_ms)
        for n, draft in enumerate(drafts)
        if draft.dedup_id is not None or draft.envelope.unique is not None
    }


def _known(
    tr: fdb.Transaction,
    scope: Scope,
    drafts: Sequence[Draft],
    names: Mapping[int, dedup.DedupReads],
) -> tuple[dict[int, str], dict[int, int], bool]:
    """The ids of messages that are there already, and an earlier one of the same call that is the
    same as another, by their numbers; and whether any has expired, and ends now."""
    now_ms = scope.now_ms(tr)
    ids = {n: found for n, each in names.items() if (found := dedup.existing(each, now_ms))}
    holders = dict.fromkeys(ids[n] for n in ids if dedup.holder(names[n], now_ms))
    ended = bool(holders) and bool(unique_keys.end_expired(tr, scope, holders, now_ms))
    return ids, _twins(drafts, names, ids), ended


def _remember(
    tr: fdb.Transaction,
    scope: Scope,
    drafts: Sequence[Draft],
    ids: Mapping[int, str],
    names: Mapping[int, dedup.DedupReads],
) -> None:
    """Keep the names of new messages."""
    now_ms = scope.now_ms(tr)
    for n in ids.keys() & names:
        draft = drafts[n]
        dedup.remember(tr, scope, draft.dedup_id, draft.envelope.unique, ids[n], now_ms)


def _twins(drafts: Sequence[Draft], named: Iterable[int], ids: Mapping[int, str]) -> dict[int, int]:
    """The messages that an earlier one of the same call is the same as, by their numbers."""
    twins: dict[int, int] = {}
    seen: dict[tuple[str, str], int] = {}
    for n in named:
        names = drafts[n].names
        # Within one call no read can show the other: both are written only afterwards.
        twin = next((seen[name] for name in names if name in seen), None)
        if n in ids:
            continue  # It is not written, and leaves none of its names to others.
        if twin is not None:
            twins[n] = twin
        else:
            seen.update(dict.fromkeys(names, n))
    return twins


def _put(
    tr: fdb.Transaction,
    scope: Scope,
    drafts: Sequence[Draft],
    entries: Sequence[tuple[int, Envelope]],
    found: EnqueueReads,
) -> tuple[list[str], list[StoredMessage]]:
    """Put messages where they belong, some of which are due later; returns their ids, in their
    order, and those that have side records, or are due later, as they are stored."""
    both = list(zip(entries, drafts, strict=True))
    ready = [entry for entry, draft in both if draft.due_ms is None]
    added = append.append(tr, scope, ready, ENQUEUE, found.ends, found.way)
    ids, alone = added.ids, [*added.alone.values()]
    # Ascending: what is due at the same millisecond becomes ready in the order of the batch.
    randoms = iter(sorted([world.urandom(RANDOM_BYTES) for _ in range(len(both) - len(ready))]))
    for n, ((level, envelope), draft) in enumerate(both):
        if draft.due_ms is not None:
            random = next(randoms)
            ids.insert(n, Due(level, draft.due_ms, random).to_id())
            message = StoredMessage(Position(level, 0, random), replace(envelope, id=ids[n]))
            append.schedule(tr, scope, draft.due_ms, message)
            alone.append(message)
    return ids, alone
