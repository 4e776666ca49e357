"""Moving, copying and removing many messages: a page at a time, each page in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..schema.codec.lookup import DeadRecord, Turn
from ..schema.keys import Kind
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..values.limits import Gate
from ..values.model import Due, Message, Position
from ..values.records import record
from ..values.states import FORWARD_DELAYED, FORWARD_READY, PURGE_DEAD, State, Transition
from . import inspection, lookup, payloads, transitions
from .delivery import scan
from .enqueue import admission, index_allocation, level_order
from .enqueue.admission import Draft
from .lookup import Found
from .transaction_budget import PAGE_BYTES, weight

PAGE_ROWS = 200

MOVED = {
    State.READY: FORWARD_READY,
    State.DELAYED: FORWARD_DELAYED,
    State.DEAD: PURGE_DEAD,
}


@record
class Operation:
    """What to do with which messages.

    ended: the transition of those that leave the queue; None if they stay.
    """

    state: State
    wanted: Callable[[Message], bool]
    ended: Transition | None

    def wants(self, found: Found) -> bool:
        """Whether the operation takes a message: any but the next ticks of schedules."""
        envelope = found.message.envelope
        if envelope.schedule is not None:
            return False
        message = envelope.properties(found.message.position)
        return self.wanted(message if found.death is None else replace(message, death=found.death))


@transactional
def ranges(tr: fdb.Transaction, scope: Scope, kind: Kind) -> list[tuple[bytes, bytes]]:
    """The ranges of keys that hold the messages of a kind, in the order of delivery.

    Only ready messages that exist now, so that arrivals cannot keep an operation from ending; in a
    sorted level also those that come in before the last of them, ahead of the operation.
    """
    keys = scope.keys
    if kind is not Kind.READY:
        every = keys.kind(kind)
        return [(every.start, every.stop)]
    ends = [index_allocation.reads(tr, keys, level) for level in range(scope.options.levels)]
    return [
        (keys.ready_level(level).start, level_order.end(scope, level, reads))
        for level, reads in enumerate(ends)
    ]


@transactional
def page(
    tr: fdb.Transaction,
    scope: Scope,
    target: Scope | None,
    operation: Operation,
    begin: bytes,
    end: bytes,
) -> tuple[int, int, bytes]:
    """Apply an operation to a page of messages; returns how many it took, how many it read, and
    the key to continue from, empty at the end.

    target: the queue that gets them, if any. An operation that ends none and has no target counts
    them. Snapshot reads; conflicts only with other takers of messages that leave the queue. Raises
    ``QueueFull``.
    """
    rows: list[tuple[bytes, Found]] = []
    left, count, following = PAGE_BYTES, 0, b""
    kind = _kind(scope, operation.state, begin)
    read = tr.snapshot.get_range(begin, end, limit=PAGE_ROWS)
    found: list[tuple[bytes, Found]] = []
    room = PAGE_BYTES
    for key, size, one in inspection.opened(scope, kind, read, begin):
        found.append((key, one))
        room -= size
        if room < 0 or len(found) == PAGE_ROWS:
            break
    ahead_of = _ahead(tr, scope, found) if operation.ended else {}
    taken: set[bytes] = set()
    for row in found:
        turn = row[1].message.turn
        ahead = ahead_of.pop(turn.gate, []) if turn else []
        for each in (one for one in (*ahead, row) if operation.wants(one[1])):
            if each[0] in taken:
                continue
            size = weight(each[1].message.envelope)
            if size > left and rows:
                # A message that stays becomes ready when one of those ahead of it leaves.
                following = row[0]
                break
            rows.append(each)
            taken.add(each[0])
            left -= size
        if following:
            break
        count += 1
    if not following and (room < 0 or len(found) == PAGE_ROWS):
        following = found[-1][0] + b"\x00"
    if rows and target is not None:
        _arrive(tr, scope, target, [each for _, each in rows])
    if rows and operation.ended is not None:
        _leave(tr, scope, operation.ended, rows)
    return len(rows), count, following


@transactional
def move_dead(
    tr: fdb.Transaction, scope: Scope, target: Scope, message_ids: Sequence[str]
) -> tuple[int, int]:
    """Move the dead letters with these ids; returns how many, and how many ids it has looked at.

    Two round trips of snapshot reads, of these messages alone; conflicts with other takers of them.
    Raises ``InvalidArgument`` if one is not an id, ``QueueFull``.
    """
    rows: list[tuple[bytes, Found]] = []
    left, looked = PAGE_BYTES, 0
    issued = [lookup.reads(tr.snapshot, scope.keys, message_id) for message_id in message_ids]
    for each in issued:
        found = lookup.find(tr.snapshot, scope, each)
        if found is not None and isinstance(found.place, DeadRecord):
            left -= found.message.envelope.size
            if left < 0 and rows:
                break
            rows.append((lookup.key(scope.keys, found.place), found))
        looked += 1
    if rows:
        _arrive(tr, scope, target, [found for _, found in rows])
        _leave(tr, scope, MOVED[State.DEAD], rows)
    return len(rows), looked


def _kind(scope: Scope, state: State, key: bytes) -> Kind:
    if state is not State.READY:
        return Kind.DEAD if state is State.DEAD else Kind.DELAYED
    backlogs = scope.keys.kind(Kind.WAITING)
    return Kind.WAITING if backlogs.start <= key < backlogs.stop else Kind.READY


def _ahead(
    tr: fdb.Transaction, scope: Scope, rows: Sequence[tuple[bytes, Found]]
) -> dict[Gate, list[tuple[bytes, Found]]]:
    """By key or limit, the messages that the waiting ones follow: these hold the slots and are
    ready, or wait for another slot: they leave before them."""
    keys = scope.keys
    slots = {}
    for gate in {found.message.turn.gate for _, found in rows if found.message.turn}:
        every = keys.slot.under(gate)
        slots[gate] = tr.snapshot.get_range(every.start, every.stop)
    reads = {
        gate: [lookup.reads(tr.snapshot, keys, kv.value.decode()) for kv in held]
        for gate, held in slots.items()
    }
    ahead: dict[Gate, list[tuple[bytes, Found]]] = {}
    for gate, issued in reads.items():
        holders = (lookup.find(tr.snapshot, scope, each) for each in issued)
        there = [each for each in holders if each and isinstance(each.place, Position | Turn)]
        # One with slots of more gates was there before.
        rows_of = [(isinstance(each.place, Turn), each) for each in there]
        ahead[gate] = [
            (lookup.key(keys, each.place), each)
            for _, each in sorted(rows_of, key=lambda one: (one[0], lookup.key(keys, one[1].place)))
        ]
    return ahead


def _arrive(tr: fdb.Transaction, scope: Scope, target: Scope, rows: Sequence[Found]) -> None:
    stored = [row.message for row in rows]
    # Read before the messages leave this queue, which removes their chunks.
    loaded = payloads.load(stored, payloads.reads(tr, scope.keys, stored))
    drafts = []
    for row, message in zip(rows, loaded, strict=True):
        envelope = payloads.plain(message.envelope)
        death = row.death and (
            *(row.death.reason, row.death.died_at_ms, row.death.attempts),
            *(row.death.queue, row.death.id),
        )
        fresh = replace(
            envelope.elsewhere(target.options),
            expires_at_ms=None if death else envelope.expires_at_ms,
            key=envelope.key or envelope.former_key,
            former_key=None,
            limits=envelope.limits or envelope.former_limits,
            former_limits=None,
            death=death or envelope.death,
        )
        drafts.append(Draft(fresh, row.place.due_ms if isinstance(row.place, Due) else None))
    admission.admit(tr, target, drafts)


def _leave(
    tr: fdb.Transaction, scope: Scope, ended: Transition, rows: Sequence[tuple[bytes, Found]]
) -> None:
    messages = [found.message for _, found in rows]
    ready = [each for each in messages if each.turn is None and ended.source is State.READY]
    scan.watch(tr, scope.keys, ready)
    scan.remove(tr, scope.keys, ready)
    for key, found in rows:
        if not isinstance(found.place, Position):
            tr.add_read_conflict_key(key)
            del tr[key]
    transitions.record(tr, scope, ended, messages)
