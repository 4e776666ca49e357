"""How values are stored: a version byte, then MessagePack.

An envelope is a map with small integers for names, so that a field at its default costs nothing
and a later release can add one. A value of a newer version is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from ..errors import CorruptData, FormatTooNew
from ..values.model import BYTES, Death, Due, Headers, HeaderValue, Message, Position
from ..values.options import DEFAULT_PRIORITY

VERSION = 1
VALUE_LIMIT = 100_000
ENVELOPE_ROOM = 10_000
"""Kept free in a value for what the lease and the queue add to a payload."""
INLINE_LIMIT = VALUE_LIMIT - ENVELOPE_ROOM
MAX_ERROR_CHARACTERS = 500
SUSPECT_AFTER = 2

_COUNTER_BYTES = 8
_VERSION = bytes([VERSION])


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message as it is stored, without its position.

    ``id`` is None while the position that the message stands at is the one that its id names.
    ``payload`` is what the envelope itself holds: compressed if ``compression`` is named, and
    nothing if it is in the ``chunk_bytes`` bytes of chunks under the name ``chunks``; then
    ``raw_size`` is the size of what was enqueued. ``content`` is that again, once it was read.
    ``alone`` is how often a lease of it has lapsed without a failed attempt, at least 1 if one has
    lapsed at all: then it is delivered alone, and from 2 on handled beside no other.
    ``released`` is how often it was given back without a failure since it last failed.
    ``former_key`` is the ordering key that it had in the queue where it died: among dead letters
    none waits for another.

    ``others`` are fields of a later release, by their numbers, which go where the envelope goes.
    ``opaque`` is the whole of a stored envelope that cannot be read, see ``open_envelope``.
    """

    payload: bytes
    priority: int
    enqueued_at_ms: int
    headers: dict[str, HeaderValue] = field(default_factory=dict)
    attempts: int = 0
    id: str | None = None
    expires_at_ms: int | None = None
    max_attempts: int | None = None
    backoff: dict[str, Any] | None = None
    last_error: str | None = None
    unique: str | None = None
    death: tuple[str, int, int, str, str] | None = None
    content_type: str = BYTES
    compression: str = ""
    raw_size: int | None = None
    chunks: bytes = b""
    chunk_bytes: int = 0
    key: str | None = None
    alone: int = 0
    released: int = 0
    former_key: str | None = None
    content: bytes | None = field(default=None, compare=False, repr=False)
    others: dict[int, Any] = field(default_factory=dict, repr=False)
    opaque: bytes | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """The size of the payload in bytes, as it was enqueued."""
        return len(self.payload) if self.raw_size is None else self.raw_size

    def message(self, position: Position) -> Message:
        """The message that stands at ``position``; its content must be at hand."""
        content = self.payload if self.content is None and self.raw_size is None else self.content
        assert content is not None, "the payload was not read"
        return self._with(content, position)

    def properties(self, position: Position) -> Message:
        """The message that stands at ``position``, without its payload: what selectors see."""
        return self._with(b"", position)

    def _with(self, payload: bytes, position: Position) -> Message:
        return Message(
            id=self.id or position.to_id(),
            payload=payload,
            headers=self.headers,
            priority=self.priority,
            level=position.level,
            attempts=self.attempts,
            enqueued_at_ms=self.enqueued_at_ms,
            expires_at_ms=self.expires_at_ms,
            last_error=self.last_error,
            death=Death(*self.death) if self.death else None,
            content_type=self.content_type,
            redelivered=self.alone + self.attempts > 0,
            max_attempts=self.max_attempts,
            backoff=self.backoff,
            unique=self.unique,
            key=self.key,
        )

    def failed(self, error: str | None = None) -> Envelope:
        """The envelope after one more attempt that did not succeed.

        error: what it failed of; an earlier text stays where None.
        """
        text = self.last_error if error is None else error[:MAX_ERROR_CHARACTERS]
        return replace(self, attempts=self.attempts + 1, last_error=text, released=0)

    def lapsed(self, *, begun: bool) -> Envelope:
        """The envelope after its lease has lapsed: what its consumer died of is to be found out.

        begun: whether that was of this message, as far as is known.
        """
        return replace(self, alone=max(1, self.alone) if begun else self.alone + 1)

    @property
    def suspect(self) -> bool:
        """Whether it is handled beside no other message: each time it was, a consumer was lost."""
        return self.alone >= SUSPECT_AFTER

    def expired(self, now_ms: int) -> bool:
        """Whether its time to live is over."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


class Until(NamedTuple):
    """When a lease ends: the database's version and the wall clock."""

    version: int
    wall_ms: int


class Lease(NamedTuple):
    """A message in the hands of a consumer. ``envelope`` stays packed until it is needed.

    begun: whether its consumer began with it as it was granted, and with no other; else, if the
    lease lapses, nobody knows why, and that is no failed attempt.

    The expiry is the one it was granted with; one that was extended ends later, see ``Until``. One
    of a plan never lapses: its expiry is 0.
    """

    position: Position
    expiry_version: int
    expiry_ms: int
    consumer: str
    envelope: bytes
    begun: bool = True

    @property
    def planned(self) -> bool:
        """Whether it belongs to a plan: it does not lapse, and is settled with the plan alone."""
        return self.expiry_version == 0

    def ends(self, extended: bytes | None) -> Until:
        """When it ends, given what is stored of its extension."""
        if extended is None:
            return Until(self.expiry_version, self.expiry_ms)
        return unpack_until(extended)


class Beat(NamedTuple):
    """A sign of life: the database's version and the wall clock when it was given."""

    version: int
    wall_ms: int


class ConsumerRecord(NamedTuple):
    """A consumer that is registered: its name and priority, and the process that it runs in."""

    name: str
    priority: int
    host: str
    process: int
    started_at_ms: int


class DeadLetter(NamedTuple):
    """A message that is delivered no more, why, and since when (wall clock)."""

    envelope: Envelope
    reason: str
    died_at_ms: int

    def death(self, queue: str, message_id: str) -> Death:
        """How the message died, for those who ask."""
        attempts = self.envelope.attempts
        return Death(self.reason, self.died_at_ms, attempts, queue, message_id)


class Request(NamedTuple):
    """What a consumer that stands in line asks for.

    waits: whether it stays in line while the queue is empty; else it is told so.
    alive_until: the version after which it is taken for dead, unless it says that it is not.
    called: whether it has been called to lead; its own watch sees the change.
    begins, suspects: whether it begins at once with a message that it is handed alone, beside no
    other; and whether it does with one that asks for that.
    """

    max_messages: int
    seconds: float
    consumer: str
    waits: bool
    alive_until: int
    called: bool = False
    begins: bool = True
    suspects: bool = True


_NAMES = {
    1: "payload",
    2: "priority",
    3: "enqueued_at_ms",
    4: "headers",
    5: "attempts",
    6: "id",
    16: "expires_at_ms",
    17: "max_attempts",
    18: "backoff",
    19: "last_error",
    20: "unique",
    21: "death",
    32: "content_type",
    33: "compression",
    34: "raw_size",
    35: "chunks",
    36: "chunk_bytes",
    37: "key",
    38: "alone",
    39: "released",
    40: "former_key",
}
_DEFAULTS: dict[str, object] = {
    "headers": {},
    "attempts": 0,
    "id": None,
    "expires_at_ms": None,
    "max_attempts": None,
    "backoff": None,
    "last_error": None,
    "unique": None,
    "death": None,
    "content_type": BYTES,
    "compression": "",
    "raw_size": None,
    "chunks": b"",
    "chunk_bytes": 0,
    "key": None,
    "alone": 0,
    "released": 0,
    "former_key": None,
}
_FIELDS = tuple((number, name, _DEFAULTS.get(name, _NAMES)) for number, name in _NAMES.items())


def pack_envelope(envelope: Envelope) -> bytes:
    """The stored form of an envelope."""
    if envelope.opaque is not None:
        return envelope.opaque
    stored = {
        number: value
        for number, name, default in _FIELDS
        if (value := getattr(envelope, name)) != default
    }
    return _versioned({**stored, **envelope.others} if envelope.others else stored)


def pack_plain(
    payload: bytes, priority: int, now_ms: int, headers: Headers, content_type: str = BYTES
) -> bytes:
    """What ``pack_envelope`` makes of an envelope that has nothing else, in a fraction of the time.

    Nothing is checked.
    """
    stored: dict[int, object] = {1: payload, 2: priority, 3: now_ms}
    if headers:
        stored[4] = headers
    if content_type != BYTES:
        stored[32] = content_type
    return _versioned(stored)


def unpack_envelope(value: bytes) -> Envelope:
    """An envelope from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = _unversioned(value, "an envelope")
    try:
        fields = {_NAMES.get(number, number): field for number, field in stored.items()}
        others = {name: fields.pop(name) for name in fields.keys() - FIELDS.keys()}
        if others:
            if not all(type(number) is int for number in others):
                raise CorruptData(what="an envelope", problem=f"it has other fields: {others!r}")
            fields["others"] = others
        if type(fields["payload"]) is not bytes:
            raise CorruptData(what="an envelope", problem="its payload is no bytes")
        if "death" in fields:
            reason, died_at_ms, attempts, queue, message_id = fields["death"]
            fields["death"] = (reason, died_at_ms, attempts, queue, message_id)
        return Envelope(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptData(what="an envelope", problem=repr(error)) from None


UNREADABLE = "application/vnd.fdbqueue.unreadable"
"""The content type of a message whose envelope cannot be read; its payload is that envelope."""


def open_envelope(value: object) -> Envelope:
    """As ``unpack_envelope``, but one that cannot be read is kept as it is.

    Its payload is then the stored envelope, its content type ``UNREADABLE``, and ``last_error``
    says why; wherever it is stored again, it is what it was, for a release that can read it.
    Raises ``CorruptData`` for what is no bytes.
    """
    try:
        return unpack_envelope(value)  # type: ignore[arg-type]
    except (CorruptData, FormatTooNew) as error:
        if not isinstance(value, bytes):
            raise
        return Envelope(
            b"",
            DEFAULT_PRIORITY,
            0,
            last_error=str(error),
            content_type=UNREADABLE,
            content=value,
            opaque=value,
        )


FIELDS = {name: number for number, name in _NAMES.items()}
"""The numbers under which an envelope's fields are stored."""
_PAYLOAD, _RAW_SIZE = FIELDS["payload"], FIELDS["raw_size"]
_BESIDE = frozenset(FIELDS[name] for name in ("id", "expires_at_ms", "unique", "chunks", "key"))
"""What makes a message more than an envelope: something belongs to it elsewhere."""


def stored_fields(value: bytes) -> dict[int, Any]:
    """An envelope as it is stored, by the numbers of ``FIELDS``, without those at their default.

    For whoever reads many and needs few of their fields. Raises ``FormatTooNew`` or
    ``CorruptData``.
    """
    stored = _unversioned(value, "an envelope")
    if type(stored) is not dict:
        raise CorruptData(what="an envelope", problem=f"it is a {type(stored).__name__}")
    return stored


def all_stored_fields(values: Sequence[bytes]) -> list[dict[int, Any]]:
    """``stored_fields`` of many, at a third of the cost."""
    try:
        found: list[Any] = [
            msgpack.unpackb(value[1:], strict_map_key=False) if value[0] == VERSION else None
            for value in values
        ]
        if all(type(each) is dict for each in found):
            return found
    except (ValueError, TypeError, IndexError):
        pass
    return [stored_fields(value) for value in values]


def pack_lease(lease: Lease) -> bytes:
    """The stored form of a lease."""
    return _versioned(
        [
            *_elements(lease.position),
            lease.expiry_version,
            lease.expiry_ms,
            lease.consumer,
            lease.envelope,
            lease.begun,
        ]
    )


def unpack_lease(value: bytes) -> Lease:
    """A lease from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = _unversioned(value, "a lease")
    try:
        level, index, random, *terms = stored
        return Lease(Position(level, index, random), *terms)
    except (TypeError, ValueError) as error:
        raise CorruptData(what="a lease", problem=repr(error)) from None


def pack_request(request: Request) -> bytes:
    """The stored form of a request."""
    return _versioned(
        [
            request.max_messages,
            request.seconds,
            request.consumer,
            request.waits,
            request.alive_until,
            request.called,
            request.begins,
            request.suspects,
        ]
    )


def unpack_request(value: bytes) -> Request:
    """A request from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = _unversioned(value, "a request")
    try:
        return Request(*stored)
    except TypeError as error:
        raise CorruptData(what="a request", problem=repr(error)) from None


def pack_dead(letter: DeadLetter, position: Position) -> bytes:
    """The stored form of a dead letter and the position that it had."""
    packed = pack_envelope(letter.envelope)
    return _versioned([*_elements(position), letter.reason, letter.died_at_ms, packed])


def unpack_dead(value: bytes) -> tuple[Position, DeadLetter]:
    """A dead letter from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    position, reason, died_at_ms, packed = open_dead(value)
    return position, DeadLetter(open_envelope(packed), reason, died_at_ms)


def open_dead(value: bytes) -> tuple[Position, str, int, bytes]:
    """A dead letter's position, reason and time of death, and its envelope, still packed."""
    stored = _unversioned(value, "a dead letter")
    try:
        level, index, random, reason, died_at_ms, packed = stored
    except (TypeError, ValueError) as error:
        raise CorruptData(what="a dead letter", problem=repr(error)) from None
    return Position(level, index, random), reason, died_at_ms, packed


def pack_delayed(position: Position, envelope: Envelope) -> bytes:
    """The stored form of a delayed message; its index is 0 if it never had a position."""
    return _versioned([*_elements(position), pack_envelope(envelope)])


def unpack_delayed(value: bytes) -> tuple[Position, Envelope]:
    """A delayed message from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    position, packed = open_delayed(value)
    return position, open_envelope(packed)


def open_delayed(value: bytes) -> tuple[Position, bytes]:
    """A delayed message's position, and its envelope, still packed."""
    stored = _unversioned(value, "a delayed message")
    try:
        level, index, random, packed = stored
    except (TypeError, ValueError) as error:
        raise CorruptData(what="a delayed message", problem=repr(error)) from None
    return Position(level, index, random), packed


class DeadRecord(NamedTuple):
    """Where a dead letter lies: the version at which it died, and a random part."""

    version: int
    random: bytes


class Turn(NamedTuple):
    """Where a message waits for others of its ordering key: the n-th in the line of the key."""

    key: str
    n: int


Place = Position | Due | DeadRecord | Turn


def pack_place(place: Place) -> bytes:
    """The stored form of where a message stands that is not where its id says."""
    match place:
        case Position():
            return _versioned(["ready", *_elements(place)])
        case Due():
            return _versioned(["delayed", place.due_ms, place.random])
        case DeadRecord():
            return _versioned(["dead", place.version, place.random])
        case Turn():
            return _versioned(["turn", place.key, place.n])


def unpack_place(value: bytes) -> Place:
    """A place from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    match _unversioned(value, "a place"):
        case ["ready", int(level), int(index), bytes(random)]:
            return Position(level, index, random)
        case ["delayed", int(due_ms), bytes(random)]:
            return Due(due_ms, random)
        case ["dead", int(version), bytes(random)]:
            return DeadRecord(version, random)
        case ["turn", str(key), int(n)]:
            return Turn(key, n)
    raise CorruptData(what="a place", problem="it is of no known kind")


def pack_known(message_id: str, until_ms: int) -> bytes:
    """The stored form of which message has an id, and until when that counts."""
    return _versioned([message_id, until_ms])


def unpack_known(value: bytes) -> tuple[str, int]:
    """What ``pack_known`` stored; raises ``FormatTooNew`` or ``CorruptData``."""
    match _unversioned(value, "a known id"):
        case [str(message_id), int(until_ms)]:
            return message_id, until_ms
    raise CorruptData(what="a known id", problem="it is no pair")


def pack_event(
    transition: str,
    message_id: str,
    level: int,
    attempt: int,
    consumer: str,
    at_ms: int,
    place: str,
) -> bytes:
    """The stored form of one line of history, without its stamp."""
    fields = (transition, message_id, level, attempt, consumer, at_ms)
    # The id of most messages names their place.
    return _versioned(fields if place == message_id else (*fields, place))


def unpack_event(value: bytes) -> tuple[str, str, int, int, str, int, str]:
    """What ``pack_event`` stored; raises ``FormatTooNew`` or ``CorruptData``."""
    fields = _unversioned(value, "an event")
    if isinstance(fields, list) and len(fields) == 6:
        fields = [*fields, fields[1]]
    match fields:
        case [
            str(transition),
            str(message_id),
            int(level),
            int(attempt),
            str(consumer),
            int(at),
            str(place),
        ]:
            return transition, message_id, level, attempt, consumer, at, place
    raise CorruptData(what="an event", problem="it has other fields")


def pack_consumer(record: ConsumerRecord, beat: Beat) -> bytes:
    """The stored form of a consumer and its last sign of life."""
    return _versioned([*record, beat.version, beat.wall_ms])


def unpack_consumer(value: bytes) -> tuple[ConsumerRecord, Beat]:
    """A consumer from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = _unversioned(value, "a consumer")
    try:
        *record, version, wall_ms = stored
        return ConsumerRecord(*record), Beat(version, wall_ms)
    except (TypeError, ValueError) as error:
        raise CorruptData(what="a consumer", problem=repr(error)) from None


class Holder(NamedTuple):
    """The consumer that an exclusive subscription serves, and until when."""

    token: bytes
    expiry_version: int
    expiry_ms: int


def pack_holder(holder: Holder) -> bytes:
    """The stored form of a holder."""
    return _versioned([holder.token, holder.expiry_version, holder.expiry_ms])


def unpack_holder(value: bytes) -> Holder:
    """A holder from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = _unversioned(value, "a holder")
    try:
        return Holder(*stored)
    except TypeError as error:
        raise CorruptData(what="a holder", problem=repr(error)) from None


class PlannerState(NamedTuple):
    """How far the plans of a consumer have come.

    line: names this sequence of batches, so that no other is taken for it: the identity of the
    queue, and random bytes. owner: random;
    names the run that may go on with it. acknowledged: the last batch that is done. last: the last
    that was planned.
    """

    line: bytes
    owner: bytes
    acknowledged: int = 0
    last: int = 0


class Stage(IntEnum):
    """What may be done with a plan."""

    OPEN = 0
    """Messages are still added."""
    SEALED = 1
    """It is what its batch consists of."""
    RETURNING = 2
    """Its messages are given back."""


class Claimed(NamedTuple):
    """Some leases of a plan: those under ``claim``, which are numbered from 0.

    levels: how many messages are of which level. plain: whether none of them leaves anything
    behind when it ends, so that nobody need look at them. joined: a bit for each lease, from the
    lowest of the first byte on, that says whether it goes on with the ordering key of the one
    before.
    """

    claim: bytes
    levels: dict[int, int]
    plain: bool
    joined: bytes = b""

    def joins(self, n: int) -> bool:
        """Whether the n-th lease goes on with the ordering key of the one before it."""
        return n // 8 < len(self.joined) and bool(self.joined[n // 8] >> n % 8 & 1)

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(self.levels.values())


class Planned(NamedTuple):
    """A plan: the leases that a batch consists of, in order.

    messages: how many were planned, and size: how many bytes of envelopes and payloads.
    planned_at_ms: the wall clock when the first of them was. key: the ordering key of the last,
    whose line goes on; only while messages are added.
    """

    planned_at_ms: int
    stage: Stage = Stage.OPEN
    messages: int = 0
    size: int = 0
    claims: tuple[Claimed, ...] = ()
    key: str | None = None


def pack_planner(state: PlannerState) -> bytes:
    """The stored form of how far plans have come."""
    return _versioned(
        [state.line, state.owner, state.acknowledged, state.last],
    )


def unpack_planner(value: bytes) -> PlannerState:
    """What ``pack_planner`` stored; raises ``FormatTooNew`` or ``CorruptData``."""
    match _unversioned(value, "a planner"):
        case [bytes(line), bytes(owner), int(acknowledged), int(last)]:
            return PlannerState(line, owner, acknowledged, last)
    raise CorruptData(what="a planner", problem="it has other fields")


def pack_plan(plan: Planned) -> bytes:
    """The stored form of a plan."""
    claims = [each if each.joined else each[:3] for each in plan.claims]
    return _versioned(
        [plan.planned_at_ms, int(plan.stage), plan.messages, plan.size, claims, plan.key]
    )


def unpack_plan(value: bytes) -> Planned:
    """A plan from its stored form; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = _unversioned(value, "a plan")
    try:
        planned_at_ms, stage, messages, size, claims, key = stored
        claimed = tuple(Claimed(*each) for each in claims)
        return Planned(planned_at_ms, Stage(stage), messages, size, claimed, key)
    except (TypeError, ValueError) as error:
        raise CorruptData(what="a plan", problem=repr(error)) from None


def pack_planned_lease(position: Position, consumer: str, envelope: bytes) -> bytes:
    """The stored form of a lease of a plan, which never lapses."""
    return _versioned([*_elements(position), 0, 0, consumer, envelope])


def peek_envelope(value: bytes) -> tuple[int, bool]:
    """The size of a stored message's payload, and whether there is nothing to it but headers and
    payload; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = stored_fields(value)
    try:
        size = stored.get(_RAW_SIZE)
        return len(stored[_PAYLOAD]) if size is None else size, _BESIDE.isdisjoint(stored)
    except (KeyError, TypeError) as error:
        raise CorruptData(what="an envelope", problem=repr(error)) from None


class SinkState(NamedTuple):
    """How far the batches of a sink have come.

    done: the last batch that was published; -1 before the first. batch: the one that is being
    published, -1 if none is. rows, published, new: how many the latest batch has, how many of them
    were gone through, and how many of those were not there already. place: the next row: an
    attempt, a piece of it, and a row of that. changed_at_ms: the wall clock.
    """

    done: int = -1
    batch: int = -1
    rows: int = 0
    published: int = 0
    new: int = 0
    place: tuple[int, int, int] = (0, 0, 0)
    changed_at_ms: int = 0


def pack_sink(state: SinkState) -> bytes:
    """The stored form of how far a sink has come."""
    counts = (state.done, state.batch, state.rows, state.published, state.new)
    return _versioned([*counts, state.changed_at_ms, *state.place])


def unpack_sink(value: bytes | None) -> SinkState:
    """How far a sink has come; raises ``FormatTooNew`` or ``CorruptData``."""
    if value is None:
        return SinkState()
    stored = _unversioned(value, "a sink")
    try:
        done, batch, rows, published, new, changed_at_ms, attempt, piece, row = stored
    except (TypeError, ValueError) as error:
        raise CorruptData(what="a sink", problem=repr(error)) from None
    return SinkState(done, batch, rows, published, new, (attempt, piece, row), changed_at_ms)


class StagedAttempt(NamedTuple):
    """What an attempt has staged so far, in pieces and rows with so many bytes of payloads, and the
    wall clock when it wrote the last of them."""

    pieces: int
    rows: int
    size: int
    changed_at_ms: int


def pack_attempt(attempt: StagedAttempt) -> bytes:
    """The stored form of what an attempt has staged."""
    return _versioned(list(attempt))


def unpack_attempt(value: bytes) -> StagedAttempt:
    """What ``pack_attempt`` stored; raises ``FormatTooNew`` or ``CorruptData``."""
    match _unversioned(value, "an attempt"):
        case [int(pieces), int(rows), int(size), int(changed_at_ms)]:
            return StagedAttempt(pieces, rows, size, changed_at_ms)
    raise CorruptData(what="an attempt", problem="it has other fields")


AttemptFields = tuple[bytes, int, int, int, str]


def pack_attempts(attempts: Sequence[AttemptFields]) -> bytes:
    """The stored form of attempts to stage: name, pieces, rows, bytes of payloads, queue."""
    return _versioned([list(attempt) for attempt in attempts])


def unpack_attempts(value: bytes) -> list[AttemptFields]:
    """What ``pack_attempts`` stored; raises ``FormatTooNew`` or ``CorruptData``."""
    stored = _unversioned(value, "attempts")
    try:
        return [(name, pieces, rows, size, queue) for name, pieces, rows, size, queue in stored]
    except (TypeError, ValueError) as error:
        raise CorruptData(what="attempts", problem=repr(error)) from None


class StagedRow(NamedTuple):
    """A message that is to be enqueued: its packed envelope, with the whole payload in it.

    size: of the payload. due_ms, dedup_id: as in a draft. plain: whether the envelope can be
    stored as it is, and nothing else is to be written for the message.
    """

    level: int
    size: int
    envelope: bytes
    due_ms: int | None = None
    dedup_id: str | None = None
    plain: bool = True


def pack_staged_row(row: StagedRow) -> bytes:
    """The stored form of a row; those of several can be joined."""
    return bytes(msgpack.packb(row[:3] if row.plain else row))


def unpack_staged_rows(value: bytes) -> list[StagedRow]:
    """Rows from their stored forms, joined; raises ``CorruptData``."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(value)), use_list=False)
    unpacker.feed(value)
    try:
        return [StagedRow(*fields) for fields in unpacker]
    except (ValueError, TypeError) as error:
        raise CorruptData(what="staged rows", problem=repr(error)) from None


def _elements(position: Position) -> tuple[int, int, bytes]:
    return position.level, position.index, position.random


def _versioned(stored: object) -> bytes:
    return _VERSION + bytes(msgpack.packb(stored))


def _unversioned(value: object, what: str) -> Any:
    # What stands inside of another value may be anything.
    if not isinstance(value, bytes):
        raise CorruptData(what=what, problem=f"it is a {type(value).__name__}")
    if not value or value[0] != VERSION:
        if value and value[0] > VERSION:
            raise FormatTooNew(what=what, found=value[0], known=VERSION)
        raise CorruptData(what=what, problem="it has no version byte")
    try:
        return msgpack.unpackb(memoryview(value)[1:], strict_map_key=False)
    except (ValueError, TypeError) as error:
        raise CorruptData(what=what, problem=repr(error)) from None


# -- what callers hand in ---------------------------------------------------------------------


# -- integers for atomic operations -----------------------------------------------------------


def pack_index(index: int) -> bytes:
    """An index as atomic MAX compares it: 64 bits, little-endian."""
    return index.to_bytes(_COUNTER_BYTES, "little")


def unpack_index(value: bytes | None) -> int:
    """An index from its stored form; 0 where none is stored."""
    return int.from_bytes(value or b"", "little")


def pack_expiry(wall_ms: int) -> bytes:
    """A wall clock in milliseconds."""
    return wall_ms.to_bytes(_COUNTER_BYTES, "little")


unpack_expiry = unpack_index


def pack_until(until: Until) -> bytes:
    """The stored form of the end of a lease."""
    return pack_index(until.version) + pack_index(until.wall_ms)


def unpack_until(value: bytes) -> Until:
    """The end of a lease from its stored form."""
    return Until(unpack_index(value[:_COUNTER_BYTES]), unpack_index(value[_COUNTER_BYTES:]))


def pack_beat(beat: Beat, consumer: bytes = b"") -> bytes:
    """A sign of life, and whose it is where the key does not tell."""
    return pack_index(beat.version) + pack_index(beat.wall_ms) + consumer


def unpack_beat(value: bytes) -> tuple[Beat, bytes]:
    """A sign of life from its stored form, and whose it is."""
    version, wall_ms = value[:_COUNTER_BYTES], value[_COUNTER_BYTES : 2 * _COUNTER_BYTES]
    return Beat(unpack_index(version), unpack_index(wall_ms)), value[2 * _COUNTER_BYTES :]


def pack_counters(deltas: tuple[int, ...]) -> bytes:
    """Several counters as one number for atomic ADD: counter n counts in units of 2**(64 n).

    A borrow from one counter into the next is undone when they are read, so deltas may be
    negative as long as the totals are not.
    """
    size = _COUNTER_BYTES * len(deltas)
    total = sum(delta << (8 * _COUNTER_BYTES * n) for n, delta in enumerate(deltas))
    return (total % (1 << (8 * size))).to_bytes(size, "little")


def unpack_counters(value: bytes | None, count: int) -> tuple[int, ...]:
    """The counters of a stored sum; zeros where none is stored."""
    total = int.from_bytes(value or b"", "little")
    mask = (1 << (8 * _COUNTER_BYTES)) - 1
    sign = 1 << (8 * _COUNTER_BYTES - 1)
    counters = []
    for _ in range(count):
        counter = ((total & mask) ^ sign) - sign
        counters.append(counter)
        total = (total - counter) >> (8 * _COUNTER_BYTES)
    return tuple(counters)
