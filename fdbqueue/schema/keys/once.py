"""The keys of the records that make operations take effect exactly once."""

from __future__ import annotations

from typing import NamedTuple

from ...store.binding import fdb
from ...store.client import pack_int
from .kinds import KindKeys


class Minute(NamedTuple):
    """The minute under which new records of a database stand, until a time of the monotonic clock.

    begin: what the keys of its records begin with, up to the random part of the token.
    """

    database: fdb.Database | None
    number: int
    until: float
    begin: bytes


class OnceKeys(KindKeys[int, bytes]):
    """The records of commits, below a prefix: (minute, token).

    timeout: seconds that each operation recorded here may take; None for no limit. latest: the
    minute that was read last; threads share it, so it is replaced as a whole.
    """

    __slots__ = ("latest", "timeout")

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        super().__init__(prefix, int, bytes)
        self.timeout = timeout
        self.latest = Minute(None, 0, 0.0, b"")

    def keep(self, database: fdb.Database, minute: int, until: float) -> Minute:
        """Keep a minute that was read."""
        self.latest = found = Minute(
            database, minute, until, self.prefix + pack_int(minute) + b"\x01"
        )
        return found
