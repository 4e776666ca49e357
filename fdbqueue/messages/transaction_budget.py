"""As much as one transaction can carry: a transaction takes 10,000,000 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..schema.codec.envelopes import Envelope

T = TypeVar("T")

SIDE_BYTES = 500_000
"""For what a receiver does beside taking messages, which may be up to 8,000,000 bytes."""
STEP_BYTES = 4_000_000
"""For what a transaction does that does nothing else."""
_OVERHEAD = 1_000


def weight(envelope: Envelope) -> int:
    """About how many bytes a transaction writes that moves a message, chunks and all."""
    return len(envelope.payload) + envelope.chunk_bytes + _OVERHEAD


def fitting(items: Iterable[tuple[T, Envelope]], room: int) -> Iterator[tuple[T, Envelope]]:
    """The first items whose envelopes and payloads fit into ``room`` bytes: one at least.

    Chunks count too: whoever sends a message to another queue has to copy them.
    """
    for n, (item, envelope) in enumerate(items):
        room -= weight(envelope)
        if n and room < 0:
            return
        yield item, envelope
