"""The limits of a queue and of a key, and what is known of a key now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict

from msgspec import Meta, Struct

from . import rates
from .option_groups import OptionGroup
from .rates import Rate

Limit = tuple[str, str]
"""A limit that the queues of a root share: its dimension and its name."""
Gate = str | Limit
"""What lets messages out a few at a time: a key of a queue, or a limit of the root."""
Count = Annotated[int, Meta(gt=0)]
MAX_OF_KEY = 1_000
"""The most slots of a key, and the most places of its window."""


class Allowed(NamedTuple):
    """How many slots a key has, and how many places its window, None for any number; and how often
    its messages may come."""

    slots: int | None
    places: int | None
    rate: Rate | None = None

    @property
    def numbers(self) -> tuple[int | None, int | None]:
        """How many slots there are, and how many places."""
        return self.slots, self.places


class OwnLimits(TypedDict, total=False):
    """The limits of a single key that differ from those of its queue; ``KeyLimits`` says what each
    does."""

    concurrency: Count | None
    window: Count | None
    weight: Count
    paused: bool
    rate: str | None


@dataclass(frozen=True, slots=True)
class Bounds(OptionGroup):
    """How much a queue holds, and what happens to more.

    messages: how many messages the queue holds besides dead letters, 1 or more; None for any
        number.
    bytes: how many bytes the payloads of ready messages may have in all, 1 or more; None for any
        number.
    when_full: what an enqueue beyond ``messages`` or ``bytes`` does: "reject" it, "drop-oldest"
        messages, the least urgent first and none more urgent, or "block" until there is room.
    dropped: what happens to messages that make room: "drop" them, or make them "dead" letters.
    resume_at: the share of the bounds to which a full queue must shrink before blocked producers
        continue, more than 0 and at most 1.
    """

    messages: int | None = None
    bytes: int | None = None
    when_full: str = "reject"
    dropped: str = "drop"
    resume_at: float = 0.8

    @property
    def some(self) -> bool:
        """Whether there are any."""
        return self.messages is not None or self.bytes is not None


@dataclass(frozen=True, slots=True)
class KeyLimits(OptionGroup):
    """The limits of a key: its own, and else those of the queue.

    concurrency: how many of its messages may be out at once, that is ready, leased, or waiting for
        their next attempt, 1 to 1,000; None for any number. With 1, the default, they follow each
        other in their order.
    window: how many of them may be ready at once for each unit of its weight, unless they come
        back after a delivery, 1 to 1,000; None for as many as may be out. The next one becomes
        ready when one is taken, behind all others.
    weight: how many turns the key gets where one of weight 1 gets one, 1 to 1,000: its window has
        so many times ``window`` places, at most 1,000. More than 1 needs a window.
    paused: whether no more of them become ready; of a single key only.
    rate: how many of them become ready in how much time, and at once after a rest, such as
        "100/min, burst 10"; None for any number. The others wait, and come at even intervals.
    """

    concurrency: int | None = 1
    window: int | None = None
    weight: int = 1
    paused: bool = False
    rate: str | None = None

    @property
    def places(self) -> int | None:
        """How many places its window has; None for any number."""
        return None if self.window is None else min(self.window * self.weight, MAX_OF_KEY)

    @property
    def allowed(self) -> Allowed:
        """What may be now."""
        rate = None if self.rate is None else rates.parse(self.rate)
        return Allowed(0 if self.paused else self.concurrency, self.places, rate)


class KeyState(Struct, frozen=True):
    """What is known of a key.

    own: its own limits. out: the ids of its messages that hold a slot, by the number of the slot.
    in_window: how many hold a place in its window.
    waiting: how many of its messages wait for a slot or their rate. since_ms: since when messages
    have waited without a break; oldest_ms: when the first that waits was enqueued; both None if
    none waits. next_ms: when its rate lets the next one become ready; None if it may do so now. All
    are wall clocks in milliseconds.
    """

    key: str
    limits: KeyLimits
    own: OwnLimits
    out: dict[int, str]
    in_window: int
    waiting: int
    since_ms: int | None = None
    oldest_ms: int | None = None
    next_ms: int | None = None


class KeyBacklog(Struct, frozen=True):
    """A key of which messages wait for a slot: how many, and since when without a break, by the
    wall clock in milliseconds."""

    key: str
    waiting: int
    since_ms: int


class LimitState(Struct, frozen=True):
    """What is known of a limit that queues share.

    concurrency: how many of its messages may be out at once, None for any number. paused: whether
    no more of them become ready. out: the queue and the id of each message that holds a slot, by
    the number of the slot. waiting: how many messages wait, of all queues. next: the queues and ids
    of the first ten of them, in the order in which they become ready. waiting_in: how many of the
    first thousand are of which queue. since_ms: since when messages have waited without a break;
    None if none waits. rate: how many of its messages become ready in how much time, None for any
    number. next_ms: when the rate lets the
    next one become ready; None if it may do so now. Times are wall clocks in milliseconds.
    """

    dimension: str
    name: str
    concurrency: int | None
    paused: bool
    out: dict[int, tuple[str, str]]
    waiting: int
    next: list[tuple[str, str]]
    waiting_in: dict[str, int]
    since_ms: int | None = None
    rate: str | None = None
    next_ms: int | None = None


class LimitSummary(Struct, frozen=True):
    """A limit that is set, or for which messages wait; as ``LimitState``."""

    dimension: str
    name: str
    concurrency: int | None
    paused: bool
    waiting: int
    since_ms: int | None = None
    rate: str | None = None


def gate_text(gate: Gate) -> str:
    """A key or a limit, as the options of a command name it."""
    return f"key {gate}" if isinstance(gate, str) else f"limit {'='.join(gate)}"
