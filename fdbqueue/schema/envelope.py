"""Envelopes: messages as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import field
from msgspec.structs import replace

from ..errors import CorruptData, InvalidOptions
from ..values import backoff
from ..values.content import MAX_HEADER_BYTES
from ..values.limits import Gate
from ..values.model import BYTES, Death, HeaderValue, Message, Position
from ..values.options import DEFAULT_PRIORITY, MAX_LEVELS, QueueOptions
from .codec import VERSION, Stored, decoder, encode, unpack

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
KEPT_FAILURES = 8
"""Of how many failed attempts of a message more is kept than the last error."""
FAILURE_BYTES = 2_500
"""About how much that is of each; at most 7,000 bytes."""
SUSPECT_AFTER = 2
UNREADABLE = "application/vnd.fdbqueue.unreadable"
"""The content type of a message whose envelope cannot be read; its payload is that envelope."""


_VERSION, _LONG_MAP, _MOST_SHORT = bytes([VERSION]), 0xDE, 15
_BEGIN = [bytes([VERSION, 0x80 + fields]) for fields in range(_MOST_SHORT + 1)]
"""How an envelope with so few fields begins."""
_Limits = Annotated[Mapping[str, str], msgspec.Meta(min_length=1)]


def killed(deaths: int) -> str:
    """What to say of a message at whose handling so many consumers died."""
    many = deaths > 1
    return (
        f"killed {deaths:,} process{'es' * many}: {'their leases' if many else 'its lease'} "
        f"expired as {'they' if many else 'it'} handled this message alone"
    )


class Envelope(
    Stored,
    frozen=True,
    array_like=False,
    omit_defaults=True,
):
    """A message as it is stored, without its position, as a map: a field costs the two bytes of its
    name, and its value.

    ``id`` is None while the message is at the position that its id names.
    ``payload`` is compressed if ``compression`` is set, and empty if it is in the ``chunk_bytes``
    bytes of chunks named ``chunks``; ``raw_size`` is then the size of the enqueued payload.
    ``deaths`` counts leases that expired while the message, and no other, was handled. ``alone``
    counts those that expired otherwise, and is at least 1 after any expired lease. From 1 on the
    message is delivered alone, from 2 on handled beside no other.
    ``released`` counts releases since the last failure. ``failures`` is the number of the last
    failed attempt, or death, of which something is kept; see ``messages.delivery.failures``.
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
    """

    readable: ClassVar[bool] = True

    payload: bytes = field(name="p")
    enqueued_at_ms: int = field(name="t")
    priority: Annotated[int, msgspec.Meta(ge=0, lt=MAX_LEVELS)] = field(
        default=DEFAULT_PRIORITY, name="r"
    )
    headers: dict[str, HeaderValue] = field(default_factory=dict, name="h")
    attempts: int = field(default=0, name="a")
    id: str | None = field(default=None, name="i")
    expires_at_ms: int | None = field(default=None, name="x")
    max_attempts: int | None = field(default=None, name="m")
    backoff: dict[str, Any] | None = field(default=None, name="b")
    last_error: str | None = field(default=None, name="e")
    unique: str | None = field(default=None, name="u")
    death: Death | None = field(default=None, name="d")
    content_type: str = field(default=BYTES, name="c")
    compression: str = field(default="", name="z")
    raw_size: int | None = field(default=None, name="w")
    chunks: bytes = field(default=b"", name="n")
    chunk_bytes: int = field(default=0, name="y")
    key: str | None = field(default=None, name="k")
    alone: int = field(default=0, name="l")
    released: int = field(default=0, name="q")
    former_key: str | None = field(default=None, name="K")
    slot: int | None = field(default=None, name="s")
    window: int | None = field(default=None, name="v")
    last_value: HeaderValue = field(default=None, name="V")
    schedule: str | None = field(default=None, name="T")
    cancelled: bool = field(default=False, name="C")
    keep_result_ms: int | None = field(default=None, name="R")
    group: str | None = field(default=None, name="g")
    limits: _Limits | None = field(default=None, name="L")
    former_limits: _Limits | None = field(default=None, name="M")
    slots: tuple[int | None, ...] = field(default=(), name="S")
    deaths: int = field(default=0, name="D")
    failures: int = field(default=0, name="f")

    @classmethod
    def unpack(cls, value: bytes | None) -> Envelope:
        """What ``pack`` stored; raises ``CorruptData``."""
        envelope = unpack(value, Envelope)
        # Checked as it is read: a policy that cannot be followed must not raise later, when the
        # message fails.
        if envelope.backoff is not None:
            try:
                backoff.store(envelope.backoff)
            except InvalidOptions as error:
                raise CorruptData(what="an envelope", problem=str(error)) from None
        return envelope

    def pack(self) -> bytes:
        """The stored form."""
        stored = encode(self)
        if stored[0] != _LONG_MAP or stored[2] > _MOST_SHORT:
            return _VERSION + stored
        # msgspec 0.22 begins each such map with three bytes, where one is enough.
        return _BEGIN[stored[2]] + stored[3:]

    @property
    def size(self) -> int:
        """The size of the payload in bytes, as it was enqueued."""
        return len(self.payload) if self.raw_size is None else self.raw_size

    def properties(self, position: Position) -> Message:
        """The message at ``position`` without its payload, as selectors see it."""
        return self.message(position, b"")

    def message(self, position: Position, payload: bytes) -> Message:
        """The message at ``position``, with a payload as it was enqueued."""
        return Message(
            self.id or position.to_id(),
            payload,
            self.headers,
            self.priority,
            position.level,
            self.attempts,
            self.enqueued_at_ms,
            self.expires_at_ms,
            self.last_error,
            self.death,
            self.content_type,
            self.alone + self.attempts > 0,
            self.max_attempts,
            self.backoff,
            self.unique,
            self.key,
            self.keep_result_ms,
            self.limits,
            self.deaths,
        )

    def failed(self, error: str | None = None) -> Envelope:
        """The envelope after one more failed attempt; ``error`` None keeps the earlier text."""
        # Cut here, once: ``ENVELOPE_ROOM`` counts on it.
        text = self.last_error if error is None else error[:MAX_ERROR_CHARACTERS]
        failures = self.failures + 1
        return replace(
            self, attempts=self.attempts + 1, last_error=text, released=0, failures=failures
        )

    def elsewhere(self, options: QueueOptions) -> Envelope:
        """The envelope as it enters another queue, with these options.

        What belongs to its place here stays behind: the id, the attempts and deaths, slots, the
        unique key, the last value and the group. All else goes with it; another priority only where
        that queue has fewer. What its failed attempts have left goes with it, too, and then counts
        there.
        """
        return replace(
            self.outside(),
            id=None,
            priority=min(self.priority, options.max_priority),
            attempts=0,
            deaths=0,
            failures=0,
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
        if not begun:
            # Handling may not have begun, or not of this message alone: it is a suspect, and no
            # failed attempt.
            return replace(self, alone=self.alone + 1)
        deaths = self.deaths + 1
        return replace(
            self,
            alone=max(1, self.alone),
            deaths=deaths,
            last_error=killed(deaths),
            failures=self.failures + 1,
        )

    @property
    def gate(self) -> Gate | None:
        """The first of its gates."""
        if self.key or not self.limits:
            return self.key
        # By dimension, in whichever order the caller named them: all messages pass their gates in
        # one order.
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
        if gate == self.gate:
            return replace(self, slot=slot, window=place, slots=())
        return replace(self, slots=(*self.slots, slot))

    @property
    def plain(self) -> bool:
        """Whether the message has no side records."""
        # One with an id of its own has a row in MOVED, which its end must remove.
        return self.id is None and not self.failures and self.shareable

    @property
    def shareable(self) -> bool:
        """Whether it may stand in a block: nothing belongs to it elsewhere but what its failed
        attempts have left, and, if it has an id of its own, what leads from that to its place."""
        return (
            self.expires_at_ms is None
            and self.unique is None
            and not self.chunks
            and self.key is None
            and self.limits is None
            and self.last_value is None
            and self.keep_result_ms is None
            and self.group is None
        )

    @property
    def has_failed(self) -> bool:
        """Whether it has failed, or its consumer died: it is tried again as it comes again."""
        return self.attempts + self.deaths > 0

    @property
    def failures_size(self) -> int:
        """About how many bytes its failed attempts have, at most."""
        return min(self.failures, KEPT_FAILURES) * FAILURE_BYTES

    @property
    def suspect(self) -> bool:
        """Whether it is suspected to kill consumers: it is then handled alone."""
        return self.alone >= SUSPECT_AFTER

    def expired(self, now_ms: int) -> bool:
        """Whether its time to live is over."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


_decode: Callable[[bytes], Envelope] = decoder(Envelope).decode


class Unreadable(Envelope, frozen=True):
    """A stored envelope that cannot be read, which is the payload. It is stored as it was."""

    readable: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """It was never counted."""
        return 0

    @property
    def shareable(self) -> bool:
        """What belongs to it is not known."""
        return False

    def pack(self) -> bytes:
        """The stored form."""
        return self.payload


def open_envelope(value: bytes) -> Envelope:
    """The envelope in a stored value. One that cannot be read becomes the payload of an
    ``Unreadable``, whose ``last_error`` says why."""
    try:
        if value[0] == VERSION:
            envelope = _decode(value[1:])
            # The fast way covers nearly all; a policy needs the check of ``unpack``.
            if envelope.backoff is None:
                return envelope
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError):
        pass  # Said below.
    try:
        return Envelope.unpack(value)
    except CorruptData as error:
        return Unreadable(
            value, 0, DEFAULT_PRIORITY, last_error=str(error), content_type=UNREADABLE
        )
