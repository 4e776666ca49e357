"""The states of a message and every transition between them, in one table.

An operation names its transition. Counters, history, tests and the diagram in the documentation
follow from the table.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """The state of a message. Messages in the last three are gone, and only counted.

    READY: a consumer may take it now. WAITING: it would be ready, but waits for a slot of its key
    or limit, or for their rate. RETRYING: it has failed, or a consumer has died of it, and it
    comes again at a time. SCHEDULED: it comes at a time. LEASED: a consumer has it. DEAD: a dead
    letter.
    """

    READY = "ready"
    WAITING = "waiting"
    RETRYING = "retrying"
    SCHEDULED = "scheduled"
    LEASED = "leased"
    DEAD = "dead"
    DONE = "done"
    EXPIRED = "expired"
    PURGED = "purged"


ENDS = frozenset({State.DONE, State.EXPIRED, State.PURGED})
"""The states of messages that are gone."""


def exactly(state: State, *, waits: bool, failed: bool) -> State:
    """The state of a message, given what a transition names."""
    if state is State.READY and waits:
        return State.WAITING
    return State.RETRYING if state is State.SCHEDULED and failed else state


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
    if it is taken, comes in, or stays.

    READY stands for WAITING as well, and SCHEDULED for RETRYING: see ``exactly``."""

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
SCHEDULE = Transition("schedule", None, State.SCHEDULED)
PROMOTE = Transition("promote", State.SCHEDULED, State.READY, End.RETURN)
DEQUEUE = Transition("dequeue", State.READY, State.DONE, End.DONE)
LEASE = Transition("lease", State.READY, State.LEASED)
ACK = Transition("ack", State.LEASED, State.DONE, End.DONE)
RELEASE = Transition("release", State.LEASED, State.READY, End.RETURN)
PUT_OFF = Transition("put off", State.READY, State.SCHEDULED, End.DELAY)
DEFER = Transition("defer", State.LEASED, State.SCHEDULED, End.DELAY)
RECLAIM = Transition("reclaim", State.LEASED, State.READY, End.LAPSE)
RECLAIM_LATER = Transition("reclaim later", State.LEASED, State.SCHEDULED, End.REST)
DEAD_LETTER = Transition("dead-letter", State.LEASED, State.DEAD, End.REJECT)
DROP = Transition("drop", State.LEASED, State.PURGED, End.DROP)
CANCEL = Transition("cancel", State.LEASED, State.PURGED, End.CANCEL)
REDRIVE = Transition("redrive", State.DEAD, State.READY)
EXPIRE_READY = Transition("expire ready", State.READY, State.EXPIRED, End.EXPIRE)
EXPIRE_SCHEDULED = Transition("expire scheduled", State.SCHEDULED, State.EXPIRED, End.EXPIRE)
EXPIRE_LEASED = Transition("expire leased", State.LEASED, State.EXPIRED, End.EXPIRE)
DEAD_LETTER_READY = Transition("dead-letter ready", State.READY, State.DEAD, End.REJECT)
DEAD_LETTER_SCHEDULED = Transition("dead-letter scheduled", State.SCHEDULED, State.DEAD, End.REJECT)
REVISE_READY = Transition("revise ready", State.READY, State.READY)
REVISE_SCHEDULED = Transition("revise scheduled", State.SCHEDULED, State.SCHEDULED)
REVISE_DEAD = Transition("revise dead", State.DEAD, State.DEAD)
REQUEST_CANCEL = Transition("request cancel", State.LEASED, State.LEASED)
REPLACE_READY = Transition("replace ready", State.READY, State.PURGED, End.REPLACE)
REPLACE_SCHEDULED = Transition("replace scheduled", State.SCHEDULED, State.PURGED, End.REPLACE)
REPLACE_LEASED = Transition("replace leased", State.LEASED, State.PURGED, End.REPLACE)
FORWARD_LEASED = Transition("forward leased", State.LEASED, State.PURGED, End.FORWARD)
FORWARD_READY = Transition("forward ready", State.READY, State.PURGED, End.FORWARD)
FORWARD_SCHEDULED = Transition("forward scheduled", State.SCHEDULED, State.PURGED, End.FORWARD)
PURGE_READY = Transition("purge ready", State.READY, State.PURGED, End.PURGE)
PURGE_SCHEDULED = Transition("purge scheduled", State.SCHEDULED, State.PURGED, End.PURGE)
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
