"""How much fits into one transaction, which takes at most 10,000,000 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from ..schema.envelope import Envelope

T = TypeVar("T")

SIDE_BYTES = 300_000
"""What a receiver does besides taking messages, which may have up to 8,000,000 bytes."""
STEP_BYTES = 4_000_000
"""What a transaction does that does nothing else, of what a caller handed in."""
PAGE_BYTES = 500_000
"""The same of what nobody has counted: of a purge, a move, a sweep."""
_OVERHEAD = 1_000


class Done(NamedTuple):
    """What was done of what was due.

    ready: messages that became ready. moved: entries and leases that may have brought messages and
    are used up; 0 only if no message is due. tidied: entries that bring none. expired: messages
    whose time to live was over. size: about how many bytes that took. handled: of the entries of
    one sort, how many, the first ones.
    """

    ready: int = 0
    moved: int = 0
    tidied: int = 0
    expired: int = 0
    size: int = 0
    handled: int = 0

    def plus(self, other: Done) -> Done:
        """Both."""
        return Done(*map(sum, zip(self, other, strict=True)))

    @property
    def fits(self) -> bool:
        """Whether there is room for more."""
        return self.size <= SIDE_BYTES

    @property
    def changed(self) -> bool:
        """Whether other messages are ready than before."""
        return self.ready + self.expired > 0

    @property
    def excess(self) -> int:
        """Bytes that a receiver in the same transaction must save."""
        return max(0, self.size - SIDE_BYTES)


NOTHING_DONE = Done()


def weight(envelope: Envelope) -> int:
    """About how many bytes it takes to move a message with its chunks and its failed attempts, at
    most: another queue may compress no payloads."""
    texts = (text for header in envelope.headers.items() for text in header)
    size = sum(len(text) for text in texts if type(text) is str)
    payload = max(envelope.size, len(envelope.payload) + envelope.chunk_bytes)
    return payload + size + envelope.failures_size + _OVERHEAD


def fitting(items: Iterable[tuple[T, Envelope]], room: int) -> Iterator[tuple[T, Envelope]]:
    """The first items whose envelopes and payloads fit into ``room`` bytes; at least one.

    Chunks count, because sending a message to another queue copies them.
    """
    for n, (item, envelope) in enumerate(items):
        room -= weight(envelope)
        if n and room < 0:
            return
        yield item, envelope
