"""Moving, copying and removing many messages: a page at a time, each page in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..schema.codec.dead_letters import unpack_dead
from ..schema.codec.delayed import unpack_delayed
from ..schema.codec.envelopes import open_envelope
from ..schema.codec.lookup import Turn
from ..schema.keys import Kind
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Message, Position
from ..values.records import record
from ..values.states import (
    FORWARD_DELAYED,
    FORWARD_READY,
    PURGE_DEAD,
    PURGE_DELAYED,
    PURGE_READY,
    State,
    Transition,
)
from . import lookup, payloads, transitions
from .delivery import scan
from .enqueue import admission, index_allocation
from .enqueue.admission import Draft

PAGE_ROWS = 200
PAGE_BYTES = 3_000_000
"""What a page holds of envelopes and payloads, but for one that is larger by itself."""

REMOVED = {
    State.READY: PURGE_READY,
    State.DELAYED: PURGE_DELAYED,
    State.DEAD: PURGE_DEAD,
}
MOVED = {
    State.READY: FORWARD_READY,
    State.DELAYED: FORWARD_DELAYED,
    State.DEAD: PURGE_DEAD,
}


@record
class Operation:
    """What to do with which messages.

    ended: the transition of those that leave the queue; None where they stay.
    """

    state: State
    wanted: Callable[[Message], bool]
    ended: Transition | None

    def wants(self, message: StoredMessage) -> bool:
        """Whether a message is one of those."""
        return self.wanted(message.envelope.properties(message.position))


@record
class Row:
    """A message in a page: as it stands, its key, and the draft of it for another queue."""

    key: bytes
    standing: StoredMessage
    due_ms: int | None = None
    death: tuple[str, int, int, str, str] | None = None


@fdb.transactional
def ranges(tr: fdb.Transaction, scope: Scope, kind: Kind) -> list[tuple[bytes, bytes]]:
    """The ranges of keys with the messages of a kind, in the order of delivery.

    Of the ready messages those that are there now: an end that moves away is never reached.
    """
    keys = scope.keys
    if kind is not Kind.READY:
        every = keys.kind(kind)
        return [(every.start, every.stop)]
    looks = [index_allocation.look(tr, keys, level) for level in range(scope.options.levels)]
    return [
        (
            keys.ready_level(level).start,
            keys.ready_end(level, index_allocation.next_index(keys, *looked)),
        )
        for level, looked in enumerate(looks)
    ]


@fdb.transactional
def page(
    tr: fdb.Transaction,
    scope: Scope,
    target: Scope | None,
    operation: Operation,
    begin: bytes,
    end: bytes,
) -> tuple[int, int, bytes]:
    """Do an operation on a page of messages; returns how many it took, how many it looked at,
    and the key to go on from, empty at the end.

    target: the queue that they come into; None for nowhere. One that ends none and has no
    target counts them. Snapshot reads; conflicts only with
    whoever takes the messages that leave the queue. Raises ``QueueFull``.
    """
    rows: list[Row] = []
    left, looked, following = PAGE_BYTES, 0, b""
    found = [
        _row(scope, operation.state, kv)
        for kv in tr.snapshot.get_range(begin, end, limit=PAGE_ROWS)
    ]
    heads = _heads(tr, scope, found) if operation.ended else {}
    for row in found:
        turn = row.standing.turn
        head = heads.pop(turn.key, None) if turn else None
        batch = [each for each in (head, row) if each and operation.wants(each.standing)]
        size = sum(each.standing.envelope.size for each in batch)
        if size > left and (rows or len(batch) > 1):
            # The head alone at most; what is left here stands at the end of the level then.
            rows += batch[:-1] if not rows else []
            following = row.key
            break
        rows += batch
        left -= size
        looked += 1
    if not following and len(found) == PAGE_ROWS:
        following = found[-1].key + b"\x00"
    if rows and target is not None:
        _arrive(tr, scope, target, rows)
    if rows and operation.ended is not None:
        _leave(tr, scope, operation.ended, rows)
    return len(rows), looked, following


def _row(scope: Scope, state: State, kv: fdb.KeyValue) -> Row:
    keys, key = scope.keys, bytes(kv.key)
    if state is State.DEAD:
        position, letter = unpack_dead(kv.value)
        message = StoredMessage(position, letter.envelope)
        envelope = letter.envelope
        death = (letter.reason, letter.died_at_ms, envelope.attempts, scope.name, message.id)
        return Row(key, message, death=death)
    if state is State.DELAYED:
        return Row(key, StoredMessage(*unpack_delayed(kv.value)), keys.parse_delayed(key).due_ms)
    lines = keys.kind(Kind.GROUP)
    if lines.start <= key < lines.stop:
        turn = Turn(*keys.parse_line(key))
        return Row(key, StoredMessage(*unpack_delayed(kv.value), turn=turn))
    return Row(key, StoredMessage(keys.parse_ready(key), open_envelope(kv.value)))


def _heads(tr: fdb.Transaction, scope: Scope, rows: Sequence[Row]) -> dict[str, Row]:
    """The messages that are out, and ready, for the lines that rows wait in: they go before."""
    keys = scope.keys
    lines = {row.standing.turn.key for row in rows if row.standing.turn}
    ids = {line: tr.snapshot.get(keys.head(line)) for line in lines}
    looks = {
        line: lookup.look(tr.snapshot, keys, head.decode())
        for line, value in ids.items()
        if (head := value.value)
    }
    heads = {}
    for line, looked in looks.items():
        match lookup.find(tr.snapshot, scope, looked):
            case lookup.Found(place=Position() as position, standing=standing):
                heads[line] = Row(keys.ready(position), standing)
    return heads


def _arrive(tr: fdb.Transaction, scope: Scope, target: Scope, rows: Sequence[Row]) -> None:
    standing = [row.standing for row in rows]
    # Read before the end of the messages in this queue removes their chunks.
    loaded = payloads.load(standing, payloads.reads(tr, scope.keys, standing))
    drafts = []
    for row, message in zip(rows, loaded, strict=True):
        envelope = payloads.plain(message.envelope)
        fresh = replace(
            envelope,
            priority=min(envelope.priority, target.options.max_priority),
            attempts=0,
            id=None,
            unique=None,
            expires_at_ms=None if row.death else envelope.expires_at_ms,
            key=envelope.key or envelope.former_key,
            former_key=None,
            death=row.death or envelope.death,
        )
        drafts.append(Draft(fresh, row.due_ms))
    admission.admit(tr, target, drafts, admission.look(tr, target, drafts))


def _leave(tr: fdb.Transaction, scope: Scope, ended: Transition, rows: Sequence[Row]) -> None:
    for row in rows:
        tr.add_read_conflict_key(row.key)
        del tr[row.key]
    if ended.source is State.READY:
        in_place = [row.standing for row in rows if row.standing.turn is None]
        scan.remove(tr, scope.keys, in_place)
    transitions.record(tr, scope, ended, [row.standing for row in rows])
