"""Envelopes: messages as they are stored.

An envelope is a map with small integers for names, so that a field at its default costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import msgpack

from ...errors import CorruptData
from ...values import backoff
from ...values.content import MAX_HEADER_BYTES
from ...values.limits import Gate
from ...values.model import BYTES, Death, Headers, HeaderValue, Message, Position
from ...values.options import DEFAULT_PRIORITY, QueueOptions
from ...values.records import record
from . import VERSION, pack, unpack

VALUE_LIMIT = 100_000
ENVELOPE_ROOM = 9_500
"""Kept free in a value for what may be added to an envelope: an error, the reasons of two deaths,
of 500 characters, names of a consumer, a queue and a schedule, of 200, each up to 4 bytes; ids,
slots, and what a lease and a dead letter add."""
INLINE_LIMIT = VALUE_LIMIT - ENVELOPE_ROOM
"""The most bytes of an envelope as it comes in. With a larger payload, that stands beside it."""
PLAIN_INLINE_LIMIT = INLINE_LIMIT - MAX_HEADER_BYTES - 500
"""The largest payload that certainly fits beside headers and a content type."""
GATED_INLINE_LIMIT = 4_000
"""The same of a message with a key or a limit. The end of another moves it, and that of two hundred
others moves two hundred: what moves is small, and larger payloads stay where they are."""
MAX_ERROR_CHARACTERS = 500
SUSPECT_AFTER = 2
UNREADABLE = "application/vnd.fdbqueue.unreadable"
"""The content type of a message whose envelope cannot be read; its payload is that envelope."""


@record
class Envelope:
    """A message as it is stored, without its position.

    ``id`` is None while the message is at the position that its id names.
    ``payload`` is compressed if ``compression`` is set, and empty if it is in the ``chunk_bytes``
    bytes of chunks named ``chunks``; ``raw_size`` is then the size of the enqueued payload, and
    ``content`` that payload, once it is read.
    ``alone`` counts leases that expired without a failed attempt, and is at least 1 after any
    expired lease. From 1 on the message is delivered alone, from 2 on handled beside no other.
    ``released`` counts releases since the last failure.
    ``former_key`` is the key in the queue where it died; dead letters wait for no slot.
    ``slot`` is the number of the slot of its first gate that it holds, or held until it died;
    ``slots`` those of the further gates that it has passed, in their order. ``window`` is that of
    its place in the key's window, until it is taken.
    ``last_value`` is the value of which the queue keeps the newest message only.
    ``schedule`` is the schedule whose next tick the message is, until it is due.
    ``cancelled`` is set on a leased message that ends with its lease, whatever comes of that.
    ``keep_result_ms`` is for how long to keep how it ended, and what came of it.
    ``group`` is the group whose member the message is.
    ``limits`` are those of the root that it counts in, by their dimensions. ``former_limits`` are
    those of a dead letter, as ``former_key``.

    ``opaque`` is a stored envelope that cannot be read; see ``open_envelope``.
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
    slot: int | None = None
    window: int | None = None
    last_value: HeaderValue = None
    schedule: str | None = None
    cancelled: bool = False
    keep_result_ms: int | None = None
    group: str | None = None
    limits: Mapping[str, str] | None = None
    former_limits: Mapping[str, str] | None = None
    slots: Sequence[int | None] = ()
    content: bytes | None = field(default=None, compare=False, repr=False)
    opaque: bytes | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """The size of the payload in bytes, as it was enqueued."""
        return len(self.payload) if self.raw_size is None else self.raw_size

    def message(self, position: Position) -> Message:
        """The message at ``position``; its payload must have been read."""
        content = self.payload if self.content is None and self.raw_size is None else self.content
        assert content is not None, "the payload was not read"
        return self._with(content, position)

    def properties(self, position: Position) -> Message:
        """The message at ``position`` without its payload, as selectors see it."""
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
            keep_result_ms=self.keep_result_ms,
            limits=self.limits,
        )

    def failed(self, error: str | None = None) -> Envelope:
        """The envelope after one more failed attempt; ``error`` None keeps the earlier text."""
        text = self.last_error if error is None else error[:MAX_ERROR_CHARACTERS]
        return replace(self, attempts=self.attempts + 1, last_error=text, released=0)

    def elsewhere(self, options: QueueOptions) -> Envelope:
        """The envelope as it enters another queue, with these options.

        What belongs to its place here stays behind: the id and the attempts, slots, the unique key,
        the last value and the group. All else goes with it; another priority only where that queue
        has fewer.
        """
        return replace(
            self.outside(),
            id=None,
            priority=min(self.priority, options.max_priority),
            attempts=0,
            alone=0,
            released=0,
            unique=None,
            last_value=None,
            group=None,
        )

    def after_expiry(self, *, begun: bool) -> Envelope:
        """The envelope after its lease has expired, perhaps because it killed its consumer.

        begun: whether the consumer is known to have been handling it.
        """
        return replace(self, alone=max(1, self.alone) if begun else self.alone + 1)

    @property
    def gate(self) -> Gate | None:
        """The first of its gates."""
        if self.key or not self.limits:
            return self.key
        return min(self.limits.items())

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What it needs slots of, in this order: its key, and its limits by their dimensions.

        It waits for a slot of one while it holds those of all before. All messages pass their gates
        in one order, so none waits for another that waits for it.
        """
        first: tuple[Gate, ...] = (self.key,) if self.key else ()
        return (*first, *sorted(self.limits.items())) if self.limits else first

    @property
    def nested(self) -> bool:
        """Whether it has several gates, or had as it died."""
        limits = self.limits or self.former_limits or ()
        return len(limits) + bool(self.key or self.former_key) > 1

    @property
    def held(self) -> dict[Gate, int]:
        """The numbers of the slots that it holds, or held until it died."""
        numbers = zip(self.gates, (self.slot, *self.slots), strict=False)
        return {gate: n for gate, n in numbers if n is not None}

    def outside(self) -> Envelope:
        """The envelope before its first gate, where it holds nothing."""
        if self.slot is None and self.window is None and not self.slots:
            return self
        return replace(self, slot=None, window=None, slots=())

    def passed(self, gate: Gate, slot: int | None, place: int | None) -> Envelope:
        """The envelope once it has passed a gate, with what it holds of that."""
        if gate == self.gates[0]:
            return replace(self, slot=slot, window=place, slots=())
        return replace(self, slots=(*self.slots, slot))

    @property
    def plain(self) -> bool:
        """Whether nothing belongs to the message elsewhere."""
        return not self.id and self.shareable

    @property
    def shareable(self) -> bool:
        """Whether it may stand in a block: nothing belongs to it elsewhere but, if it has an id of
        its own, what leads from that to its place."""
        if self.opaque is not None or self.expires_at_ms is not None:
            return False
        if self.last_value is not None or self.keep_result_ms is not None:
            return False
        if self.group is not None:
            return False
        return not (self.unique or self.chunks or self.key or self.limits)

    @property
    def suspect(self) -> bool:
        """Whether to handle it beside no other message, since it seems to kill consumers."""
        return self.alone >= SUSPECT_AFTER

    def expired(self, now_ms: int) -> bool:
        """Whether its time to live is over."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


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
    41: "slot",
    42: "window",
    48: "last_value",
    49: "schedule",
    50: "cancelled",
    51: "keep_result_ms",
    52: "group",
    53: "limits",
    54: "former_limits",
    55: "slots",
}
FIELDS = {name: number for number, name in _NAMES.items()}
"""The numbers under which an envelope's fields are stored."""
_BARE = Envelope(b"", 0, 0)
_DEFAULTS = {name: getattr(_BARE, name) for name in list(FIELDS)[3:]}
_FIELDS = tuple((number, name, _DEFAULTS.get(name, _NAMES)) for number, name in _NAMES.items())
_VERSION_BYTE = bytes([VERSION])
_NOTHING: dict[int, object] = {}
_PAYLOAD, _RAW_SIZE = FIELDS["payload"], FIELDS["raw_size"]
_BESIDE = (
    "id",
    "expires_at_ms",
    "unique",
    "chunks",
    "key",
    "last_value",
    "keep_result_ms",
    "group",
    "limits",
)
BESIDE = frozenset(FIELDS[name] for name in _BESIDE)
"""The fields of messages with side records."""


def pack_envelope(envelope: Envelope) -> bytes:
    if envelope.opaque is not None:
        return envelope.opaque
    return pack(
        {
            number: value
            for number, name, default in _FIELDS
            if (value := getattr(envelope, name)) != default
        }
    )


def pack_plain(
    payload: bytes,
    priority: int,
    now_ms: int,
    headers: Headers | None,
    content_type: str = BYTES,
    pack: Callable[[object], bytes] = msgpack.packb,
    beside: Mapping[int, object] = _NOTHING,
) -> bytes:
    """As ``pack_envelope``, for an envelope with these fields only, but much faster. Unchecked.

    pack: as ``msgpack.packb``; that of one ``msgpack.Packer`` packs many in half of the time.
    beside: more fields by their numbers in ``FIELDS``, none at its default.
    """
    stored: dict[int, object] = {1: payload, 2: priority, 3: now_ms}
    if headers:
        stored[4] = headers
    if content_type != BYTES:
        stored[32] = content_type
    if beside:
        stored |= beside
    return _VERSION_BYTE + pack(stored)


def unpack_envelope(value: bytes) -> Envelope:
    stored = unpack(value, "an envelope")
    try:
        fields = {_NAMES[number]: field for number, field in stored.items()}
        if type(fields["payload"]) is not bytes:
            raise CorruptData(what="an envelope", problem="its payload is no bytes")
        for name in fields.keys() & {"limits", "former_limits"}:
            pairs = (text for pair in fields[name].items() for text in pair)
            if not fields[name] or not all(type(text) is str for text in pairs):
                raise CorruptData(what="an envelope", problem=f"its {name} are {fields[name]!r}")
        if "backoff" in fields:
            backoff.store(fields["backoff"])
        if "slots" in fields:
            fields["slots"] = slots = tuple(fields["slots"])
            if not all(type(n) is int or n is None for n in slots):
                raise CorruptData(what="an envelope", problem=f"its slots are {slots!r}")
        if "death" in fields:
            reason, died_at_ms, attempts, queue, message_id = fields["death"]
            fields["death"] = (reason, died_at_ms, attempts, queue, message_id)
        return Envelope(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptData(what="an envelope", problem=repr(error)) from None


def open_envelope(value: object) -> Envelope:
    """As ``unpack_envelope``, but an unreadable envelope is kept unchanged.

    Its payload is the stored envelope, its content type ``UNREADABLE``, and ``last_error`` says
    why. It is stored again as it was. Raises ``CorruptData`` if
    the value is not bytes.
    """
    try:
        return unpack_envelope(value)  # type: ignore[arg-type]
    except CorruptData as error:
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


def stored_fields(value: bytes) -> dict[int, Any]:
    """An envelope's fields by their numbers in ``FIELDS``, without those at their default.

    For callers that read many envelopes and need few fields.
    """
    stored = unpack(value, "an envelope")
    if type(stored) is not dict:
        raise CorruptData(what="an envelope", problem=f"it is a {type(stored).__name__}")
    return stored


def open_fields(values: Sequence[bytes]) -> list[dict[int, Any]]:
    """``stored_fields`` of many, at a third of the cost, of envelopes that need not be readable.

    One that cannot be read has no payload, its content type is ``UNREADABLE``, and ``last_error``
    says why.
    """
    try:
        found: list[Any] = [
            msgpack.unpackb(value[1:], strict_map_key=False) if value[0] == VERSION else None
            for value in values
        ]
        if all(type(each) is dict and type(each.get(_PAYLOAD)) is bytes for each in found):
            return found
    except (ValueError, TypeError, IndexError):
        pass
    return [_open_fields(value) for value in values]


def payload_sizes(values: Sequence[bytes]) -> list[int] | None:
    """``peek_envelope`` of many, at a third of the cost: the sizes of the payloads of messages that
    have nothing beside them. None if one has, or cannot be read."""
    try:
        fields = [
            msgpack.unpackb(value[1:], strict_map_key=False)
            for value in values
            if value[0] == VERSION
        ]
        sizes = [
            stored[_RAW_SIZE] if _RAW_SIZE in stored else len(stored[_PAYLOAD])
            for stored in fields
            if BESIDE.isdisjoint(stored)
        ]
    except (ValueError, TypeError, LookupError):
        return None
    return sizes if len(sizes) == len(values) else None


def _open_fields(value: bytes) -> dict[int, Any]:
    try:
        unpack_envelope(value)
        return stored_fields(value)
    except CorruptData as error:
        return {
            _PAYLOAD: None,
            FIELDS["priority"]: DEFAULT_PRIORITY,
            FIELDS["content_type"]: UNREADABLE,
            FIELDS["last_error"]: str(error),
        }


def peek_envelope(value: bytes) -> tuple[int, bool]:
    """The size of a stored message's payload, and whether there is nothing to it but headers and
    payload."""
    stored = stored_fields(value)
    try:
        size = stored.get(_RAW_SIZE)
        return len(stored[_PAYLOAD]) if size is None else size, BESIDE.isdisjoint(stored)
    except (KeyError, TypeError) as error:
        raise CorruptData(what="an envelope", problem=repr(error)) from None
