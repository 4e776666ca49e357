"""One consumer of the line leads it: fulfils for all others, until it hands over.

LEADER names it and the version until which it may. It is there for speed, not for safety: rounds
of two leaders at once conflict on the keys that they use, so all that a second leader costs is
retries. That no line is left without a leader rests on this: whoever joins reads LEADER with a
conflict, and whoever leaves writes it.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from ..binding import fdb
from ..clock import VERSIONS_PER_SECOND
from ..codec import Leader, Request, pack_leader, pack_request, unpack_leader
from .scope import Scope

LEADS_SECONDS = 2.0
"""How long a leader that died can keep the others waiting, before one of them takes over."""

_LEADS_VERSIONS = int(LEADS_SECONDS * VERSIONS_PER_SECOND)


class Step(Enum):
    """What a leader does after a round."""

    GO_ON = "another round"
    WAIT = "wait for messages"
    HAND_OVER = "hand over"
    LEAVE = "leave"


def decide(*, answered: bool, done: bool, unserved: int, served: int, exhausted: bool) -> Step:
    """The next step of a leader.

    answered: its own request is answered, so its message grows old.
    done: it has led for long enough.
    unserved, served: others in line that this round could not serve, and that it could.
    exhausted: no message is left.
    """
    if not answered:
        return Step.WAIT if exhausted else Step.GO_ON
    if unserved and (done or exhausted):
        return Step.HAND_OVER
    if done or not (served or unserved):
        return Step.LEAVE
    return Step.GO_ON


def alive(tr: fdb.Transaction, scope: Scope, value: bytes | None) -> Leader | None:
    """The leader that LEADER names, unless its time is over."""
    if value is None:
        return None
    leader = unpack_leader(value)
    return leader if leader.until > scope.clock.version(tr) else None


def take(tr: fdb.Transaction, scope: Scope, value: bytes | None, claim: bytes) -> bool:
    """Take the lead if nobody has it; returns whether the caller leads.

    Adds a read conflict on LEADER: whoever relies on a leader, or on there being none, must see
    it go or come.
    """
    tr.add_read_conflict_key(scope.keys.leader)
    leader = alive(tr, scope, value)
    if leader is None:
        _appoint(tr, scope, claim)
        return True
    return leader.claim == claim


def holds(value: bytes | None, claim: bytes) -> bool:
    """Whether LEADER names the claim."""
    return value is not None and unpack_leader(value).claim == claim


def renew(tr: fdb.Transaction, scope: Scope, value: bytes) -> bool:
    """Go on leading; returns whether it was due. Those who join meanwhile must look again, so
    LEADER is written only when half of its time is over."""
    left = unpack_leader(value).until - scope.clock.version(tr)
    if left > _LEADS_VERSIONS // 2:
        return False
    _appoint(tr, scope, unpack_leader(value).claim)
    return True


def hand_over(
    tr: fdb.Transaction, scope: Scope, index: int, claim: bytes, request: Request
) -> None:
    """Let another consumer of the line lead; its watch fires. Conflicts with its withdrawal."""
    key = scope.keys.request(index, claim)
    tr.add_read_conflict_key(key)
    tr[key] = pack_request(replace(request, called=not request.called))
    _appoint(tr, scope, claim)


def leave(tr: fdb.Transaction, scope: Scope) -> None:
    """Leave the line without a leader; whoever joins at the same time looks again."""
    del tr[scope.keys.leader]


def _appoint(tr: fdb.Transaction, scope: Scope, claim: bytes) -> None:
    until = scope.clock.version(tr) + _LEADS_VERSIONS
    tr[scope.keys.leader] = pack_leader(Leader(claim, until))
