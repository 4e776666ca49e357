"""The backlog, the own limits and the rate of a key."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple, TypedDict

import msgspec

from ...errors import CorruptData
from ...values.limits import Allowed, OwnLimits
from ...values.rates import Rate, parse
from . import Stored, unpack


class Backlog(Stored, frozen=True):
    """The backlog of a key: since when its messages wait, by the wall clock in milliseconds.

    settled: the limits at which no other message could become ready, since all slots were taken, or
    all places of the window, and no others; None if that is not known. Of a key with a rate, the
    limits that were applied last, whatever the messages wait for.
    """

    kind: ClassVar[str] = "a backlog"

    since_ms: int
    settled: Allowed | None


class Limited(Stored, frozen=True):
    """A message that holds a slot of a limit, or waits for one: its queue, and its id."""

    kind: ClassVar[str] = "a message of a limit"

    queue: str
    id: str


_Count = Annotated[int, msgspec.Meta(gt=0)]


class _Limits(TypedDict, total=False):
    concurrency: _Count | None
    window: _Count | None
    weight: _Count
    paused: bool
    rate: str | None


def unpack_limits(value: bytes | None) -> OwnLimits:
    """The stored limits of a key; no limits where nothing is stored."""
    what = "limits of a key"
    own: OwnLimits = {} if value is None else unpack(value, what, _Limits)
    rate = own.get("rate")
    if rate is not None:
        try:
            parse(rate)
        except ValueError as error:
            raise CorruptData(what=what, problem=f"rate {rate!r}: {error}") from None
    return own


class Timer(NamedTuple):
    """When to look at the rate of a key. rests: 0 if messages wait for that, else 1."""

    rests: Literal[0, 1]
    due_ms: int


class Reached(Stored, frozen=True):
    """How far the messages of a queue have come by its rate.

    tat_us: the theoretical arrival time of the next one, by the wall clock in microseconds. rate:
    at which it was found.
    """

    kind: ClassVar[str] = "the pace of a queue"

    tat_us: int
    rate: Rate


class Paced(Stored, frozen=True):
    """How far the messages of a key have come by its rate.

    tat_us: the theoretical arrival time of the next one, by the wall clock in microseconds. rate:
    at which it was found. timer: when to look again, which TIMER repeats.
    """

    kind: ClassVar[str] = "the rate of a key"

    tat_us: int
    rate: Rate
    timer: Timer
