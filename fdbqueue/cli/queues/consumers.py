"""``fdbq worker list``: the consumers of a queue."""

from __future__ import annotations

import fdbqueue

from .. import context, json_schema, listings, terminal
from ..parameters import ListOutput, Page, QueueName, grouped

STALE_SECONDS = 15.0
"""A process whose last heartbeat is older than this looks dead."""


@grouped
def list_(name: QueueName, *, page: Page, output: ListOutput) -> None:
    """List the consumers of a queue, the most urgent first.

    Includes registered consumers, such as workers, those that wait for a message, and the holders
    of exclusive subscriptions. An interested consumer sleeps until it is notified, a not interested
    one cannot take messages now, and a non acquiring one only browses.

    \b
    Examples:
      fdbq worker list orders
      fdbq worker list orders --watch 1
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


def stale(
    db: fdbqueue.fdb.Database, consumers: list[fdbqueue.consumers.Consumer]
) -> list[fdbqueue.consumers.Consumer]:
    """The consumers whose process looks dead."""
    now_ms = fdbqueue.Clock().now_ms(db)
    return [each for each in consumers if now_ms - each.seen_at_ms > STALE_SECONDS * 1000]
