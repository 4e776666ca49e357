"""Lookup: where a message is now, by its id.

An id names the first place of its message, so most messages need no further record. MOVED leads
from the id to any other place. A lease is at the position of its message, under another kind of
key. The leases of a plan are in the order of the plan, and searched by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from ..errors import CorruptData
from ..schema.envelope import open_envelope
from ..schema.keys import QueueKeys
from ..schema.leases import unpack_until
from ..schema.records import BacklogPlace, DeadLetter, DeadRecord, Delayed, Place, PlannedPlace
from ..schema.scope import Scope, StoredMessage
from ..schema.streams import Claimed, Planned
from ..store.binding import fdb
from ..values.model import Death, Due, MessageState, Position, parse_id
from ..values.states import State, exactly
from . import payloads, run
from .delivery import failures

_CLAIMS_AT_ONCE = 50
"""Claims of plans that are searched at once."""


class FoundMessage(Struct, frozen=True):
    """A message that is not leased, and its place."""

    place: Place
    message: StoredMessage
    death: Death | None = None

    @property
    def source(self) -> State:
        """The state it is in, as a transition names it."""
        match self.place:
            case DeadRecord():
                return State.DEAD
            case Due():
                return State.SCHEDULED
        return State.READY

    @property
    def state(self) -> State:
        """The state it is in."""
        waits, failed = isinstance(self.place, BacklogPlace), self.message.envelope.has_failed
        return exactly(self.source, waits=waits, failed=failed)


def key(keys: QueueKeys, place: Place) -> bytes:
    """The key of a place. A ready message in a block stands in the first row from there on."""
    match place:
        case Position():
            return keys.ready_key(place)
        case Due():
            return keys.delayed(*place)
        case DeadRecord():
            return keys.dead(place.version, place.random)
        case BacklogPlace():
            return keys.waiting(*place)
        case PlannedPlace():
            return bytes(run.plan_row(keys, place.claim, place.n).start)


def place_of(keys: QueueKeys, key: bytes) -> Place:
    """The place of a message, from its key. Raises ``CorruptData``."""
    for rows, place in (keys.delayed, Due), (keys.dead, DeadRecord), (keys.waiting, BacklogPlace):
        if key.startswith(rows.prefix):
            return place(*rows.parse(key))
    if key.startswith(keys.lease.prefix):
        return PlannedPlace(*keys.planned.parse(key))
    return keys.parse_ready(key)


def pointer(keys: QueueKeys, place: Place) -> bytes:
    """A place as MOVED names it: by its key, below the queue."""
    return key(keys, place)[len(keys.prefix) :]


def pointed(keys: QueueKeys, pointer: bytes) -> Place:
    """The place that a pointer names. Raises ``CorruptData``."""
    return place_of(keys, keys.prefix + pointer)


Read = Callable[[Scope], FoundMessage | None]
"""An issued read of a place: awaits it, and returns the message there, unless it is gone or leased
by a plan."""


class IdReads(Struct, frozen=True):
    """The reads for an id, issued and not awaited."""

    id: str
    named: Place
    first: Read
    moved: fdb.Value


def reads(tr: fdb.TransactionRead, keys: QueueKeys, message_id: str) -> IdReads:
    """Issue the reads for an id. Raises ``InvalidArgument`` if it is not an id."""
    named = parse_id(message_id)
    # Both at once, though most ids name their place: a message that has moved costs one more round
    # trip, not two.
    return IdReads(message_id, named, issue_place(tr, keys, named), tr.get(keys.moved(message_id)))


def find(tr: fdb.TransactionRead, scope: Scope, reads: IdReads) -> FoundMessage | None:
    """The message, unless it is leased or gone. A second round trip if it has moved.

    On a transaction, conflicts with whatever moves the message; on its snapshot, never.
    """
    found = reads.first(scope)
    if found is not None:
        return found
    moved = reads.moved.value
    if moved is None:
        return None
    place = pointed(scope.keys, moved)
    return issue_place(tr, scope.keys, place)(scope)


def issue_place(tr: fdb.TransactionRead, keys: QueueKeys, place: Place) -> Read:
    """Issue the read of a place: one row."""
    if isinstance(place, Position):
        return partial(_ready, run.find(tr, keys, place), place)
    return partial(_alone, tr.get(key(keys, place)), place)


def _ready(
    found: Callable[[], StoredMessage | None], place: Position, scope: Scope
) -> FoundMessage | None:
    message = found()
    return None if message is None else FoundMessage(place, message)


def _alone(found: fdb.Value, place: Place, scope: Scope) -> FoundMessage | None:
    value = found.value
    return None if value is None else parse(scope, place, value)


def current(tr: fdb.Transaction, scope: Scope, message_id: str) -> MessageState | None:
    """What is known about a message, wherever it is; None if it is gone.

    One round trip, or two if it has moved; where the queue has plans, up to sixteen more. Snapshot
    reads, no conflicts. Raises ``InvalidArgument`` if it is no id.
    """
    keys, snapshot = scope.keys, tr.snapshot
    issued = reads(snapshot, keys, message_id)
    place, plans = issued.named, keys.plan.rows
    lease = _leased_at(snapshot, keys, place)
    # A plan's lease has a key of its own order, which the id does not name: it is searched last,
    # and only the plans of this queue need reading.
    planned = snapshot.get_range(plans.start, plans.stop)
    moved = issued.moved.value
    if moved is not None:
        place = pointed(keys, moved)
        if isinstance(place, PlannedPlace):
            row = _row(snapshot, keys, place.claim, place.n)
            return _state_of(tr, scope, message_id, next(run.leases(keys, row), None))
        lease = _leased_at(snapshot, keys, place)
    found = find(snapshot, scope, issued)
    if found is not None:
        return state(tr, scope, found)
    if lease is None or not isinstance(place, Position):
        return None
    # A lease stands at the position of its message under another kind of key, so the place that has
    # no ready message may still have its lease.
    held = lease()
    if held is not None:
        return _state_of(tr, scope, message_id, held)
    for each in _planned(snapshot, keys, list(_claims(planned)), place):
        leased = _state_of(tr, scope, message_id, each)
        if leased is not None:
            return leased
    return None


def held(tr: fdb.Transaction, scope: Scope, reads: IdReads) -> tuple[run.One, StoredMessage] | None:
    """The lease of a message, and its message; None if there is none, or a plan has the message.

    reads: those of ``find``, which found nothing. One more round trip. Conflicts with whatever
    changes the lease.
    """
    moved = reads.moved.value
    place = reads.named if moved is None else pointed(scope.keys, moved)
    issued = _leased_at(tr, scope.keys, place)
    one = None if issued is None else issued()
    if one is None:
        return None
    message = one.message
    return (one, message) if message.id == reads.id else None


def _leased_at(
    tr: fdb.TransactionRead, keys: QueueKeys, place: Place
) -> Callable[[], run.One | None] | None:
    return run.held_at(tr, keys, place) if isinstance(place, Position) else None


def _state_of(
    tr: fdb.Transaction, scope: Scope, message_id: str, one: run.One | None
) -> MessageState | None:
    """What is known about the message of a lease, if it is the one with this id. Up to two round
    trips."""
    message = None if one is None else one.message
    if one is None or message is None or message.id != message_id:
        return None
    lease = one.row.lease
    until = tr.snapshot.get(scope.keys.until(lease.claim))
    (failed,) = failures.reads(tr, scope.keys, [message])
    (message,) = _loaded(tr, scope, message)
    ends = one.ends(unpack_until(until.value))
    return MessageState(
        message=message.opened,
        state=State.LEASED,
        lease_expires_at_ms=None if lease.planned else ends.wall_ms,
        consumer=lease.consumer,
        cancelled=message.envelope.cancelled,
        leased_at_ms=None if lease.planned else lease.since_ms,
        group=message.envelope.group,
        failures=failures.opened(failed),
    )


def _claims(plans: Iterable[fdb.KeyValue]) -> Iterator[Claimed]:
    for kv in plans:
        try:
            yield from Planned.unpack(kv.value).claims
        except CorruptData:
            continue  # verify shows it


def _planned(
    tr: fdb.TransactionRead, keys: QueueKeys, claims: Sequence[Claimed], wanted: Position
) -> Iterator[run.One]:
    """The leases of plans that have a message that stood at a position.

    The leases of a claim are in the order of the positions, but for those that joined it.
    """
    for begin in range(0, len(claims), _CLAIMS_AT_ONCE):
        halves = [
            (each.claim, [n for n in range(each.messages) if not each.joins(n)])
            for each in claims[begin : begin + _CLAIMS_AT_ONCE]
        ]
        # All claims are halved together: as many round trips as the largest needs, instead of the
        # sum. There may be none left of one, nor any in one of which all have joined.
        while ordered := [(claim, numbers) for claim, numbers in halves if numbers]:
            middles = [
                _row(tr, keys, claim, numbers[len(numbers) // 2]) for claim, numbers in ordered
            ]
            halves = []
            for (claim, numbers), row in zip(ordered, middles, strict=True):
                middle = len(numbers) // 2
                leases = list(run.leases(keys, row))
                yield from (one for one in leases if one.position == wanted)
                if leases and wanted < leases[0].position:
                    halves.append((claim, numbers[:middle]))
                elif leases and wanted > leases[-1].position:
                    halves.append((claim, numbers[middle + 1 :]))


def _row(tr: fdb.TransactionRead, keys: QueueKeys, claim: bytes, n: int) -> fdb.FDBRange:
    """Issue a read of the row that has a lease of a plan."""
    within = run.plan_row(keys, claim, n)
    return tr.get_range(within.start, within.stop, limit=1)


def state(tr: fdb.Transaction, scope: Scope, found: FoundMessage) -> MessageState:
    """What is known about a message that was found. One more round trip if it has chunks, or failed
    attempts."""
    (failed,) = failures.reads(tr, scope.keys, [found.message])
    (message,) = _loaded(tr, scope, found.message)
    return replace(described(found, message), failures=failures.opened(failed))


def described(found: FoundMessage, message: StoredMessage) -> MessageState:
    """What is known about a message that was found, and whose payload was read, without its failed
    attempts."""
    return MessageState(
        message=message.opened,
        state=found.state,
        due_at_ms=found.place.due_ms if isinstance(found.place, Due) else None,
        death=found.death,
        waits_for=found.place.gate if isinstance(found.place, BacklogPlace) else None,
        group=message.envelope.group,
    )


def point(tr: fdb.Transaction, keys: QueueKeys, message: StoredMessage, place: Place) -> None:
    """Make the message's id lead to its place. Writes blindly."""
    message_id = message.id
    # At the place that its id names no pointer is needed; one left over would lead others astray
    # after the next move.
    if isinstance(place, Position | Due) and place.to_id() == message_id:
        del tr[keys.moved(message_id)]
    else:
        tr[keys.moved(message_id)] = pointer(keys, place)


def _loaded(tr: fdb.Transaction, scope: Scope, message: StoredMessage) -> list[StoredMessage]:
    return payloads.load([message], payloads.reads(tr, scope.keys, [message]))


def parse(scope: Scope, place: Place, value: bytes) -> FoundMessage | None:
    """The message in a value; None if it is leased by a plan."""
    match place:
        case Position():
            return FoundMessage(place, StoredMessage(place, open_envelope(value)))
        case Due():
            delayed = Delayed.opened(value, scope.lost(place.random))
            return FoundMessage(place, StoredMessage(delayed.position, delayed.envelope))
        case BacklogPlace():
            delayed = Delayed.opened(value, scope.lost(place.random))
            return FoundMessage(
                place, StoredMessage(delayed.position, delayed.envelope, turn=place)
            )
        case DeadRecord():
            letter = DeadLetter.opened(value, scope.lost(place.random))
            message = StoredMessage(letter.position, letter.envelope)
            return FoundMessage(place, message, letter.death(scope.name, message.id))
        case PlannedPlace():
            return None
