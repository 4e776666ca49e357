"""The backlog and the own limits of a key."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import CorruptData
from ...values.limits import Allowed, OwnLimits
from . import pack, unpack


class Backlog(NamedTuple):
    """The backlog of a key: since when its messages wait, by the wall clock in milliseconds.

    settled: the limits at which no other message could become ready, since all slots were taken, or
    all places of the window, and no others; None if that is not known.
    """

    since_ms: int
    settled: Allowed | None


def pack_backlog(backlog: Backlog) -> bytes:
    """The stored form of a backlog."""
    return pack([backlog.since_ms, *(backlog.settled or ())])


def unpack_backlog(value: bytes | None) -> Backlog:
    """What ``pack_backlog`` stored."""
    match unpack(value, "a backlog"):
        case [int(since_ms)]:
            return Backlog(since_ms, None)
        case [int(since_ms), int() | None as slots, int() | None as places]:
            return Backlog(since_ms, (slots, places))
    raise CorruptData(what="a backlog", problem="it is no list of a time and limits")


def pack_limits(own: OwnLimits) -> bytes:
    """The stored form of a key's own limits."""
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
    return own


def _number(name: str, value: object) -> int | None:
    if value is None or (type(value) is int and value > 0):
        return value
    raise CorruptData(what="limits of a key", problem=f"{name} is {value!r}")
