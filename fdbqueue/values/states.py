"""The life of a message: its states and every transition between them, in one table.

Counters, delivery history, the tests and the picture in the documentation all read this table; an
operation names its transition and everything else follows.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """Where a message stands. The first five are stored; the others are ends, kept as counts."""

    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    DEAD = "dead"
    DONE = "done"
    EXPIRED = "expired"
    PURGED = "purged"


ENDS = frozenset({State.DONE, State.EXPIRED, State.PURGED})
"""Where a message leaves nothing behind but a count."""


class Transition(NamedTuple):
    """One edge: ``source`` is None where a message comes into being."""

    name: str
    source: State | None
    target: State


def _edge(name: str, source: State | None, target: State) -> Transition:
    return Transition(name, source, target)


ENQUEUE = _edge("enqueue", None, State.READY)
SCHEDULE = _edge("schedule", None, State.DELAYED)
PROMOTE = _edge("promote", State.DELAYED, State.READY)
DEQUEUE = _edge("dequeue", State.READY, State.DONE)
LEASE = _edge("lease", State.READY, State.LEASED)
ACK = _edge("ack", State.LEASED, State.DONE)
RELEASE = _edge("release", State.LEASED, State.READY)
PUT_OFF = _edge("put off", State.READY, State.DELAYED)
DEFER = _edge("defer", State.LEASED, State.DELAYED)
LAPSE = _edge("lapse", State.LEASED, State.READY)
BURY = _edge("bury", State.LEASED, State.DEAD)
DROP = _edge("drop", State.LEASED, State.PURGED)
REDRIVE = _edge("redrive", State.DEAD, State.READY)
EXPIRE_READY = _edge("expire ready", State.READY, State.EXPIRED)
EXPIRE_DELAYED = _edge("expire delayed", State.DELAYED, State.EXPIRED)
EXPIRE_LEASED = _edge("expire leased", State.LEASED, State.EXPIRED)
BURY_READY = _edge("bury ready", State.READY, State.DEAD)
BURY_DELAYED = _edge("bury delayed", State.DELAYED, State.DEAD)
FORWARD_LEASED = _edge("forward leased", State.LEASED, State.PURGED)
FORWARD_READY = _edge("forward ready", State.READY, State.PURGED)
FORWARD_DELAYED = _edge("forward delayed", State.DELAYED, State.PURGED)
PURGE_READY = _edge("purge ready", State.READY, State.PURGED)
PURGE_DELAYED = _edge("purge delayed", State.DELAYED, State.PURGED)
PURGE_DEAD = _edge("purge dead", State.DEAD, State.PURGED)

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
