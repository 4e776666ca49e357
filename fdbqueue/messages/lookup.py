"""Where a message is now, by its id.

An id names the first place of its message, so nothing is written for most messages. Where a
message stands elsewhere, MOVED leads from its id to there. A leased message is found by looking
through the leases.
"""

from __future__ import annotations

from ..schema.codec.dead_letters import unpack_dead
from ..schema.codec.delayed import unpack_delayed
from ..schema.codec.envelopes import open_envelope
from ..schema.codec.leases import Lease, unpack_lease
from ..schema.codec.lookup import DeadRecord, Place, Turn, pack_place, unpack_place
from ..schema.keys import Kind, QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Death, Due, MessageState, Position, parse_id
from ..values.records import record
from ..values.states import State
from . import payloads

PAGE_ROWS = 10_000
PAGE_BYTES = 10_000_000
"""Leases that one transaction looks through for a message."""


@record
class Found:
    """A message that is not leased: where, and what is stored there."""

    place: Place
    standing: StoredMessage
    death: Death | None = None


def key(keys: QueueKeys, place: Place) -> bytes:
    """The key of a place."""
    match place:
        case Position():
            return keys.ready(place)
        case Due():
            return keys.delayed(place)
        case DeadRecord():
            return keys.dead(place.version, place.random)
        case Turn():
            return keys.turn(place.key, place.n)


@record
class Looked:
    """The reads for an id, issued and not awaited."""

    id: str
    named: Place
    first: fdb.Value
    moved: fdb.Value


def look(tr: fdb.TransactionRead, keys: QueueKeys, message_id: str) -> Looked:
    """Issue the reads for an id. Raises ``InvalidArgument`` if it is none."""
    named = parse_id(message_id)
    return Looked(message_id, named, tr.get(key(keys, named)), tr.get(keys.moved(message_id)))


def find(tr: fdb.TransactionRead, scope: Scope, looked: Looked) -> Found | None:
    """The message, unless it is leased or gone. A second round trip if it has moved.

    On a transaction conflicts with whatever moves the message; on its snapshot with nothing.
    """
    value = looked.first.value
    if value is not None:
        return _found(scope, looked.named, value)
    moved = looked.moved.value
    if moved is None:
        return None
    place = unpack_place(moved)
    value = tr.get(key(scope.keys, place)).value
    return None if value is None else _found(scope, place, value)


def leased(
    tr: fdb.Transaction, scope: Scope, message_id: str, begin: bytes = b""
) -> tuple[MessageState | None, bytes]:
    """The message, if it is leased: looks through some leases of the queue.

    begin: the key to go on from; empty for the first. Returns also the key to go on from, empty at
    the end. Snapshot reads, no conflicts.
    """
    keys = scope.keys
    every = keys.kind(Kind.LEASE)
    name, rows, size = message_id.encode(), 0, 0
    for kv in tr.snapshot.get_range(max(begin, every.start), every.stop):
        lease = unpack_lease(kv.value)
        rows, size = rows + 1, size + len(kv.value)
        if lease.position.to_id() == message_id or name in lease.envelope:
            standing = StoredMessage(lease.position, open_envelope(lease.envelope))
            if standing.id == message_id:
                return _leased(tr, scope, keys.parse_lease(kv.key), lease, standing), b""
        if rows == PAGE_ROWS or size > PAGE_BYTES:
            return None, kv.key + b"\x00"
    return None, b""


def _leased(
    tr: fdb.Transaction, scope: Scope, token: bytes, lease: Lease, standing: StoredMessage
) -> MessageState:
    extended = tr.snapshot.get(scope.keys.until(token))
    (standing,) = _loaded(tr, scope, standing)
    return MessageState(
        message=standing.envelope.message(lease.position),
        state=State.LEASED,
        lease_expires_at_ms=None if lease.planned else lease.ends(extended.value).wall_ms,
        consumer=lease.consumer,
    )


def state(tr: fdb.Transaction, scope: Scope, found: Found) -> MessageState:
    """What is known about a message that was found. One round trip more for one in chunks."""
    (standing,) = _loaded(tr, scope, found.standing)
    states = {Position: State.READY, Due: State.DELAYED, DeadRecord: State.DEAD, Turn: State.READY}
    return MessageState(
        message=standing.envelope.message(standing.position),
        state=states[type(found.place)],
        due_at_ms=found.place.due_ms if isinstance(found.place, Due) else None,
        death=found.death,
        waits_for_key=isinstance(found.place, Turn),
    )


def point(tr: fdb.Transaction, keys: QueueKeys, standing: StoredMessage, place: Place) -> None:
    """Let the message's id lead to where the message is now. Writes blindly."""
    message_id = standing.id
    place = standing.turn or place
    if place == parse_id(message_id):
        del tr[keys.moved(message_id)]
    else:
        tr[keys.moved(message_id)] = pack_place(place)


def _loaded(tr: fdb.Transaction, scope: Scope, standing: StoredMessage) -> list[StoredMessage]:
    return payloads.load([standing], payloads.look(tr, scope.keys, [standing]))


def _found(scope: Scope, place: Place, value: bytes) -> Found:
    match place:
        case Position():
            return Found(place, StoredMessage(place, open_envelope(value)))
        case Due():
            return Found(place, StoredMessage(*unpack_delayed(value)))
        case Turn():
            return Found(place, StoredMessage(*unpack_delayed(value), turn=place))
        case DeadRecord():
            position, letter = unpack_dead(value)
            standing = StoredMessage(position, letter.envelope)
            return Found(place, standing, letter.death(scope.name, standing.id))
