"""The keys of the records that make operations take effect exactly once."""

from __future__ import annotations

from ...store.tuple_elements import pack_int
from .kinds import KindKeys


class OnceKeys(KindKeys[int, bytes]):
    """The records of commits, below a prefix: (minute, token).

    timeout: seconds that each operation recorded here may take; None for no limit.
    """

    __slots__ = ("latest", "timeout")

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        super().__init__(prefix, int, bytes)
        self.timeout = timeout
        self.latest = (-1, b"")
        """The last minute that a key was asked for, and what the keys of its records begin with."""

    def minute(self, minute: int) -> bytes:
        """What the keys of a minute's records begin with; kept as ``latest``."""
        begin = self.prefix + pack_int(minute)
        self.latest = (minute, begin)
        return begin
