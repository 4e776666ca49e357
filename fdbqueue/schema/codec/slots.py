"""The backlog and the own limits of a key."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import CorruptData
from ...values.limits import OwnLimits
from . import codec, pack, unpack


class Backlog(NamedTuple):
    """The backlog of a key: since when its messages wait, by the wall clock in milliseconds.

    settled: the limit at which all slots were found taken, and no others; None if that is not
    known.
    """

    since_ms: int
    settled: int | None


pack_backlog, unpack_backlog = codec("a backlog", Backlog)


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
    match stored.get("concurrency", False):
        case None:
            own["concurrency"] = None
        case int(number) if type(number) is int and number > 0:
            own["concurrency"] = number
        case False:
            pass
        case other:
            raise CorruptData(what="limits of a key", problem=f"concurrency is {other!r}")
    if stored.get("paused") is True:
        own["paused"] = True
    return own
