"""When a worker fetches more of a queue, and whether the next message may begin: every state, and
what follows each event in it.

Where a table says nothing, the state stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeVar

S = TypeVar("S", bound=Enum)


class _State(Enum):
    # By identity: it is part of each step, and that of an Enum is slow.
    __hash__ = object.__hash__


class Supply(_State):
    """What the worker knows of the messages that it does not hold."""

    MORE = "more"
    """There may be more: it fetches as soon as there is room."""
    FETCHING = "fetching"
    ASLEEP = "asleep"
    """There was nothing, or the store failed: it fetches when rung, or after a time."""
    SHORT = "short"
    """The credit is too small for the next one."""
    SUSPECT = "suspect"
    """The next one must be handled beside no other: it fetches once nothing runs."""
    ISOLATING = "isolating"
    """It fetches that one, and begins nothing meanwhile."""
    STALLED = "stalled"
    """It gave messages back, since no handler was free."""
    LEFT = "left"
    """It fetches no more."""


class Order(_State):
    """Whether the first message that waits is the next one."""

    KNOWN = "known"
    """It may begin."""
    LOOKING = "looking"
    """A more urgent one may be ready: whoever fetches looks for it first."""
    OUTRANKED = "outranked"
    """One is ready: the next fetch exchanges less urgent ones for it."""
    EXCHANGING = "exchanging"
    """That fetch is under way."""


class Event(_State):
    """What changes a state."""

    FETCHES = "fetches"
    LEFT_MORE = "more is left"
    LEFT_NOTHING = "nothing is left"
    LEFT_LARGE = "the next one is too large for the credit"
    LEFT_SUSPECT = "the next one is a suspect"
    FAILED = "the store fails"
    CREDITED = "credit comes"
    GAVE_UP = "gave messages back"
    FREED = "a handler is free"
    STOPS = "stops"
    LOOKS = "looks"
    FOUND = "finds one"
    FOUND_NONE = "finds none"
    FETCHED = "has fetched"
    LOST = "one of those that it gives back is lost"


class Transition(NamedTuple):
    """What follows an event in a state."""

    source: Enum
    event: Event
    target: Enum

    @property
    def name(self) -> str:
        """The event in words."""
        return str(self.event.value)


_S, _O, _E = Supply, Order, Event
UNDER_WAY = (_S.FETCHING, _S.ISOLATING)

SUPPLY: tuple[Transition, ...] = (
    *(Transition(s, _E.FETCHES, _S.FETCHING) for s in (_S.MORE, _S.ASLEEP, _S.SHORT, _S.STALLED)),
    Transition(_S.SUSPECT, _E.FETCHES, _S.ISOLATING),
    *(Transition(s, _E.LEFT_MORE, _S.MORE) for s in UNDER_WAY),
    *(Transition(s, _E.LEFT_NOTHING, _S.ASLEEP) for s in UNDER_WAY),
    *(Transition(s, _E.LEFT_LARGE, _S.SHORT) for s in UNDER_WAY),
    *(Transition(s, _E.LEFT_SUSPECT, _S.SUSPECT) for s in UNDER_WAY),
    *(Transition(s, _E.FAILED, _S.ASLEEP) for s in UNDER_WAY),
    Transition(_S.SHORT, _E.CREDITED, _S.MORE),
    *(Transition(s, _E.GAVE_UP, _S.STALLED) for s in (_S.MORE, _S.ASLEEP, _S.SHORT)),
    Transition(_S.STALLED, _E.FREED, _S.MORE),
    *(Transition(s, _E.STOPS, _S.LEFT) for s in _S if s is not _S.LEFT),
)
ORDER: tuple[Transition, ...] = (
    Transition(_O.KNOWN, _E.LOOKS, _O.LOOKING),
    Transition(_O.LOOKING, _E.FOUND_NONE, _O.KNOWN),
    Transition(_O.LOOKING, _E.FOUND, _O.OUTRANKED),
    Transition(_O.LOOKING, _E.FETCHED, _O.KNOWN),
    Transition(_O.OUTRANKED, _E.FETCHES, _O.EXCHANGING),
    Transition(_O.EXCHANGING, _E.FETCHED, _O.KNOWN),
    Transition(_O.EXCHANGING, _E.LOST, _O.OUTRANKED),
)
NEXT: Mapping[tuple[Enum, Event], Any] = {(t.source, t.event): t.target for t in SUPPLY + ORDER}


def follow(state: S, *events: Event) -> S:
    """The state after events."""
    for event in events:
        state = NEXT.get((state, event), state)
    return state
