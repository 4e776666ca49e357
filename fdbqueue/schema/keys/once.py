"""The keys of the records that make operations take effect exactly once."""

from __future__ import annotations

from ...store.binding import fdb
from ...store.client import pack_int
from .kinds import KindKeys


class OnceKeys(KindKeys[int, bytes]):
    """The records of commits, below a prefix: (minute, token).

    timeout: seconds that each operation recorded here may take; None for no limit.
    """

    __slots__ = ("database", "latest", "recent", "timeout", "until")

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        super().__init__(prefix, int, bytes)
        self.timeout = timeout
        self.keep(None, 0, 0.0)

    def keep(self, database: fdb.Database | None, minute: int, until: float) -> None:
        """Keep the minute for new records in a database, until a time of the monotonic clock."""
        self.database, self.latest, self.until = database, minute, until
        self.recent = self.prefix + pack_int(minute) + b"\x01"
        """What the keys of the minute's records begin with: minute, and type of the token."""
