"""``fdbq worker list``: who handles what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec.structs import asdict
from typer import Argument

import fdbqueue

from .. import context, json_schema, listings, terminal
from ..parameters import ListOutput, PageOptions, complete_queue, grouped


@grouped
def list_(
    name: Annotated[
        str | None,
        Argument(
            metavar="QUEUE",
            help="Only this queue, with all its consumers.",
            autocompletion=complete_queue,
        ),
    ] = None,
    *,
    page: PageOptions,
    output: ListOutput,
) -> None:
    """List the workers, their processes and handlers, and what each handles, since when.

    Workers tell it with their signs of life, every 5 s. Taken are places of a worker, which all its
    queues share; handled and failed are those of the last minute.

    With a QUEUE, all its consumers are listed, the most urgent first: registered ones, such as
    workers, those that wait for a message, and the holders of exclusive subscriptions. An
    interested consumer sleeps until it is notified, a not interested one cannot take messages now,
    and a non acquiring one only browses.

    \b
    Examples:
      fdbq worker list
      fdbq worker list orders
      fdbq worker list orders --watch 1
    """
    if name is None:
        db = context.connect()
        listings.show(lambda: _processes(db, page), output)
        return
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().now_ms(db)
        consumers = queue.admin.consumers(db)
        found, more = listings.page(consumers, lambda each: each.id.hex(), "consumer", page)
        listed = listings.table(
            ["id", "name", "prio", "state", "subscription", "seen", "where"],
            [
                (
                    each.id.hex(),
                    each.name,
                    each.priority,
                    each.says,
                    f"{each.subscription} (holder)" if each.holder else each.subscription,
                    f"{terminal.age(now_ms - each.seen_at_ms)} ago",
                    f"{each.host}:{each.process}" if each.host else "",
                )
                for each in found
            ],
            [*map(json_schema.consumer_json, found)],
            f"queue {name} has no consumers",
            more,
        )
        works = {(each.host, each.process): each.work for each in found if each.work}
        return listings.stacked(listed, _running([*works.items()], now_ms))

    listings.show(look, output)


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


def _processes(db: fdbqueue.fdb.Database, page: PageOptions) -> listings.View:
    from fdbqueue.queue import overview

    now_ms = fdbqueue.Clock().now_ms(db)
    every = [each for each in overview.processes(db, root=context.subspace()) if each.waits is None]
    named = [(f"{each.host}:{each.process}", each) for each in every]
    found, more = listings.page(named, lambda each: each[0], "process", page)
    rows = [
        (
            where,
            *(work.worker, work.queue, work.handler, f"{work.taken} of {work.places}"),
            *(work.handled, work.failed, f"{terminal.age(now_ms - session.wall_ms)} ago"),
        )
        for where, session in found
        for work in session.work
    ]
    values = [
        {
            "host": session.host,
            "process": session.process,
            "started_at": json_schema.when(session.started_at_ms),
            "seen_at": json_schema.when(session.wall_ms),
            "work": [_work_json(work) for work in session.work],
        }
        for _, session in found
    ]
    headers = ["where", "worker", "queue", "handler", "taken", "handled", "failed", "seen"]
    listed = listings.table(headers, rows, values, "no worker runs", more)
    works = [((session.host, session.process), session.work) for _, session in found]
    return listings.stacked(listed, _running(works, now_ms))


def _work_json(work: fdbqueue.schema.consumers.Work) -> dict[str, object]:
    running = [
        {"id": each.id, "key": each.key, "attempt": each.attempt}
        | {"since": json_schema.when(each.since_ms)}
        for each in work.running
    ]
    return {**asdict(work), "running": running}


def _running(
    works: Sequence[tuple[tuple[str, int], Sequence[fdbqueue.schema.consumers.Work]]], now_ms: int
) -> listings.View:
    """What the handlers of processes handle."""
    rows = [
        (
            f"{host}:{process}",
            *(work.queue, each.id, each.key or "", each.attempt),
            terminal.age(now_ms - each.since_ms),
        )
        for (host, process), some in works
        for work in some
        for each in work.running
    ]
    return listings.table(["where", "queue", "handles", "key", "attempt", "for"], rows, [], "")
