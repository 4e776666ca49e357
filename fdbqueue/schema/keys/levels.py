"""The keys of one level of a queue."""

from __future__ import annotations

from ...store.binding import fdb
from ...store.client import pack_int
from .kinds import Kind, within


class LevelKeys:
    """What the keys of one level begin with, prepared once.

    ready: the READY keys. last: selects the last of them, or a key before ``ready``. fence: the
    FENCE keys. label: the ids of its messages.
    """

    __slots__ = ("count", "fence", "label", "last", "ready", "tail")

    def __init__(self, prefix: bytes, level: int) -> None:
        packed = pack_int(level)

        def begin(kind: Kind) -> bytes:
            return prefix + pack_int(kind) + packed

        self.ready = begin(Kind.READY)
        self.last = fdb.KeySelector.last_less_than(within(self.ready).stop)
        self.fence = begin(Kind.FENCE)
        self.tail = begin(Kind.TAIL)
        self.count = begin(Kind.COUNT)
        self.label = f"{level:02x}-"


class Levels(dict[int, LevelKeys]):
    """The keys of each level of a queue, prepared when they are first asked for."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def __missing__(self, level: int) -> LevelKeys:
        found = self[level] = LevelKeys(self._prefix, level)
        return found
