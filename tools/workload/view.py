"""A history as the checks look at it: what is certain, what is possible, and when."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from .history import Operation
from .place import MAX_SKEW_MS

STORE = "store"
NOTHING_WRITTEN = ("LeaseLost", "StoreFull")
"""Errors that promise that nothing of the operation was written."""
UNDONE = ("reject", "cancel")
"""Operations that end a message, after which it is not done."""


@dataclass(slots=True)
class Told:
    """A message that was to be enqueued. ``certain``: it was, or was not; None: nobody knows."""

    tag: str
    delay: float
    key: str | None
    region: str
    operation: Operation
    certain: bool | None
    id: str | None

    @property
    def in_order(self) -> bool:
        """Whether its place in the queue follows from when it was enqueued."""
        return self.delay == 0 and self.key is None


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that reached a consumer; ``ended`` is infinite where nobody saw it return."""

    tag: str
    id: str
    level: int
    attempt: int
    region: str
    redelivered: bool
    deaths: int
    operation: Operation

    @property
    def nth(self) -> int:
        """Which delivery of its message it is: more than the one before, unless that was released.

        A lease that expires in a batch counts no death, but makes the message a redelivered one;
        from then on it comes alone, and every lease that expires counts.
        """
        return self.attempt + self.redelivered + self.deaths

    @property
    def began(self) -> float:
        """When it was asked for, at the earliest."""
        return -math.inf if self.operation.name == "handle" else self.operation.began

    @property
    def ended(self) -> float:
        """When it was had, at the latest."""
        return math.inf if self.operation.ended is None else self.operation.ended


def _taken(row: list[Any], operation: Operation) -> Taken:
    tag, identity, level, attempt, region, redelivered, deaths = row
    return Taken(tag, identity, level, attempt, region, redelivered, deaths, operation)


@dataclass
class View:
    """A history, sorted out."""

    operations: list[Operation]
    skew_ms: float = MAX_SKEW_MS
    told: dict[tuple[str, str], Told] = field(default_factory=dict)
    taken: dict[tuple[str, str], list[Taken]] = field(default_factory=lambda: defaultdict(list))
    done: dict[tuple[str, str], list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """By queue and tag: what is known to have ended the message."""
    perhaps: dict[tuple[str, str], list[Operation]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By queue and tag: what may have ended the message."""
    given: dict[tuple[str, str], list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """By queue and tag: what may have given the message back."""
    effects: dict[tuple[str, str], int] = field(default_factory=dict)
    finals: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: dict[str, list[list[Any]]] = field(default_factory=dict)
    events: dict[str, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.marks: dict[tuple[str, int], Any] = {
            (one.what["actor"], one.what["n"]): one.what["value"]
            for one in self.operations
            if one.who == STORE and one.name == "mark"
        }
        for one in self.operations:
            self._sort(one)

    def came(self, one: Operation) -> tuple[bool | None, Any]:
        """Whether an operation committed (None: nobody knows), and its result."""
        if one.ok:
            return True, one.result
        if one.what.get("marked"):
            mark = self.marks.get((one.who, one.n))
            return mark is not None, mark
        if one.error is not None and one.error.startswith(NOTHING_WRITTEN):
            return False, None
        return None, None

    # -- sorting -----------------------------------------------------------------------------

    def _sort(self, one: Operation) -> None:
        what = one.what
        match one.name:
            case "enqueue":
                self._enqueue(one)
            case "receive" | "dequeue":
                self._take(one)
            case "handle":
                for row in what["rows"]:
                    self.taken[one.queue, row[0]].append(_taken(row, one))
            case "ack" | "effect" | "reject" | "cancel":
                self._settle(one)
            case "release" | "fail":
                if self.came(one)[0] is not False:
                    for tag in what["tags"]:
                        self.given[one.queue, tag].append(one)
            case "effect of":
                self.effects[one.queue, what["tag"]] = what["count"]
            case "final":
                self.finals[one.queue] = what
            case "seen":
                self.seen[what["browser"]] = what["rows"]
            case "events":
                self.events[one.queue] += what["rows"]

    def _enqueue(self, one: Operation) -> None:
        certain, ids = self.came(one)
        for place, (tag, _, delay, key, region) in enumerate(one.what["messages"]):
            self.told[one.queue, tag] = Told(
                tag,
                delay,
                key,
                region,
                one,
                certain,
                ids[place] if certain else None,
            )

    def _take(self, one: Operation) -> None:
        _, rows = self.came(one)
        for row in rows or ():
            taken = _taken(row, one)
            self.taken[one.queue, taken.tag].append(taken)
            if one.name == "dequeue":
                self.done[one.queue, taken.tag].append(one)

    def _settle(self, one: Operation) -> None:
        certain, _ = self.came(one)
        if certain is False:
            return
        for tag in one.what["tags"]:
            (self.done if certain else self.perhaps)[one.queue, tag].append(one)
