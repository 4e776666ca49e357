"""What must hold in every run, and figures made of what happened: plain functions of plain values.

Times are those of the machine's monotonic clock, in nanoseconds, which all processes share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

NEVER = 2**63


class Put(NamedTuple):
    """One message that was enqueued: by a call that began and returned at these times."""

    message: int
    level: int
    began: int
    returned: int


class Taken(NamedTuple):
    """One message that was delivered, by a call that began and returned at these times."""

    message: int
    began: int
    returned: int


def lost_and_doubled(
    put: Iterable[int], done: Iterable[int], left: Iterable[int]
) -> tuple[list[int], list[int]]:
    """The messages that are neither done nor left, and those that are there more than once."""
    seen = Counter(done)
    seen.update(left)
    expected = set(put)
    lost = sorted(expected - set(seen))
    doubled = sorted(n for n, count in seen.items() if count > 1 or n not in expected)
    return lost, doubled


def order_violations(put: Sequence[Put], taken: Sequence[Taken]) -> int:
    """How many messages overtook another one, beyond doubt.

    Message m overtook k, which comes before it, if k was ready before m could be taken, and was
    still there when the call that took m had returned: k was taken by a call that began only
    then, or never. k comes before m if its level is more urgent, or, within a level, if its
    enqueue had returned before that of m began.
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


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def most_to_least(served: Mapping[int, int]) -> float:
    """How much more the most served got than the least served."""
    counts = list(served.values())
    return max(counts) / max(1, min(counts)) if counts else 1.0
