"""Many messages, chosen one page at a time, and what becomes of them: each page in one transaction.

``page`` chooses by a condition, ``by_ids`` by ids. What they return goes to ``leave``, ``arrive``,
``edit``, ``redrive`` or ``cancel``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import CorruptData, InvalidArgument
from ..schema.key_kinds import Kind
from ..schema.keys import QueueKeys
from ..schema.records import BacklogPlace, DeadRecord, Place, unpack_id
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..values.limits import Gate
from ..values.model import Due, Message, Position
from ..values.states import End, State
from . import (
    dead_letters,
    editing,
    listing,
    lookup,
    payloads,
    place,
    run,
    settle,
)
from .delivery import cancellation, failures, lease, results
from .enqueue import admission
from .enqueue.admission import Draft
from .lookup import FoundMessage
from .transaction_budget import PAGE_BYTES, weight

PAGE_ROWS = 200
"""The most messages of one page."""
MOVED_TO = "→ "
"""What the history has before the name of the queue that a message has gone to."""
PAGE_IDS = 100
"""The most ids that one transaction looks up."""

KINDS: dict[Kind, tuple[State, ...]] = {
    QueueKeys.lease: (State.LEASED,),
    QueueKeys.delayed: (State.RETRYING, State.SCHEDULED),
    QueueKeys.waiting: (State.WAITING,),
    QueueKeys.ready: (State.READY,),
    QueueKeys.dead: (State.DEAD,),
}
"""Where messages are, and the states of those there. Lines of ordering keys come before their
heads: so each message of a key keeps its place behind the others until it leaves."""


class SelectedPage(NamedTuple):
    """What one transaction has chosen.

    rows: those that are not leased. leased: the ids of those that are. looked: how many it has
    read. following: the key to continue from, empty at the end.
    """

    rows: list[FoundMessage]
    leased: list[str]
    looked: int
    following: bytes = b""


@transactional
def ranges(tr: fdb.Transaction, scope: Scope, kind: Kind) -> list[slice]:
    """The ranges of keys that hold the messages of a kind, in the order of delivery.

    Only ready messages and dead letters that exist now, so that arrivals cannot keep an operation
    from ending; in a sorted level also those that come in before the last of them, ahead of the
    operation.
    """
    keys = scope.keys
    if kind is QueueKeys.dead:
        # Letters that die while the operation runs come behind this bound: it would otherwise chase
        # a queue that keeps failing.
        newest = dead_letters.newest_version(tr, scope)
        return [slice(keys.kind(kind).start, keys.dead(newest + 1, b""))]
    if kind is not QueueKeys.ready:
        return [keys.holding(kind)]
    ends = [place.reads(tr, keys, level) for level in range(scope.options.levels)]
    return [
        slice(keys.ready.under(level).start, place.end(scope, level, reads))
        for level, reads in enumerate(ends)
    ]


@transactional
def page(
    tr: fdb.Transaction,
    scope: Scope,
    kind: Kind,
    states: Sequence[State],
    wanted: Callable[[Message], bool],
    within: slice,
    *,
    most: int,
    leaves: bool,
) -> SelectedPage:
    """Choose messages of a kind that are in one of the states, in a range of keys, but no next
    ticks of schedules.

    most: how many to read. leaves: whether they leave the queue: then the messages that a key or a
    limit has let out come before those that follow them. Snapshot reads: no conflicts.
    """
    if kind is QueueKeys.lease:
        return _leased(tr, scope, wanted, within.start, most)
    left, room, count, following = PAGE_BYTES, PAGE_BYTES, 0, b""
    found: list[FoundMessage] = []
    keys = scope.keys
    read = tr.snapshot.get_range(within.start, within.stop, limit=most)
    for size, one in listing.opened(scope, kind, read, within.start):
        found.append(one)
        room -= size
        if room < 0 or len(found) == most:
            break
    ahead_of = _ahead(tr, scope, found) if leaves else {}
    rows: list[FoundMessage] = []
    taken: set[Place] = set()
    for row in found:
        turn = row.message.turn
        ahead = ahead_of.pop(turn.gate, []) if turn else []
        for each in (one for one in (*ahead, row) if _wants(states, wanted, one)):
            if each.place in taken:
                continue
            size = weight(each.message.envelope)
            if size > left and rows:
                # A message that stays becomes ready when one of those ahead of it leaves.
                following = lookup.key(keys, row.place)
                break
            rows.append(each)
            # One that is ahead of several waiting messages would be chosen once for each.
            taken.add(each.place)
            left -= size
        if following:
            break
        count += 1
    if not following and (room < 0 or len(found) == most):
        following = lookup.key(keys, found[-1].place) + b"\x00"
    return SelectedPage(rows, [], count, following)


def _wants(states: Sequence[State], wanted: Callable[[Message], bool], found: FoundMessage) -> bool:
    # A next tick belongs to its schedule: removed alone, the schedule would never tick again.
    if found.message.envelope.schedule is not None or found.state not in states:
        return False
    message = found.message.envelope.properties(found.message.position)
    return wanted(message if found.death is None else replace(message, death=found.death))


def _leased(
    tr: fdb.Transaction, scope: Scope, wanted: Callable[[Message], bool], begin: bytes, most: int
) -> SelectedPage:
    listed, following = lease.listed(tr, scope, most, begin, PAGE_BYTES)
    chosen = [one.delivery.id for one in listed if not one.planned and wanted(one.delivery.message)]
    return SelectedPage([], chosen, len(listed), following)


@transactional
def by_ids(
    tr: fdb.Transaction, scope: Scope, ids: Sequence[str], states: Sequence[State]
) -> SelectedPage:
    """The messages with these ids that are in one of the states, as many as a transaction takes.

    Those of plans are in none. Two round trips, three for leased ones. Conflicts with whatever
    moves one of them. Raises ``InvalidArgument`` for what is no id, or that of a schedule's next
    tick.
    """
    rows: list[FoundMessage] = []
    leased: list[str] = []
    left, looked = PAGE_BYTES, 0
    for issued in [lookup.reads(tr, scope.keys, each) for each in ids]:
        found = lookup.find(tr, scope, issued)
        if found is None and State.LEASED in states and lookup.held(tr, scope, issued) is not None:
            leased.append(issued.id)
        if found is not None:
            _check_no_tick(found)
            if found.state in states:
                left -= weight(found.message.envelope)
                if left < 0 and rows:
                    break
                rows.append(found)
        looked += 1
    return SelectedPage(rows, leased, looked)


def _check_no_tick(found: FoundMessage) -> None:
    name = found.message.envelope.schedule
    if name is not None:
        raise InvalidArgument(
            argument="id",
            value=found.message.id,
            problem=f"it is the next tick of schedule {name}: pause, change or delete that",
        )


def leave(tr: fdb.Transaction, scope: Scope, rows: Sequence[FoundMessage]) -> None:
    """Remove messages from the queue. Conflicts with other takers of them."""
    _watch(tr, scope, rows)
    settle.end(tr, scope, rows, End.PURGE)


def move(
    tr: fdb.Transaction, scope: Scope, target: Scope, rows: Sequence[FoundMessage]
) -> list[str]:
    """Move messages into another queue; returns their ids there. Conflicts as ``leave``. Raises
    ``QueueFull``."""
    _watch(tr, scope, rows)
    # First in, then out, in one transaction: a full target raises before anything has left.
    ids = arrive(tr, scope, target, rows)
    # The history says where they went.
    to = f"{MOVED_TO}{target.name}"
    rows = [replace(row, message=replace(row.message, consumer=to)) for row in rows]
    # What ends there to make room may free what one of these waits for: then it is ready by now.
    waited = [row.message.id for row in rows if isinstance(row.place, BacklogPlace)]
    issued = [lookup.reads(tr, scope.keys, message_id) for message_id in waited]
    # The reads see this transaction's own writes.
    now = [lookup.find(tr, scope, each) for each in issued]
    stand = [row for row in rows if not isinstance(row.place, BacklogPlace)]
    settle.end(tr, scope, [*stand, *(each for each in now if each is not None)], End.FORWARD)
    left = [row.message for row in rows]
    results.keep_where(tr, scope, State.PURGED, left, target.name, ids)
    return ids


def redrive(tr: fdb.Transaction, scope: Scope, rows: Sequence[FoundMessage]) -> int:
    """Make dead letters ready, and delayed messages due; returns how many."""
    _watch(tr, scope, rows)
    records = [(row.place, row.message) for row in rows if isinstance(row.place, DeadRecord)]
    count = dead_letters.redrive(tr, scope, records) if records else 0
    delayed = [row for row in rows if row.source is State.SCHEDULED]
    return count + edit(tr, scope, delayed, None, 0)


def edit(
    tr: fdb.Transaction,
    scope: Scope,
    rows: Sequence[FoundMessage],
    priority: int | None,
    due_ms: int | None,
    content: editing.Content | None = None,
) -> int:
    """Change what can be read, as ``editing.edit``; returns how many."""
    some = [row for row in rows if editing.editable(row, dead=content is not None)]
    _watch(tr, scope, some)
    editing.edit(tr, scope, some, priority, due_ms, content)
    return len(some)


def cancel(tr: fdb.Transaction, scope: Scope, ids: Sequence[str]) -> int:
    """Ask the handlers of leased messages to stop; returns how many were not asked before."""
    issued = [lookup.reads(tr, scope.keys, each) for each in ids]
    return sum(cancellation.request(tr, scope, each) for each in issued)


def _watch(tr: fdb.Transaction, scope: Scope, rows: Sequence[FoundMessage]) -> None:
    """Conflict with others that take, change or remove them."""
    ready = [row.message for row in rows if isinstance(row.place, Position)]
    # The page was chosen at snapshot isolation, so that reading thousands conflicts with nobody;
    # those that are changed are added here.
    run.watch(tr, ready)
    for row in rows:
        if not isinstance(row.place, Position):
            tr.add_read_conflict_key(lookup.key(scope.keys, row.place))


def _ahead(
    tr: fdb.Transaction, scope: Scope, rows: Sequence[FoundMessage]
) -> dict[Gate, list[FoundMessage]]:
    """By key or limit, the messages that the waiting ones follow: these hold the slots and are
    ready, or wait for another slot: they leave before them."""
    keys = scope.keys
    slots = {}
    turns = (row.message.turn for row in rows)
    for gate in dict.fromkeys(turn.gate for turn in turns if turn):
        every = keys.slot.under(gate)
        # At snapshot isolation: who holds a slot only decides the order here, and a wrong order
        # costs a message nothing but its turn.
        slots[gate] = tr.snapshot.get_range(every.start, every.stop)
    reads: dict[Gate, list[lookup.IdReads]] = {gate: [] for gate in slots}
    for gate, held in slots.items():
        for kv in held:
            with suppress(CorruptData):  # verify shows it
                reads[gate].append(lookup.reads(tr.snapshot, keys, unpack_id(kv.value)))
    ahead: dict[Gate, list[FoundMessage]] = {}
    for gate, issued in reads.items():
        holders = (lookup.find(tr.snapshot, scope, each) for each in issued)
        there = [
            each for each in holders if each and isinstance(each.place, Position | BacklogPlace)
        ]
        # One with slots of more gates was there before.
        rows_of = [(isinstance(each.place, BacklogPlace), each) for each in there]
        ahead[gate] = [
            each
            for _, each in sorted(rows_of, key=lambda one: (one[0], lookup.key(keys, one[1].place)))
        ]
    return ahead


def arrive(
    tr: fdb.Transaction, scope: Scope, target: Scope, rows: Sequence[FoundMessage]
) -> list[str]:
    """Put messages, which still are in this queue, into another one; returns their ids there.

    Raises ``QueueFull``.
    """
    stored = [row.message for row in rows]
    # Read before the messages leave this queue, which removes what is beside them.
    failed = failures.reads(tr, scope.keys, stored)
    loaded = payloads.load(stored, payloads.reads(tr, scope.keys, stored))
    drafts = []
    for row, message, along in zip(rows, loaded, failures.packed(failed), strict=True):
        envelope = payloads.plain(message)
        fresh = replace(
            envelope.elsewhere(target.options),
            # A dead letter has outlived its time; ready elsewhere with it, it would expire at once.
            expires_at_ms=None if row.death else envelope.expires_at_ms,
            key=envelope.key or envelope.former_key,
            former_key=None,
            limits=envelope.limits or envelope.former_limits,
            former_limits=None,
            death=row.death or envelope.death,
            failures=len(along),
        )
        due_ms = row.place.due_ms if isinstance(row.place, Due) else None
        drafts.append(Draft(fresh, due_ms, failures=along))
    return admission.admit(tr, target, drafts).ids
