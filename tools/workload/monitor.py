"""A monitor of queues and priority queues with distinct values, after the idea of arXiv 2410.04581.

It shares no code with the layer, the checkers, or what records a history, and takes n log n steps.
A history is linearizable as a priority queue only if it has none of these:

- a value that is taken before its put begins, or twice for good, or that nobody has put;
- a value that is taken while something more urgent is certainly in the queue, all the time;
- a value that is taken while one of its level, which was put in before it, is certainly there;
- the answer "empty" while something is certainly in the queue, all the time.

A value is *certainly in the queue* from the end of its put until somebody begins to take it. It may
be another one at each moment of the call: what counts is that there is no moment between its begin
and its end without any.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

QUEUES: dict[str, list[str | None]] = {
    "first": [None],
    "staged": [None],
    "auto": [None],
    "filtered": ["eu", "us"],
}
"""Those that are received from in their order, and by nobody else than the history tells, such as
workers; of one that is taken from by selectors, by what these select."""


class Put(NamedTuple):
    """A value is put in. level: 0 for the most urgent. ended: infinite if nobody knows whether it
    was. stands: whether it can be taken from its end on: it does not wait for a time or a slot.
    after: a value of its level that the same call has put in before it."""

    value: str
    level: int
    began: float
    ended: float
    stands: bool = True
    after: str | None = None


class Take(NamedTuple):
    """A value is taken, or none is there. first: whether it has not been out before, but for takes
    that are told, too. final: whether it can never come back. judged: whether its order is looked
    at: at no moment a value may be in hands unknown."""

    value: str | None
    began: float
    ended: float
    first: bool = True
    final: bool = True
    judged: bool = True


def violations(puts: Iterable[Put], takes: Iterable[Take]) -> list[str]:
    """What shows that a history is not that of a priority queue."""
    put = {one.value: one for one in puts}
    takes = list(takes)
    found = []
    first: dict[str, Take] = {}
    outs = Counter(one.value for one in takes if one.value is not None and one.final)
    for one in takes:
        if one.value is None:
            continue
        known = put.get(one.value)
        if known is None:
            found.append(f"{one.value} was taken, and nobody had put it in")
        elif one.ended < known.began:
            found.append(f"{one.value} was taken before it was put in")
        if one.value not in first or one.began < first[one.value].began:
            first[one.value] = one
    found += [f"{value} was taken {count} times" for value, count in outs.items() if count > 1]
    stood = {
        value: (put[value], taken.began)
        for value, taken in first.items()
        if value in put and put[value].stands and taken.first
    }
    found += _overtaken(put, takes, stood)
    certain = [(one.ended, until, one.level) for one, until in stood.values()]
    times, most_urgent = _steps(certain)
    asked: list[tuple[int, int, float, Take]] = []
    for one in takes:
        if one.judged and (one.value is None or one.value in put):
            level = math.inf if one.value is None else put[one.value].level
            # At the very moment of a change either may hold.
            begin, end = bisect_left(times, one.began), bisect_right(times, one.ended)
            asked.append((end, begin, level, one))
    return found + _covered(sorted(asked, key=lambda each: each[:3]), most_urgent)


def _overtaken(
    put: Mapping[str, Put], takes: Iterable[Take], stood: Mapping[str, tuple[Put, float]]
) -> Iterator[str]:
    """What was taken before a value of its level that was put in before it. stood: when somebody
    began to take a value first."""
    levels: defaultdict[int, list[tuple[float, float, str]]] = defaultdict(list)
    for one, until in stood.values():
        levels[one.level].append((one.ended, until, one.value))
    for each in levels.values():
        each.sort()
        last = -math.inf, ""
        for n, (ended, until, value) in enumerate(each):
            last = max(last, (until, value))
            each[n] = ended, *last
    for taken in takes:
        mine = put.get(taken.value or "")
        if mine is not None and mine.stands and taken.judged:
            n = bisect_left(levels[mine.level], (mine.began,))
            before = [levels[mine.level][n - 1][1:]] if n else []
            if mine.after is not None and mine.after in stood:
                before.append((stood[mine.after][1], mine.after))
            for until, value in before:
                if until > taken.ended:
                    yield f"{mine.value} was taken before {value}, which was put in before it"


def _steps(certain: Iterable[tuple[float, float, int]]) -> tuple[list[float], list[float]]:
    """Times, and the most urgent level that is certainly there before the first of them, and from
    each of them on; infinite where there is none."""
    changes = [(begin, 1, level) for begin, end, level in certain if begin < end]
    changes += [(end, -1, level) for begin, end, level in certain if begin < end]
    there: Counter[int] = Counter()
    heap: list[int] = []
    times: list[float] = []
    steps = [math.inf]
    for time, change, level in sorted(changes):
        there[level] += change
        heappush(heap, level)
        while heap and not there[heap[0]]:
            heappop(heap)
        if not times or times[-1] != time:
            times.append(time)
            steps.append(math.inf)
        steps[-1] = heap[0] if heap else math.inf
    return times, steps


def _covered(asked: Iterable[tuple[int, int, float, Take]], steps: list[float]) -> list[str]:
    """The calls, by the last and the first step that they touch, at whose every moment something
    more urgent was there."""
    found: list[str] = []
    # The steps up to here that no later one is less urgent than: the first of them from any step on
    # is the least urgent moment since.
    places: list[int] = []
    done = 0
    for end, begin, level, one in asked:
        for place in range(done, end + 1):
            while places and steps[places[-1]] <= steps[place]:
                places.pop()
            places.append(place)
        done = max(done, end + 1)
        if steps[places[bisect_left(places, begin)]] < level:
            what = "nothing" if one.value is None else one.value
            found.append(
                f"{what} was taken in [{one.began / 1e6:.3f} .. {one.ended / 1e6:.3f}], where "
                "something more urgent was in the queue all the time"
            )
    return found


LEASE_NS = 2 * 10**9
"""After so long what a dead process was given is back."""


def judged(history: Iterable[Any]) -> list[str]:
    """What is wrong with the order of the queues of a run.

    Left out are values that waited for a time, a key or a limit, or came back, and calls at some
    moment of which a value may have been in hands unknown: somebody failed or died while taking, or
    the queue was paused.
    """
    operations = [one for one in history if one.queue in QUEUES]
    gone = {one.what["process"]: one.began for one in history if one.name == "killed"}
    return [
        f"order: {queue}: {each}"
        for queue, regions in QUEUES.items()
        for region in regions
        for each in _of_queue([one for one in operations if one.queue == queue], gone, region)
    ]


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _of_queue(operations: list[Any], gone: dict[str, int], region: str | None) -> list[str]:
    puts = []
    for one in operations:
        ended = one.ended if one.error is None and one.ended else math.inf
        before: dict[int, str] = {}
        for tag, level, delay, waits, at in one.what["messages"] if one.name == "enqueue" else ():
            if region in (None, at):
                now = not delay and waits is None
                puts.append(Put(tag, level, one.began, ended, now, before.get(level)))
                if now:
                    before[level] = tag
    doubts: list[tuple[float, float]] = []
    for one in operations:
        if one.name in ("receive", "dequeue") and (one.error is not None or one.ended is None):
            died = gone.get(one.who.rpartition(".")[0], math.inf) + LEASE_NS
            # What an interrupted commit has left, another thread may still finish.
            late = LEASE_NS * (one.error or "").startswith("Interrupted")
            doubts.append((one.began, died if one.ended is None else one.ended + late))
    doubts = _merged(doubts)
    pauses = _merged(
        [(one.began, one.ended or math.inf) for one in operations if one.name == "paused"]
    )
    takes = []
    for one in operations:
        told = one.name in ("receive", "dequeue") and one.error is None and one.ended
        if told and region in (None, one.what.get("region", region)):
            sure = not _touches(one, doubts)
            for tag, _, _, attempt, _, again, _ in one.result:
                first, final = attempt == 1 and not again, one.name == "dequeue"
                takes.append(Take(tag, one.began, one.ended, first, final, sure))
            if not one.result:
                sure = sure and not _touches(one, pauses)
                takes.append(Take(None, one.began, one.ended, judged=sure))
    return violations(puts, takes)


def _touches(one: Any, spans: list[tuple[float, float]]) -> bool:
    """Whether an operation touches one of some spans, which do not touch each other."""
    last = bisect_right(spans, (one.ended, math.inf)) - 1
    return last >= 0 and one.began <= spans[last][1]
