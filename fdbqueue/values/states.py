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


class Transition(NamedTuple):
    """One edge; ``source`` is None for a new message. One from a state to itself is for the history
    alone: the message says something else now, or is to end."""

    name: str
    source: State | None
    target: State


ENQUEUE = Transition("enqueue", None, State.READY)
SCHEDULE = Transition("schedule", None, State.DELAYED)
PROMOTE = Transition("promote", State.DELAYED, State.READY)
DEQUEUE = Transition("dequeue", State.READY, State.DONE)
LEASE = Transition("lease", State.READY, State.LEASED)
ACK = Transition("ack", State.LEASED, State.DONE)
RELEASE = Transition("release", State.LEASED, State.READY)
PUT_OFF = Transition("put off", State.READY, State.DELAYED)
DEFER = Transition("defer", State.LEASED, State.DELAYED)
RECLAIM = Transition("reclaim", State.LEASED, State.READY)
DEAD_LETTER = Transition("dead-letter", State.LEASED, State.DEAD)
DROP = Transition("drop", State.LEASED, State.PURGED)
CANCEL = Transition("cancel", State.LEASED, State.PURGED)
REDRIVE = Transition("redrive", State.DEAD, State.READY)
EXPIRE_READY = Transition("expire ready", State.READY, State.EXPIRED)
EXPIRE_DELAYED = Transition("expire delayed", State.DELAYED, State.EXPIRED)
EXPIRE_LEASED = Transition("expire leased", State.LEASED, State.EXPIRED)
DEAD_LETTER_READY = Transition("dead-letter ready", State.READY, State.DEAD)
DEAD_LETTER_DELAYED = Transition("dead-letter delayed", State.DELAYED, State.DEAD)
REVISE_READY = Transition("revise ready", State.READY, State.READY)
REVISE_DELAYED = Transition("revise delayed", State.DELAYED, State.DELAYED)
REQUEST_CANCEL = Transition("request cancel", State.LEASED, State.LEASED)
REPLACE_READY = Transition("replace ready", State.READY, State.PURGED)
REPLACE_DELAYED = Transition("replace delayed", State.DELAYED, State.PURGED)
REPLACE_LEASED = Transition("replace leased", State.LEASED, State.PURGED)
FORWARD_LEASED = Transition("forward leased", State.LEASED, State.PURGED)
FORWARD_READY = Transition("forward ready", State.READY, State.PURGED)
FORWARD_DELAYED = Transition("forward delayed", State.DELAYED, State.PURGED)
PURGE_READY = Transition("purge ready", State.READY, State.PURGED)
PURGE_DELAYED = Transition("purge delayed", State.DELAYED, State.PURGED)
PURGE_DEAD = Transition("purge dead", State.DEAD, State.PURGED)

FORWARDS = frozenset({FORWARD_LEASED, FORWARD_READY, FORWARD_DELAYED})
"""Those of messages that died, and went on as dead letters to another queue."""

TRANSITIONS: tuple[Transition, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Transition)
)


class Outcome(Enum):
    """How an attempt to handle a message ended."""

    DONE = "done"
    FAILED = "failed"
    SNOOZED = "snoozed"
    REJECTED = "rejected"
    LOST = "lost"
