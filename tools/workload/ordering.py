"""Order in a level, in real time: what must have been delivered before.

What is more urgent, and what is empty, is the matter of the monitor. A message whose enqueue had
returned before, and that nobody had asked for until after, stood in the queue all the while. It is
used only where a message reached its first consumer at its first attempt: else somebody else had it
for a while; and where nobody was under way meanwhile who may have had it and did not tell
(``View.disturbed``).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

from .view import Taken, Told, View
from .violations import Violation, violation

STRICT = ("first", "staged", "auto", "filtered", "watched")

Group = tuple[str, str]
"""A queue, and for one with selectors what is selected."""


class Standing:
    """Messages that stood in a queue from ``since`` to ``until``, searched by both."""

    def __init__(self, stood: Iterable[tuple[float, float, Told]]) -> None:
        ordered = sorted(stood, key=lambda one: one[:2])
        self._since = [since for since, _, _ in ordered]
        self._longest: list[tuple[float, Told]] = []
        for _, until, told in ordered:
            if self._longest and self._longest[-1][0] >= until:
                self._longest.append(self._longest[-1])
            else:
                self._longest.append((until, told))

    def throughout(self, begin: float, end: float) -> Told | None:
        """One that stood there before ``begin`` and still after ``end``."""
        n = bisect_left(self._since, begin)
        if n and self._longest[n - 1][0] > end:
            return self._longest[n - 1][1]
        return None


def _first(view: View, key: tuple[str, str]) -> float | None:
    """Since when a message may have been out of the queue; None where nobody knows."""
    taken = view.taken.get(key)
    if not taken or min(one.nth for one in taken) > 1:
        return None
    return min(one.began for one in taken)


def _group(queue: str, region: str) -> Group:
    return queue, region if queue == "filtered" else ""


def _standing(view: View) -> dict[tuple[Group, int], Standing]:
    """By group and level: when messages stood in the queue for certain."""
    stood: dict[tuple[Group, int], list[tuple[float, float, Told]]] = defaultdict(list)
    for one in _certain(view):
        told = one[2]
        stood[_group(told.queue, told.region), told.level].append(one)
    return {key: Standing(each) for key, each in stood.items()}


def _certain(view: View) -> Iterator[tuple[float, float, Told]]:
    """Since when and until when messages stood in their queues for certain."""
    for key, told in view.told.items():
        until = _first(view, key)
        if told.certain and told.in_order and told.operation.ended and until is not None:
            yield view.over(told.operation), until, told


def _taken(view: View) -> Iterator[tuple[Told, Taken]]:
    """What was taken from queues with an order, by somebody who asked for the first message."""
    for key, taken in view.taken.items():
        if key[0] in STRICT and key in view.told and view.told[key].in_order:
            for one in taken:
                anybody = one.operation.what.get("drains") and key[0] == "filtered"
                if not anybody and not view.disturbed(one.operation):
                    yield view.told[key], one


def sorted_batches(view: View) -> Iterator[Violation]:
    """The messages of one delivery are in order, and those of one enqueue are taken in order."""
    for one in view.operations:
        if one.name == "receive" and one.queue in STRICT and one.result:
            told = [view.told.get((one.queue, row[0])) for row in one.result]
            ids = [
                row[1]
                for row, known in zip(one.result, told, strict=True)
                if known is not None and known.in_order
            ]
            if ids != sorted(ids):
                yield violation("batch out of order", f"{one.queue}: {ids}", [one])
    batches: dict[tuple[str, int, int], list[tuple[Told, float, float]]] = defaultdict(list)
    for member, taken in _taken(view):
        began = _first(view, (member.queue, member.tag))
        if began is not None and member.queue != "filtered" and taken.operation.ended is not None:
            batch = (member.operation.who, member.operation.n, member.level)
            batches[batch].append((member, began, taken.ended))
    for members in batches.values():
        members.sort(key=lambda each: each[0].place)
        for (before, began, _), (after, _, ended) in itertools.pairwise(members):
            if before is not after and began > ended:
                takers = view.taken[before.queue, before.tag] + view.taken[after.queue, after.tag]
                operations = [before.operation, *(one.operation for one in takers)]
                yield violation("fifo", f"{after.tag} before {before.tag}", operations)


def fifo(view: View) -> Iterator[Violation]:
    """In a level, what was enqueued before is taken before."""
    standing = _standing(view)
    for told, one in _taken(view):
        level = standing.get((_group(told.queue, told.region), told.level))
        before = level and level.throughout(told.operation.began, one.ended)
        if before:
            takers = [taken.operation for taken in view.taken[before.queue, before.tag]]
            operations = [before.operation, told.operation, one.operation, *takers]
            text = f"{told.queue}: {told.tag} was taken before {before.tag}"
            yield violation("fifo", text, operations)
