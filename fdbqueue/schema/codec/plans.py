"""Plans, and how far the plans of a consumer have come."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ...errors import CorruptData
from . import pack, unpack, unpack_fields


class PlannerState(NamedTuple):
    """How far the plans of a consumer have come.

    line: names this sequence of batches, so that no other is taken for it: the identity of the
    queue, and random bytes. owner: random;
    names the run that may go on with it. acknowledged: the last batch that is done. last: the last
    that was planned.
    """

    line: bytes
    owner: bytes
    acknowledged: int = 0
    last: int = 0


class Stage(IntEnum):
    """What may be done with a plan."""

    OPEN = 0
    """Messages are still added."""
    SEALED = 1
    """It is what its batch consists of."""
    RETURNING = 2
    """Its messages are given back."""


class Claimed(NamedTuple):
    """Some leases of a plan: those under ``claim``, which are numbered from 0.

    levels: how many messages are of which level. plain: whether none of them leaves anything
    behind when it ends, so that nobody need look at them. joined: a bit for each lease, from the
    lowest of the first byte on, that says whether it goes on with the ordering key of the one
    before.
    """

    claim: bytes
    levels: dict[int, int]
    plain: bool
    joined: bytes = b""

    def joins(self, n: int) -> bool:
        """Whether the n-th lease goes on with the ordering key of the one before it."""
        return n // 8 < len(self.joined) and bool(self.joined[n // 8] >> n % 8 & 1)

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(self.levels.values())


class Planned(NamedTuple):
    """A plan: the leases that a batch consists of, in order.

    messages: how many were planned, and size: how many bytes of envelopes and payloads.
    planned_at_ms: the wall clock when the first of them was. key: the ordering key of the last,
    whose line goes on; only while messages are added.
    """

    planned_at_ms: int
    stage: Stage = Stage.OPEN
    messages: int = 0
    size: int = 0
    claims: tuple[Claimed, ...] = ()
    key: str | None = None


def pack_planner(state: PlannerState) -> bytes:
    """The stored form of how far plans have come."""
    return pack(list(state))


def unpack_planner(value: bytes) -> PlannerState:
    """What ``pack_planner`` stored."""
    match unpack(value, "a planner"):
        case [bytes(line), bytes(owner), int(acknowledged), int(last)]:
            return PlannerState(line, owner, acknowledged, last)
    raise CorruptData(what="a planner", problem="it has other fields")


def pack_plan(plan: Planned) -> bytes:
    """The stored form of a plan."""
    claims = [each if each.joined else each[:3] for each in plan.claims]
    return pack([plan.planned_at_ms, int(plan.stage), plan.messages, plan.size, claims, plan.key])


def unpack_plan(value: bytes) -> Planned:
    """A plan from its stored form."""
    return unpack_fields(
        value,
        "a plan",
        lambda planned_at_ms, stage, messages, size, claims, key: Planned(
            planned_at_ms, Stage(stage), messages, size, tuple(Claimed(*c) for c in claims), key
        ),
    )
