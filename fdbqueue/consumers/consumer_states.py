"""The lists of consumers, and every move between them, in one table.

After Qpid's QueueConsumerManager. All consumers have a CONSUMER key; each of the other lists is a
range of STATE keys, so a move is a clear and a set, whatever the number of consumers.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class ConsumerState(IntEnum):
    """The list that a consumer is on; the number is part of the key."""

    NON_ACQUIRING = 0
    """Only browses: takes no messages and wakes no consumer."""
    NOT_INTERESTED = 1
    """Can take nothing now: has no credit, or is suspended."""
    INTERESTED = 2
    """Can take messages, found none, and sleeps until it is notified."""
    NOTIFIED = 3
    """Is awake, and fetches again before it sleeps."""


class Move(Struct, frozen=True):
    """One edge; None stands for an unregistered consumer."""

    name: str
    source: ConsumerState | None
    target: ConsumerState | None


_S = ConsumerState

MOVES: tuple[Move, ...] = (
    Move("browse", None, _S.NON_ACQUIRING),
    Move("join", None, _S.NOT_INTERESTED),
    Move("resume", _S.NOT_INTERESTED, _S.NOTIFIED),
    Move("wait", None, _S.INTERESTED),
    Move("wait", _S.NOT_INTERESTED, _S.INTERESTED),
    Move("wait", _S.NOTIFIED, _S.INTERESTED),
    Move("notify", _S.INTERESTED, _S.NOTIFIED),
    Move("suspend", _S.NOTIFIED, _S.NOT_INTERESTED),
    Move("suspend", _S.INTERESTED, _S.NOT_INTERESTED),
    *(Move("leave", state, None) for state in _S),
)
"""The moves. Eviction of a dead consumer is a ``leave``, too."""
