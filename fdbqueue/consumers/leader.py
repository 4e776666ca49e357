"""One consumer of the line leads it: fulfils for all others, until it hands over.

Who leads is there for speed, not for safety: rounds of two leaders at once conflict on the keys
that they use, so all that a second leader costs is retries. That no line is left without a leader
rests on this: whoever joins and relies on a leader reads with a conflict that there is one, and
whoever leaves clears it. Who it is stands beside, so that a hand-over disturbs nobody who joins.
"""

from __future__ import annotations

from enum import Enum

from ..schema.codec.atomic import pack_index, unpack_index
from ..schema.codec.consumers import Request, pack_request
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import VERSIONS_PER_SECOND

LEADS_SECONDS = 2.0
"""How long a leader that died can keep the others waiting, before one of them takes over."""
CROWD = 3
"""Others that a leader has served, from which on more are expected to come soon."""

_LEADS_VERSIONS = int(LEADS_SECONDS * VERSIONS_PER_SECOND)


class Step(Enum):
    """What a leader does after a round."""

    GO_ON = "another round"
    LINGER = "another round, soon"
    WAIT = "wait for messages"
    HAND_OVER = "hand over"
    LEAVE = "leave"


def decide(
    *, answered: bool, done: bool, unserved: int, served: int, crowd: int, exhausted: bool
) -> Step:
    """The next step of a leader.

    answered: its own request is answered, so its message grows old.
    done: it has led for long enough.
    unserved, served: others in line that this round could not serve, and that it could.
    crowd: others that it has served before.
    exhausted: no message is left.

    A leader that leaves makes those who join at the same time look again. So in a crowd it
    lingers until it can hand over.
    """
    if not answered:
        return Step.WAIT if exhausted else Step.GO_ON
    if unserved and (done or exhausted):
        return Step.HAND_OVER
    if served or unserved:
        return Step.LEAVE if done else Step.GO_ON
    return Step.LINGER if crowd >= CROWD else Step.LEAVE


def left(tr: fdb.Transaction, scope: Scope, led: bytes | None) -> int:
    """For how many versions yet somebody leads; 0 if nobody does.

    Nobody leads for longer than a leader's time: that would be a version of another cluster.
    """
    versions = unpack_index(led) - scope.version(tr)
    return versions if 0 < versions <= _LEADS_VERSIONS else 0


def take(tr: fdb.Transaction, scope: Scope, led: bytes | None, claim: bytes) -> bool:
    """Take the lead if nobody has it; returns whether the caller took it.

    led: what a snapshot read saw.

    Whoever relies on a leader must see it go, and so gets a read conflict. Whoever finds none
    needs no conflict: of several who take the lead at once the last one has it, and the others
    find out in their first round.
    """
    if left(tr, scope, led):
        tr.add_read_conflict_key(scope.keys.led)
        return False
    tr[scope.keys.leader] = claim
    _prolong(tr, scope)
    return True


def renew(tr: fdb.Transaction, scope: Scope, led: bytes | None) -> bool:
    """Go on leading; returns whether it was due. Those who join meanwhile must look again, so
    it is written only when half of the time is over."""
    if left(tr, scope, led) > _LEADS_VERSIONS // 2:
        return False
    _prolong(tr, scope)
    return True


def hand_over(
    tr: fdb.Transaction, scope: Scope, index: int, claim: bytes, request: Request
) -> None:
    """Let another consumer of the line lead; its watch fires. Conflicts with its withdrawal."""
    key = scope.keys.request(index, claim)
    tr.add_read_conflict_key(key)
    tr[key] = pack_request(request._replace(called=not request.called))
    tr[scope.keys.leader] = claim


def leave(tr: fdb.Transaction, scope: Scope) -> None:
    """Leave the line without a leader; whoever joins at the same time looks again."""
    del tr[scope.keys.led]
    del tr[scope.keys.leader]


def _prolong(tr: fdb.Transaction, scope: Scope) -> None:
    tr[scope.keys.led] = pack_index(scope.version(tr) + _LEADS_VERSIONS)
