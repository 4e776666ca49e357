"""The backlog, the own limits and the rate of a key."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import CorruptData
from ...values.limits import Allowed, OwnLimits
from ...values.rates import Rate, parse
from . import pack, unpack


class Backlog(NamedTuple):
    """The backlog of a key: since when its messages wait, by the wall clock in milliseconds.

    settled: the limits at which no other message could become ready, since all slots were taken, or
    all places of the window, and no others; None if that is not known. Of a key with a rate, the
    limits that were applied last, whatever the messages wait for.
    """

    since_ms: int
    settled: Allowed | None


def pack_backlog(backlog: Backlog) -> bytes:
    if backlog.settled is None:
        return pack([backlog.since_ms])
    return pack([backlog.since_ms, *backlog.settled.numbers, *(backlog.settled.rate or ())])


def unpack_backlog(value: bytes | None) -> Backlog:
    match unpack(value, "a backlog"):
        case [int(since_ms)]:
            return Backlog(since_ms, None)
        case [int(since_ms), int() | None as slots, int() | None as places]:
            return Backlog(since_ms, Allowed(slots, places))
        case [int(since_ms), int() | None as slots, int() | None as places, int(us), int(burst)]:
            return Backlog(since_ms, Allowed(slots, places, Rate(us, burst)))
    raise CorruptData(what="a backlog", problem="it is no list of a time and limits")


class Limited(NamedTuple):
    """A message that holds a slot of a limit, or waits for one: its queue, and its id."""

    queue: str
    id: str


def pack_limited(holder: Limited) -> bytes:
    return pack(holder)


def unpack_limited(value: bytes) -> Limited:
    match unpack(value, "a message of a limit"):
        case [str(queue), str(message_id)]:
            return Limited(queue, message_id)
    raise CorruptData(what="a message of a limit", problem="it is no queue with an id")


def pack_limits(own: OwnLimits) -> bytes:
    return pack(own)


def unpack_limits(value: bytes | None) -> OwnLimits:
    """What ``pack_limits`` stored; no limits where nothing is stored."""
    own: OwnLimits = {}
    if value is None:
        return own
    stored = unpack(value, "limits of a key")
    if not isinstance(stored, dict):
        raise CorruptData(what="limits of a key", problem=f"they are a {type(stored).__name__}")
    if "concurrency" in stored:
        own["concurrency"] = _number("concurrency", stored["concurrency"])
    if "window" in stored:
        own["window"] = _number("window", stored["window"])
    if "weight" in stored:
        weight = _number("weight", stored["weight"])
        if weight is None:
            raise CorruptData(what="limits of a key", problem="weight is None")
        own["weight"] = weight
    if stored.get("paused") is True:
        own["paused"] = True
    if "rate" in stored:
        own["rate"] = _rate(stored["rate"])
    return own


def _number(name: str, value: object) -> int | None:
    if value is None or (type(value) is int and value > 0):
        return value
    raise CorruptData(what="limits of a key", problem=f"{name} is {value!r}")


def _rate(rate: object) -> str | None:
    if rate is None:
        return None
    try:
        text = str(rate)
        parse(text)
    except ValueError as error:
        raise CorruptData(what="limits of a key", problem=f"rate {rate!r}: {error}") from None
    return text


class Timer(NamedTuple):
    """When to look at the rate of a key. rests: 0 if messages wait for that, else 1."""

    rests: int
    due_ms: int


class Reached(NamedTuple):
    """How far the messages of a queue have come by its rate.

    tat_us: the theoretical arrival time of the next one, by the wall clock in microseconds. rate:
    at which it was found.
    """

    tat_us: int
    rate: Rate


def pack_reached(reached: Reached) -> bytes:
    return pack([reached.tat_us, *reached.rate])


def unpack_reached(value: bytes) -> Reached:
    match unpack(value, "the pace of a queue"):
        case [int(tat_us), int(us), int(burst)]:
            return Reached(tat_us, Rate(us, burst))
    raise CorruptData(what="the pace of a queue", problem="it is no list of times")


class Paced(NamedTuple):
    """How far the messages of a key have come by its rate.

    tat_us: the theoretical arrival time of the next one, by the wall clock in microseconds. rate:
    at which it was found. timer: when to look again, which TIMER repeats.
    """

    tat_us: int
    rate: Rate
    timer: Timer


def pack_paced(paced: Paced) -> bytes:
    return pack([paced.tat_us, *paced.rate, *paced.timer])


def unpack_paced(value: bytes) -> Paced:
    match unpack(value, "the rate of a key"):
        case [int(tat_us), int(us), int(burst), 0 | 1 as rests, int(due_ms)]:
            return Paced(tat_us, Rate(us, burst), Timer(rests, due_ms))
    raise CorruptData(what="the rate of a key", problem="it is no list of times")
