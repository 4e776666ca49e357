"""``fdbq worker list``: who handles what."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

import fdbqueue

from .. import context, json_schema, listings, output, terminal
from ..output import Listed, View
from ..parameters import PageOptions, argument, complete_queue


def list_(
    name: str | None = argument(
        "QUEUE",
        "Only this queue, with all its consumers.",
        None,
        autocompletion=complete_queue,
    ),
    *,
    page: PageOptions,
) -> Listed:
    """List the workers, their processes and handlers, and what each handles, since when.

    Workers tell it with their signs of life, every 5 s. Taken are places of a worker, which all its
    queues share; handled and failed are those of the last minute.

    With a QUEUE, all its consumers are listed, the most urgent first: registered ones, such as
    workers, those that wait for a message, and the holders of exclusive subscriptions. An
    interested consumer sleeps until it is notified, a not interested one cannot take messages now,
    and a non acquiring one only browses.

    Examples:
      fdbq worker list
      fdbq worker list orders
      fdbq worker list orders --watch 1
    """
    if name is None:
        db = context.connect()
        return lambda: _processes(db, page)
    db, queue = context.open_queue(name)
    return lambda: _consumers(db, queue, page)


def _consumers(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, page: PageOptions) -> View:
    now_ms, consumers = fdbqueue.Clock().now_ms(db), queue.admin.consumers(db)
    found, more = listings.page(consumers, lambda each: each.id.hex(), "consumer", page)
    rows = [
        (
            *(each.id.hex(), each.name, each.priority, each.says),
            each.subscription + " (holder)" * each.holder,
            terminal.ago(each.seen_at_ms, now_ms),
            f"{each.host}:{each.process}" if each.host else "",
        )
        for each in found
    ]
    headers = ["id", "name", "prio", "state", "subscription", "seen", "where"]
    empty = f"queue {queue.name} has no consumers"
    listed = output.table(headers, rows, [*map(json_schema.consumer_json, found)], empty, more)
    works = {(each.host, each.process): each.work for each in found if each.work}
    return output.stacked(listed, _running([*works.items()], now_ms))


def producing(
    processes: Sequence[fdbqueue.schema.consumers.Session],
    queue: str,
    now_ms: int,
    least_ms: int = 0,
) -> list[str]:
    """Whose producers have waited for longer for room in a queue."""
    from fdbqueue.queue import overview

    return [
        f"{terminal.count(waits.calls, 'call')} of {place}, "
        f"for {terminal.age(now_ms - waits.since_ms)}"
        for place, waits in overview.producing(processes, queue, now_ms)
        if now_ms - waits.since_ms > least_ms
    ]


def _processes(db: fdbqueue.fdb.Database, page: PageOptions) -> View:
    from fdbqueue.queue import overview

    now_ms = fdbqueue.Clock().now_ms(db)
    every = [each for each in overview.processes(db, root=context.subspace()) if each.waits is None]
    named = [(f"{each.host}:{each.process}", each) for each in every]
    found, more = listings.page(named, lambda each: each[0], "process", page)
    rows = [
        (
            *(where, work.worker, work.queue, work.handler, f"{work.taken} of {work.places}"),
            *(work.handled, work.failed, terminal.ago(session.wall_ms, now_ms)),
        )
        for where, session in found
        for work in session.work
    ]
    values = [
        {
            **json_schema.fields(session, "host", "process", "started_at_ms"),
            "seen_at": json_schema.when(session.wall_ms),
            "work": [_work_json(work) for work in session.work],
        }
        for _, session in found
    ]
    headers = ["where", "worker", "queue", "handler", "taken", "handled", "failed", "seen"]
    listed = output.table(headers, rows, values, "no worker runs", more)
    works = [((session.host, session.process), session.work) for _, session in found]
    return output.stacked(listed, _running(works, now_ms))


def _work_json(work: fdbqueue.schema.consumers.Work) -> dict[str, object]:
    names = ("id", "key", "attempt", "since_ms")
    return {**asdict(work), "running": [json_schema.fields(each, *names) for each in work.running]}


def _running(
    works: Sequence[tuple[tuple[str, int], Sequence[fdbqueue.schema.consumers.Work]]], now_ms: int
) -> View:
    """What the handlers of processes handle."""
    rows = [
        (
            *(f"{host}:{process}", work.queue, each.id, each.key or "", each.attempt),
            terminal.age(now_ms - each.since_ms),
        )
        for (host, process), some in works
        for work in some
        for each in work.running
    ]
    return output.table(["where", "queue", "handles", "key", "attempt", "for"], rows, [], "")
