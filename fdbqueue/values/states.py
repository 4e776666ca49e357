"""The states of a message and every transition between them, in one table.

An operation names its transition. Counters, history, tests and the diagram in the documentation
follow from the table.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """The state of a message. Messages in the last three are gone, and only counted."""

    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    DEAD = "dead"
    DONE = "done"
    EXPIRED = "expired"
    PURGED = "purged"


ENDS = frozenset({State.DONE, State.EXPIRED, State.PURGED})
"""The states of messages that are gone."""


class End(Enum):
    """How a message leaves the consumer that holds it, or the place where it is."""

    DONE = "it was handled"
    RETURN = "it returns to its place"
    LAPSE = "its lease expired, and it returns to its place"
    REST = "its lease expired as it was handled alone, and it returns to its place later"
    DELAY = "it returns to its place later"
    REJECT = "it becomes a dead letter"
    FORWARD = "it goes on to another queue"
    DROP = "its handler wants it dropped"
    CANCEL = "somebody asked for that as it was leased"
    EXPIRE = "its time to live was over"
    REPLACE = "a newer one takes its place"
    PURGE = "somebody removed it"


class Transition(NamedTuple):
    """One edge; ``source`` is None for a new message. One from a state to itself is for the history
    alone: the message says something else now, or is to end. end: how a message leaves by it; None
    if it is taken, comes in, or stays."""

    name: str
    source: State | None
    target: State
    end: End | None = None

    @property
    def ends(self) -> bool:
        """Whether messages are gone by it."""
        return self.target in ENDS

    @property
    def leaves(self) -> bool:
        """Whether messages are delivered no more by it: they are gone, or dead letters."""
        return self.target in ENDS or self.target is State.DEAD


ENQUEUE = Transition("enqueue", None, State.READY)
SCHEDULE = Transition("schedule", None, State.DELAYED)
PROMOTE = Transition("promote", State.DELAYED, State.READY, End.RETURN)
DEQUEUE = Transition("dequeue", State.READY, State.DONE, End.DONE)
LEASE = Transition("lease", State.READY, State.LEASED)
ACK = Transition("ack", State.LEASED, State.DONE, End.DONE)
RELEASE = Transition("release", State.LEASED, State.READY, End.RETURN)
PUT_OFF = Transition("put off", State.READY, State.DELAYED, End.DELAY)
DEFER = Transition("defer", State.LEASED, State.DELAYED, End.DELAY)
RECLAIM = Transition("reclaim", State.LEASED, State.READY, End.LAPSE)
RECLAIM_LATER = Transition("reclaim later", State.LEASED, State.DELAYED, End.REST)
DEAD_LETTER = Transition("dead-letter", State.LEASED, State.DEAD, End.REJECT)
DROP = Transition("drop", State.LEASED, State.PURGED, End.DROP)
CANCEL = Transition("cancel", State.LEASED, State.PURGED, End.CANCEL)
REDRIVE = Transition("redrive", State.DEAD, State.READY)
EXPIRE_READY = Transition("expire ready", State.READY, State.EXPIRED, End.EXPIRE)
EXPIRE_DELAYED = Transition("expire delayed", State.DELAYED, State.EXPIRED, End.EXPIRE)
EXPIRE_LEASED = Transition("expire leased", State.LEASED, State.EXPIRED, End.EXPIRE)
DEAD_LETTER_READY = Transition("dead-letter ready", State.READY, State.DEAD, End.REJECT)
DEAD_LETTER_DELAYED = Transition("dead-letter delayed", State.DELAYED, State.DEAD, End.REJECT)
REVISE_READY = Transition("revise ready", State.READY, State.READY)
REVISE_DELAYED = Transition("revise delayed", State.DELAYED, State.DELAYED)
REQUEST_CANCEL = Transition("request cancel", State.LEASED, State.LEASED)
REPLACE_READY = Transition("replace ready", State.READY, State.PURGED, End.REPLACE)
REPLACE_DELAYED = Transition("replace delayed", State.DELAYED, State.PURGED, End.REPLACE)
REPLACE_LEASED = Transition("replace leased", State.LEASED, State.PURGED, End.REPLACE)
FORWARD_LEASED = Transition("forward leased", State.LEASED, State.PURGED, End.FORWARD)
FORWARD_READY = Transition("forward ready", State.READY, State.PURGED, End.FORWARD)
FORWARD_DELAYED = Transition("forward delayed", State.DELAYED, State.PURGED, End.FORWARD)
PURGE_READY = Transition("purge ready", State.READY, State.PURGED, End.PURGE)
PURGE_DELAYED = Transition("purge delayed", State.DELAYED, State.PURGED, End.PURGE)
PURGE_DEAD = Transition("purge dead", State.DEAD, State.PURGED, End.PURGE)

TRANSITIONS: tuple[Transition, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Transition)
)

ENDINGS = {(edge.source, edge.end): edge for edge in TRANSITIONS if edge.end is not None}
"""The transitions by which messages leave, by the state they were in and how they do."""
ENDINGS[State.DEAD, End.FORWARD] = PURGE_DEAD


class Outcome(Enum):
    """How an attempt to handle a message ended."""

    DONE = "done"
    FAILED = "failed"
    SNOOZED = "snoozed"
    REJECTED = "rejected"
    LOST = "lost"
