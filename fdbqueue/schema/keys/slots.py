"""The keys of slots, of what waits for them, and of how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from .kinds import Kind, KindKeys

N = TypeVar("N")


class SlotKeys(Generic[N]):
    """The keys of slots, each kind below its prefix.

    N: what has slots: in a queue the key of messages.
    """

    def __init__(self, begin: Mapping[Kind, bytes], name: type[N]) -> None:
        self.waiting: KindKeys[N, int, bytes]
        self.waiting = KindKeys(begin[Kind.WAITING], name, int, bytes)
        self.slot: KindKeys[N, int] = KindKeys(begin[Kind.SLOT], name, int)
        self.window: KindKeys[N, int] = KindKeys(begin[Kind.WINDOW], name, int)
        self.backlog: KindKeys[N] = KindKeys(begin[Kind.BACKLOG], name)
        self.backlog_count: KindKeys[N, int] = KindKeys(begin[Kind.BACKLOG], name, int, least=1)
        self.limits: KindKeys[N] = KindKeys(begin[Kind.LIMITS], name)
