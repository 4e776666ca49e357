"""The leader of the line: one consumer that fulfils the requests of all, until it hands over.

The leader exists for speed, not for safety: if two consumers lead at once, their rounds conflict on
the keys that they use, and cost retries. No line stays without a leader, because a consumer that
joins and relies on a leader reads its time with a conflict, and a leader that leaves clears that.
Who leads stands under a key of its own, so that a hand-over conflicts with nobody who joins.

A leader may be away: it has left the line with its message, and serves the line again in the
transaction in which it asks for the next one. So no commit serves the line alone. A consumer that
waits in vain for a leader that is away takes the lead.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from msgspec.structs import replace

from ..schema.codec import pack_index, unpack_index
from ..schema.consumers import Request
from ..schema.keys import LineKeys
from ..schema.leases import CLAIM_BYTES
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import VERSIONS_PER_SECOND

LEADS_SECONDS, ASLEEP_SECONDS = 2.0, 10.0
"""How long a dead leader can keep others waiting before one of them takes over: one that serves the
line, and one that sleeps until there is a message."""
CROWD = 3
"""A leader that has served this many others expects more of them soon."""
AWAY = b"\x01"
"""Follows the claim of a leader that has left the line with its message, and is expected to serve
it when it asks for the next one."""

_LEADS_VERSIONS = int(LEADS_SECONDS * VERSIONS_PER_SECOND)
_ASLEEP_VERSIONS = int(ASLEEP_SECONDS * VERSIONS_PER_SECOND)


class AfterRound(Enum):
    """What a leader does after a round."""

    GO_ON = "another round"
    LINGER = "another round, soon"
    WAIT = "wait for messages"
    HAND_OVER = "hand over"
    LEAVE = "leave"


class LeaderStage(IntEnum):
    """How far a leader has come."""

    UNANSWERED = 0
    """It waits for its own message."""
    ANSWERED = 1
    """Its message grows old meanwhile."""
    DONE = 2
    """It has led for long enough."""
    OVERDUE = 3
    """It has led for so long that it waits for nobody."""


def decide(
    stage: LeaderStage, *, unserved: int, served: int, crowd: int, exhausted: bool
) -> AfterRound:
    """The next step of a leader.

    unserved, served: how many others this round could not serve, and could.
    crowd: how many others it has served before.
    exhausted: whether no message is left.

    A consumer that joins while the leader leaves must try again. So a leader in a crowd lingers
    until it can hand over.
    """
    if stage is LeaderStage.UNANSWERED:
        return AfterRound.WAIT if exhausted else AfterRound.GO_ON
    if unserved and (stage >= LeaderStage.DONE or exhausted):
        return AfterRound.HAND_OVER
    if served or unserved:
        return AfterRound.LEAVE if stage >= LeaderStage.DONE else AfterRound.GO_ON
    lingers = crowd >= CROWD and stage < LeaderStage.OVERDUE
    return AfterRound.LINGER if lingers else AfterRound.LEAVE


def versions_left(tr: fdb.Transaction, scope: Scope, led: bytes | None) -> int:
    """For how many more versions somebody leads; 0 if nobody does.

    More than a leader's time would be a version of another cluster.
    """
    versions = unpack_index(led) - scope.version(tr)
    return versions if 0 < versions <= _ASLEEP_VERSIONS else 0


def lead(
    tr: fdb.Transaction, scope: Scope, line: LineKeys, led: bytes | None, claim: bytes
) -> bool:
    """Lead the line if nobody does; returns whether the caller leads.

    led: the leader's time, from a snapshot read.

    A caller that relies on another leader gets a read conflict on its time, to see it leave. One
    that finds none needs no conflict: if several take the lead at once, the last one has it,
    and the others find out in their first round.
    """
    if versions_left(tr, scope, led):
        tr.add_read_conflict_key(line.led)
        return False
    tr[line.leader] = claim
    _prolong(tr, scope, line, _LEADS_VERSIONS)
    return True


def renew(
    tr: fdb.Transaction, scope: Scope, line: LineKeys, led: bytes | None, *, asleep: bool = False
) -> None:
    """Renew the leader's time if half of it is over, or if it was asleep and is not any more.
    Consumers that join meanwhile must try again."""
    most = _ASLEEP_VERSIONS if asleep else _LEADS_VERSIONS
    # Only at half time: each renewal aborts those that are about to join.
    if not most // 2 < versions_left(tr, scope, led) <= most:
        _prolong(tr, scope, line, most)


def away(leader: bytes | None) -> bool:
    """Whether a leader is away, by what says who leads."""
    return leader is not None and leader.endswith(AWAY) and len(leader) > CLAIM_BYTES


def send_away(
    tr: fdb.Transaction, scope: Scope, line: LineKeys, led: bytes | None, claim: bytes
) -> None:
    """Let a consumer that was served lead, and leave the line with its message. Writes blindly.

    led: the leader's time, from a snapshot read.
    """
    renew(tr, scope, line, led)
    tr[line.leader] = claim + AWAY


def hand_over(
    tr: fdb.Transaction, line: LineKeys, index: int, claim: bytes, request: Request
) -> None:
    """Let another consumer in line lead; its watch fires. Conflicts with its withdrawal."""
    key = line.request(index, claim)
    # If its consumer withdraws meanwhile, the lead must go to another.
    tr.add_read_conflict_key(key)
    # A flag that flips: the value differs from the one that its watch was armed with, so the watch
    # fires.
    tr[key] = replace(request, called=not request.called).pack()
    tr[line.leader] = claim


def leave(tr: fdb.Transaction, line: LineKeys) -> None:
    """Leave the line without a leader. Consumers that join meanwhile must try again."""
    del tr[line.led]
    del tr[line.leader]


def leave_expired(tr: fdb.Transaction, line: LineKeys) -> None:
    """Remove what a leader has left whose time is over. Conflicts with a consumer that leads."""
    tr.add_read_conflict_key(line.led)
    leave(tr, line)


def _prolong(tr: fdb.Transaction, scope: Scope, line: LineKeys, versions: int) -> None:
    tr[line.led] = pack_index(scope.version(tr) + versions)
