"""``fdbq consumer …``: the consumers of a queue."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Typer

import fdbqueue

from .. import context, json_schema, listings, terminal
from ..parameters import Change, ListOutput, Page, QueueName, grouped

STALE_SECONDS = 15.0
"""A process whose last heartbeat is older than this looks dead."""

app = Typer(name="consumer", help="List consumers, and evict dead ones.", no_args_is_help=True)


@app.command("list")
@grouped
def list_(name: QueueName, *, page: Page, output: ListOutput) -> None:
    """List the consumers of a queue, the most urgent first.

    Includes registered consumers, such as workers, those that wait for a message, and the holders
    of exclusive subscriptions. An interested consumer sleeps until it is notified, a not interested
    one cannot take messages now, and a non acquiring one only browses.

    \b
    Examples:
      fdbq consumer list orders
      fdbq consumer list orders --watch 1
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().now_ms(db)
        consumers = queue.admin.consumers(db)
        found, more = listings.page(consumers, lambda each: each.id.hex(), "consumer", page)
        return listings.table(
            ["id", "name", "prio", "state", "subscription", "seen", "where"],
            [
                (
                    each.id.hex(),
                    each.name,
                    each.priority,
                    json_schema.consumer_state(each),
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

    listings.show(look, output)


@app.command()
@grouped
def evict(
    name: QueueName,
    ids: Annotated[
        list[str] | None,
        Argument(metavar="ID…", help="Ids of consumers, as printed by fdbq consumer list."),
    ] = None,
    *,
    change: Change,
) -> None:
    """Remove consumers of dead processes, or those you name.

    A process is dead after 15 s without a heartbeat; fdbq removes it from all queues. The leases of
    its consumers stay, see fdbq lease release. A consumer that is still alive registers again.

    \b
    Examples:
      fdbq consumer evict orders
      fdbq consumer evict orders 0f6f3c1e5b9a4d0c8b7a695847362514 --yes
    """
    db, queue = context.open_queue(name)
    known = {each.id.hex(): each for each in queue.admin.consumers(db)}
    if missing := [each for each in ids or [] if each not in known]:
        raise terminal.CommandError(f"queue {name!r} has no consumer {', '.join(missing)}", 1)
    chosen = [known[each] for each in ids] if ids else stale(db, [*known.values()])
    gone = [each.id for each in chosen]
    if ids and not change.dry_run:
        consumers = terminal.count(len(chosen), "consumer")
        change.confirm(f"Remove {consumers} of queue {name!r}?")
        gone = [evicted for each in chosen for evicted in queue.admin.evict(db, each)]
    elif not change.dry_run:
        gone = []
        while evicted := queue.admin.evict(db):
            gone += evicted
    names = [each.hex() for each in gone]
    value = {"evicted": [], "would_be_evicted": names} if change.dry_run else {"evicted": names}
    change.print_result(
        {"queue": name, **value},
        f"{change.verb('evict', 'evicted')} {terminal.count(len(gone), 'consumer')} "
        f"of queue {name}",
    )


def stale(
    db: fdbqueue.fdb.Database, consumers: list[fdbqueue.consumers.Consumer]
) -> list[fdbqueue.consumers.Consumer]:
    """The consumers whose process looks dead."""
    now_ms = fdbqueue.Clock().now_ms(db)
    return [each for each in consumers if now_ms - each.seen_at_ms > STALE_SECONDS * 1000]
