"""A history as the checks look at it: what is certain, what is possible, and when."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .clients import Interrupted
from .history import Operation
from .place import LEASE, MAX_SKEW_MS

STORE = "store"
NOTHING_WRITTEN = ("LeaseLost", "StoreFull")
"""Errors that promise that nothing of the operation was written."""
UNDONE = ("reject", "cancel")
"""Operations that end a message, after which it is not done."""
LEASE_NS = int(LEASE * 1e9)


@dataclass(slots=True)
class Told:
    """A message that was to be enqueued. ``certain``: it was, or was not; None: nobody knows."""

    tag: str
    queue: str
    level: int
    delay: float
    key: str | None
    region: str
    operation: Operation
    place: int
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
    operation: Operation

    @property
    def nth(self) -> int:
        """Which delivery of its message it is: more than the one before, unless that was released.

        A lease that expires in a batch counts no attempt, but makes the message a redelivered one;
        from then on it comes alone, and every lease that expires counts.
        """
        return self.attempt + self.redelivered

    @property
    def began(self) -> float:
        """When it was asked for, at the earliest."""
        return -math.inf if self.operation.name == "handle" else self.operation.began

    @property
    def ended(self) -> float:
        """When it was had, at the latest."""
        return math.inf if self.operation.ended is None else self.operation.ended


class Spans:
    """Intervals of time, searched by whether any of them touches another one."""

    def __init__(self, spans: Iterable[tuple[float, float]] = ()) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        for begin, end in spans:
            self._begins.append(begin)
            self._ends.append(end)
        self._begins.sort()
        self._ends.sort()

    def touch(self, begin: float, end: float) -> bool:
        """Whether more of them have begun by the end than were over at the beginning."""
        return bisect_right(self._begins, end) > bisect_left(self._ends, begin)


def _taken(row: list[Any], operation: Operation) -> Taken:
    tag, identity, level, attempt, region, redelivered = row
    return Taken(tag, identity, level, attempt, region, redelivered, operation)


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
    silent: list[Operation] = field(default_factory=list)
    """Calls that may have been given messages, and did not tell."""
    killed: dict[str, int] = field(default_factory=dict)
    """By process: when it was no more."""
    options: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """By queue: changes of its options, in the order in which they began."""
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
        self._silent_spans = self._spans(self.silent)

    def disturbed(self, one: Operation) -> bool:
        """Whether at some instant of an operation a message may have been in hands unknown.

        A call that fails after it was given messages, or whose process is killed, gives them back
        as if it never had them: for as long as it lasts, and for a lease where it was killed, any
        message of its queue may be out of the queue. Whoever takes the next one then is right.
        """
        end = math.inf if one.ended is None else one.ended
        spans = self._silent_spans.get(one.queue)
        return spans is not None and spans.touch(one.began, end)

    def _spans(self, operations: Iterable[Operation]) -> dict[str, Spans]:
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for one in operations:
            spans[one.queue].append((one.began, self.over(one)))
        return {queue: Spans(each) for queue, each in spans.items()}

    def over(self, one: Operation) -> float:
        """Since when an operation has no consequence any more."""
        if one.ended is not None:
            # What an interrupted commit has left, another thread may still finish.
            late = one.error is not None and one.error.startswith(Interrupted.__name__)
            return one.ended + LEASE_NS * late
        killed = self.killed.get(one.who.rpartition(".")[0])
        return math.inf if killed is None else killed + LEASE_NS

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
            case "killed":
                self.killed[what["process"]] = one.began
            case "options":
                self.options[one.queue].append(one)
            case "final":
                self.finals[one.queue] = what
            case "seen":
                self.seen[what["browser"]] = what["rows"]
            case "events":
                self.events[one.queue] += what["rows"]

    def _enqueue(self, one: Operation) -> None:
        certain, ids = self.came(one)
        for place, (tag, level, delay, key, region) in enumerate(one.what["messages"]):
            self.told[one.queue, tag] = Told(
                tag,
                one.queue,
                level,
                delay,
                key,
                region,
                one,
                place,
                certain,
                ids[place] if certain else None,
            )

    def _take(self, one: Operation) -> None:
        _, rows = self.came(one)
        if one.name == "receive" and not one.ok:
            self.silent.append(one)
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
