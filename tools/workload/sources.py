"""A queue that a schedule and a sink fill, and that consumers and a plan empty.

Each message has a number: the time of its tick, or its batch and row. So it shows what comes twice
or never, and what comes faster than the rate of the queue allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from fdbqueue import NewMessage
from fdbqueue.errors import BatchLost, SinkBehind, SinkUnfinished, TakenOver
from fdbqueue.schema.keys import QueueKeys

from .clients import Client
from .history import Operation, Recorder
from .operations import operation
from .place import BURST, SCHEDULE, SOURCED, TICK_SECONDS, Place
from .view import View
from .violations import Violation, violation

STREAM = "stream"
BATCH = 7
"""Rows of a batch of the sink."""


def _numbers(found: Iterable[Any]) -> list[list[str]]:
    """The number and the id of messages."""
    return [[str(each.headers.get("row") or each.headers["tick"]), each.id] for each in found]


@operation(1.5, "sourced")
def take_what_sources_bring(c: Client) -> None:
    held: list[Any] = []

    def take(n: int) -> list[list[str]]:
        held.extend(c.place.sourced.receive_many(c.db, 10, wait=c.random.choice([0.0, 3.0])))
        return _numbers(each.message for each in held)

    c.do("taken", SOURCED, take, rows=10, size=10_000)
    if held:
        ids = [each.id for each in held]
        c.do("settled", SOURCED, lambda n: c.place.sourced.ack(c.db, held), rows=10, ids=ids)


@operation(0.5, "sourced")
def fill_by_a_sink(c: Client) -> None:
    sink = c.place.sourced.streams.sink(STREAM)

    def publish(n: int) -> None:
        batch = sink.state(c.db).done + 1
        stager = sink.stage(c.db, batch)
        for row in range(BATCH):
            stager.add(NewMessage(b"", headers={"row": f"{batch}:{row}"}))
        sink.publish(c.db, batch, [stager.finish()], room=1.0)

    may = (SinkBehind, SinkUnfinished, BatchLost)
    c.do("published", SOURCED, publish, rows=4 * BATCH, size=10_000, may=may)


@operation(0.5, "sourced")
def take_by_a_plan(c: Client) -> None:
    def begins() -> dict[int, bytes]:
        # A new consumer may leave what is there to others.
        ends = planner.ends(c.db) if c.random.random() < 0.5 else {}
        return {level: QueueKeys.place_after(end - 1) for level, end in ends.items()}

    planner = c.place.sourced.streams.plans.planner(STREAM, begins=begins)
    may = (TakenOver, BatchLost)

    def read(n: int) -> list[Any]:
        since, ends = planner.begin(c.db), planner.ends(c.db)
        until = planner.next(c.db, since, messages=10, ends=ends)
        pieces = planner.pieces(c.db, since, until, 2)
        pages = [page for piece in pieces for page in planner.read(c.db, piece)]
        found.extend([until] if until != since else [])
        told = [(each.envelope.headers, each.id) for page in pages for each in page]
        return [[str(headers.get("row") or headers["tick"]), name] for headers, name in told]

    found: list[Any] = []
    rows = c.do("taken", SOURCED, read, rows=40, size=10_000, may=may, plans=True)
    if found and rows:
        ids = [name for _, name in rows]
        done = planner.acknowledge
        c.do("settled", SOURCED, lambda n: done(c.db, found[0]), rows=40, ids=ids, may=may)


def tidy(place: Place) -> None:
    """Let nothing more come, and all be taken."""
    queue = place.sourced
    queue.schedules.delete(place.db, SCHEDULE)
    queue.set_options(place.db, rate=None)
    for consumer in queue.streams.plans.list(place.db):
        queue.streams.plans.release(place.db, consumer.name)
        queue.streams.plans.forget(place.db, consumer.name)
    queue.streams.sink(STREAM).finish(place.db)
    queue.streams.sink(STREAM).forget(place.db)


def drain(place: Place, recorder: Recorder, who: str) -> int:
    """Take some that is left."""
    held = place.sourced.receive_many(place.db, 100)
    if held:
        rows = _numbers(each.message for each in held)
        n = recorder.begin(who, "taken", SOURCED, drains=True)
        recorder.end(who, n, result=rows)
        place.sourced.ack(place.db, held)
        recorder.note(who, "settled", SOURCED, ids=[name for _, name in rows])
    return len(held)


# -- what must hold --------------------------------------------------------------------------------


def checks(view: View) -> Iterator[Violation]:
    """Everything comes once, none is left out, and no more are taken than the rate allows."""
    mine = [one for one in view.operations if one.queue == SOURCED and one.ok]
    taken = [one for one in mine if one.name == "taken"]
    over = {name: one for one in mine if one.name == "settled" for name in one.what["ids"]}
    ids: dict[str, set[str]] = defaultdict(set)
    for one in taken:
        for number, name in one.result:
            ids[number].add(name)
            if name in over and (over[name].ended or 0) < one.began:
                yield violation("taken after its end", f"{number}, {name}", [over[name], one])
    for number, names in ids.items():
        if len(names) > 1:
            yield violation("came twice", f"{number}: {sorted(names)}")
    for numbers, of in _series(ids):
        if numbers and len(numbers) != numbers[-1] - numbers[0] + 1:
            missing = {*range(numbers[0], numbers[-1])} - {*numbers}
            yield violation("never came", f"{of}: {sorted(missing)}")
    yield from _too_fast([one for one in taken if one.result and len(one.what) == 0], view.skew_ms)


def _series(ids: Iterable[str]) -> Iterator[tuple[list[int], str]]:
    """The numbers of each source, which follow each other."""
    rows, ticks = [], []
    for each in ids:
        batch, _, row = each.partition(":")
        if row.isdecimal():
            rows.append(int(batch) * BATCH + int(row))
        else:
            ticks.append(round(datetime.fromisoformat(each).timestamp() / TICK_SECONDS))
    yield sorted(rows), "rows"
    yield sorted(ticks), "ticks"


def _too_fast(taken: list[Operation], skew_ms: float) -> Iterator[Violation]:
    spare = BURST + 2 * skew_ms / 1e3
    ordered = sorted(taken, key=lambda one: one.ended or 0)
    for first in ordered:
        count = 0
        for one in ordered:
            if one.began >= first.began:
                count += len(one.result)
                if count > spare + ((one.ended or 0) - first.began) / 1e9:
                    yield violation("faster than its rate", f"{count}", [first, one])
                    return
