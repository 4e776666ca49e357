"""Checks and figures of a run, as pure functions of plain values.

Times are nanoseconds of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

NEVER = 2**63


class Put(NamedTuple):
    """An enqueued message, and when its call started and returned."""

    message: int
    level: int
    began: int
    returned: int


class Taken(NamedTuple):
    """A delivered message, and when its call started and returned."""

    message: int
    began: int
    returned: int


def order_violations(put: Sequence[Put], taken: Sequence[Taken]) -> int:
    """How many messages have certainly overtaken another one.

    Message m has overtaken an earlier message k if k was ready before m could be taken, and the
    call that took k started only after the call that took m had returned, or k was never taken.
    k is earlier than m if its level is more urgent or, within a level, if its enqueue returned
    before that of m started.
    """
    calls = {one.message: one for one in taken}
    levels: dict[int, list[Put]] = {}
    for one in put:
        levels.setdefault(one.level, []).append(one)
    enqueued = {one.message: one for one in put}
    index = {}
    for level, members in levels.items():
        members.sort(key=lambda one: one.returned)
        latest = list(
            accumulate(
                (calls[one.message].began if one.message in calls else NEVER for one in members),
                max,
            )
        )
        index[level] = ([one.returned for one in members], latest)
    violations = 0
    for call in taken:
        mine = enqueued[call.message]
        possible = max(call.began, mine.began)
        for level, (returned, latest) in index.items():
            if level > mine.level:
                continue
            earlier = bisect_left(returned, possible if level < mine.level else mine.began)
            if earlier and latest[earlier - 1] > call.returned:
                violations += 1
                break
    return violations


def most_to_least(served: Mapping[int, int]) -> float:
    """The ratio of the most served consumer to the least served one."""
    counts = list(served.values())
    return max(counts) / max(1, min(counts)) if counts else 1.0
