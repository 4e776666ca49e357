"""The check of queues in use: clean ones are clean, and every planted violation is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import fdbqueue.spark
from fdbqueue import Depth, NewMessage, Queue, fdb
from fdbqueue.testing import ManualClock

from .histories import NOON_MS, Line, identity, lived, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from fdbqueue.spark import Step
from fdbqueue.spark.checks.queues import SLACK, QueueSnapshot, check_history

FIRST, SECOND, THIRD = (identity(0, n) for n in (1, 2, 3))
SCHEDULED = f"d-{NOON_MS + 10**7:012x}-{0:016x}"
DONE = Depth(enqueued=2, done=2)


@dataclass(frozen=True)
class Case:
    """A history, the kinds of its violations, and what else is known of its queue."""

    lines: list[Line]
    kinds: set[str]
    depth: Depth = DONE
    until: int = 10**12
    ordered: bool = True


def plain() -> list[Line]:
    """Two messages that were done with one after the other, long after they were enqueued."""
    lines = [
        *lived("q", 0, FIRST, "enqueue"),
        *lived("q", 1, SECOND, "enqueue"),
        *lived("q", 2, FIRST, "lease", "ack"),
        *lived("q", 4, SECOND, "lease", "ack"),
    ]
    return [replace(line, version=(1 + line.n) * 2 * SLACK) for line in lines]


def changed(n: int, **changes: Any) -> list[Line]:
    """The plain history with one line that is another."""
    return [replace(line, **changes) if line.n == n else line for line in plain()]


def without(n: int) -> list[Line]:
    """The plain history without one line."""
    return [line for line in plain() if line.n != n]


def followed_by(*events: tuple[str, str]) -> list[Line]:
    """The plain history and more: transitions and ids."""
    lines = plain()
    for name, message in events:
        n, version = lines[-1].n + 1, lines[-1].version + 1
        lines.append(replace(lines[-1], n=n, version=version, transition=name, id=message))
    return lines


def swapped(**first: Any) -> list[Line]:
    """The plain history in which the second message is taken before the first."""
    other = {FIRST: SECOND, SECOND: FIRST}
    lines = [replace(one, id=other[one.id]) if one.n > 1 else one for one in plain()]
    return [replace(lines[0], **first), *lines[1:]]


def hasty() -> list[Line]:
    """The swapped history, in which the first one was enqueued but a moment before."""
    lines = swapped()
    return [replace(lines[0], version=lines[2].version - SLACK), *lines[1:]]


CASES = {
    "clean": Case(plain(), set()),
    "ready and settled": Case(without(2), {"illegal transition"}),
    "a name that nobody knows": Case(
        changed(5, transition="vanish"), {"unknown transition", "counter"}
    ),
    "one id for two": Case(followed_by(("enqueue", FIRST)), {"enqueued twice", "counter"}),
    "two leases of one": Case(changed(3, transition="lease"), {"leased twice", "counter"}),
    "after the end": Case(followed_by(("lease", FIRST), ("ack", FIRST)), {"went on after its end"}),
    "an attempt from nowhere": Case(changed(4, attempt=1), {"attempts do not follow"}),
    "one attempt too many": Case(
        changed(4, attempt=3), {"attempts do not follow", "too many attempts"}
    ),
    "overtaken": Case(swapped(), {"overtaken"}),
    "taken by one who had read before": Case(hasty(), set()),
    "selected": Case(swapped(), set(), ordered=False),
    "since the counters were read": Case(
        followed_by(("enqueue", THIRD)), set(), until=plain()[-1].version
    ),
    "overtaken in the line of its key": Case(swapped(place=""), set()),
    "before it was due": Case(
        followed_by(("schedule", SCHEDULED), ("promote", SCHEDULED)),
        {"early"},
        Depth(enqueued=3, done=2, ready=1),
    ),
    "counted as another": Case(plain(), {"counter"}, Depth(enqueued=2, done=1, ready=1)),
    "not counted": Case(followed_by(("enqueue", THIRD)), {"counter"}),
    "begun before its history": Case(without(0), set()),
    "begun before, and more than there are": Case(
        without(0), {"counter"}, Depth(enqueued=5, done=1, ready=4)
    ),
}


def test_every_planted_violation_is_found_and_nothing_else(spark: SparkSession) -> None:
    # Given queues, each with a history in which something else is wrong
    lines = [replace(line, queue=name) for name, case in CASES.items() for line in case.lines]
    known = [
        QueueSnapshot(name, case.until, {0: case.depth}, case.ordered, 3)
        for name, case in CASES.items()
    ]
    # When all are checked at once
    verdict = check_history(table(spark, lines), known)
    # Then each shows what was planted
    found = {name: set(verdict.kinds(name)) for name in CASES}
    assert found == {name: case.kinds for name, case in CASES.items()}
    # And it is told what could not be checked, and what shows a violation
    assert {each.split(":")[0] for each in verdict.unchecked} == {
        "the order of selected",
        "the beginning of the history of begun before its history",
        "the beginning of the history of begun before, and more than there are",
    }
    (twice,) = [one for one in verdict.violations if one.kind == "leased twice"]
    assert [event.split()[2] for event in twice.shown_by] == ["enqueue", "lease", "lease"]
    assert str(twice).startswith(f"leased twice: lease of {FIRST}, which is leased")


# -- queues in use ----------------------------------------------------------------------------


def used(db: fdb.Database, queue: Queue, clock: ManualClock, **terms: Any) -> None:
    """Much that can happen to messages. terms: of each third one."""
    for n in range(60):
        given: dict[str, Any] = {"delay": 5 * (n % 4 == 0), "ttl": 20 if n % 7 == 0 else None}
        given |= terms if n % 3 == 0 else {}
        queue.enqueue_many(db, [NewMessage(b"x", n % 10, {"n": n % 2}, **given)])
        for how, one in enumerate(queue.receive_many(db, 3, consumer="abc"[n % 3]), n):
            match how % 5:
                case 0 | 1:
                    queue.ack(db, one)
                case 2:
                    queue.release(db, one, error="no", delay=5 * (n % 2))
                case 3:
                    queue.reject(db, one, "bad")
        if n % 10 == 9:
            clock.seconds += 40
            queue.admin.sweep(db)
            queue.receive(db, at_most_once=True)
            queue.retry(db) if n < 40 else queue.purge(db, states="dead")


def test_queues_in_use_show_no_violation(
    spark: SparkSession, db: fdb.Database, space: fdb.Subspace
) -> None:
    clock = ManualClock()
    # Given queues that were used in every way, one of which has kept its history only later
    terms: dict[str, Any] = {"root": space, "clock": clock, "levels": 3, "lease": 30}
    queue, late = (Queue.create(db, name, max_attempts=3, **terms) for name in ("queue", "late"))
    late.enqueue_many(db, [b"1", b"2"])
    for one in (queue, late):
        one.set_options(db, history_seconds=10_000)
        used(db, one, clock, key="k")
    terms["history_seconds"] = 10_000
    rising = Queue.create(db, "rising", sort="n", max_attempts=3, **terms)
    newest = Queue.create(db, "newest", last_value="n", max_attempts=3, **terms)
    for one in (rising, newest):
        used(db, one, clock)
    replaced = {event.transition for event in newest.history(db, 10_000)}
    assert {"replace ready", "replace leased", "replace scheduled"} <= replaced
    names = {event.transition for event in queue.history(db, 10_000)}
    assert {
        "reclaim",
        "expire leased",
        "redrive",
        "defer",
        "promote",
        "dequeue",
        "purge dead",
    } <= names
    # When all are checked
    steps: list[Step] = []
    verdict = fdbqueue.spark.check(
        db, [queue, late, rising, newest], max_attempts=3, spark=spark, progress=steps.append
    )
    # Then nothing is wrong, and one history does not tell everything
    assert verdict.violations == ()
    (unchecked,) = verdict.unchecked
    assert unchecked.startswith("the beginning of the history of late: it no longer has 2 of ")
    assert verdict.checked["messages"] > 100
    # And it has told what it did meanwhile
    doing = list(dict.fromkeys(step.doing for step in steps))
    assert doing[-2:] == ["following every message", "checking"]
