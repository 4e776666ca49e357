"""The keys of the records that make operations take effect exactly once."""

from __future__ import annotations

from typing import NamedTuple

from ...store import world
from ...store.binding import fdb
from ...store.client import pack_int
from .kinds import KindKeys

TOKEN_BYTES = 12
"""Enough that no two of a minute are alike: of a billion, one pair in 10^11 minutes."""


class Record:
    """A record, which one operation at a time writes to.

    minute: under which it stands. attempts: how many it has numbered.
    """

    __slots__ = ("attempts", "key", "minute")

    def __init__(self, key: bytes, minute: Minute) -> None:
        self.key, self.minute, self.attempts = key, minute, 0


class Minute(NamedTuple):
    """The minute under which new records of a database stand, until a time of the monotonic clock.

    process: the world of the process that may use the records: a forked child must not use those of
    its parent. begin: what the keys of its records begin with, up to the random
    part of the token. free: records of operations that have ended.
    """

    database: fdb.Database | None
    process: world.World
    number: int
    until: float
    begin: bytes
    free: list[Record]

    def new(self) -> Record:
        """A record that nobody has used."""
        token = world.urandom(TOKEN_BYTES).replace(b"\x00", b"\x00\xff")
        return Record(self.begin + token + b"\x00", self)


class OnceKeys(KindKeys[int, bytes]):
    """The records of commits, below a prefix: (minute, token).

    timeout: seconds that each operation recorded here may take; None for no limit. latest: the
    minute that was read last; threads share it, so it is replaced as a whole.
    """

    __slots__ = ("latest", "timeout")

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        super().__init__(prefix, int, bytes)
        self.timeout = timeout
        self.latest = Minute(None, world.current, 0, 0.0, b"", [])

    def keep(self, database: fdb.Database, minute: int, until: float) -> Minute:
        """Keep a minute that was read."""
        begin = self.prefix + pack_int(minute) + b"\x01"
        self.latest = found = Minute(database, world.current, minute, until, begin, [])
        return found
