"""What a consumer does until it has its answer: every step, and what follows it, in one table.

Threads, tasks and other processes go this way alike, for a queue and for a subscription of it.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Step(Enum):
    """What a consumer does next."""

    TRY = "try"
    """Asks in one transaction: takes what is ready, serves the line that it leads, or joins it."""
    LOOK = "look"
    """Looks for its answer, which it expects at once."""
    WAIT = "wait"
    """Sleeps on a watch of its request, and then checks the request."""
    LEAD = "lead"
    """Serves the line, in a round."""
    LAST_CALL = "last call"
    """Serves the line up to its own request, whoever leads."""
    END = "end"


class Event(Enum):
    """What came of a step."""

    ANSWERED = "answered"
    """With messages, or with the answer that there are none."""
    UNFINISHED = "more to look through"
    EXPECTS = "joined, and expects its answer at once"
    JOINED = "joined"
    LEADS = "leads the line"
    UNANSWERED = "no answer yet"
    ROUND = "another round"
    REPLACED = "leads no more"
    OVER = "its time is over"
    LOST = "was taken for dead"


class Transition(Struct, frozen=True):
    """What follows a step."""

    source: Step
    event: Event
    target: Step

    @property
    def name(self) -> str:
        """The event in words."""
        return self.event.value


_S, _E = Step, Event

TRANSITIONS: tuple[Transition, ...] = (
    Transition(_S.TRY, _E.UNFINISHED, _S.TRY),
    Transition(_S.TRY, _E.EXPECTS, _S.LOOK),
    Transition(_S.TRY, _E.JOINED, _S.WAIT),
    Transition(_S.LOOK, _E.UNANSWERED, _S.WAIT),
    Transition(_S.WAIT, _E.UNANSWERED, _S.WAIT),
    Transition(_S.WAIT, _E.OVER, _S.LAST_CALL),
    *(Transition(each, _E.LEADS, _S.LEAD) for each in (_S.TRY, _S.LOOK, _S.WAIT)),
    Transition(_S.LEAD, _E.ROUND, _S.LEAD),
    Transition(_S.LEAD, _E.REPLACED, _S.WAIT),
    Transition(_S.LEAD, _E.OVER, _S.LAST_CALL),
    Transition(_S.LAST_CALL, _E.UNFINISHED, _S.LAST_CALL),
    *(Transition(each, _E.LOST, _S.TRY) for each in (_S.LOOK, _S.WAIT, _S.LEAD, _S.LAST_CALL)),
    *(Transition(each, _E.ANSWERED, _S.END) for each in _S if each is not _S.END),
)

NEXT = {(each.source, each.event): each.target for each in TRANSITIONS}
