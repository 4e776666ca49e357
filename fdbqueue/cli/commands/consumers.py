"""``fdbq consumer …``: who consumes a queue."""

from __future__ import annotations

from typing import Annotated

import fdbqueue
from fdbqueue.store.binding import fdb

from .. import home, json_schema, listings, terminal
from ..declarations import Argument, Group
from ..parameters import AfterName, AsCsv, AsJson, DryRun, MostOrAll, QueueName, Watch, Yes

DEAD_SECONDS = 15.0
"""How old the last sign of life of a consumer is that looks dead."""

app = Group(name="consumer", help="Look at consumers, and remove dead ones.", no_args_is_help=True)


@app.command("list")
def list_(
    name: QueueName,
    at_most: MostOrAll = None,
    after: AfterName = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """List the consumers of a queue, the most urgent first.

    Those that are registered, as workers are, and those that wait for a message. The state is the
    list that it stands on: interested ones sleep until they are notified; not interested ones can
    take nothing now; non acquiring ones only look.

    \b
    Examples:
      fdbq consumer list orders
      fdbq consumer list orders --watch 1
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> listings.Listing:
        now_ms = fdbqueue.Clock().now_ms(db)
        consumers = queue.consumers(db)
        found, more = listings.page(
            consumers, lambda each: each.id.hex(), "consumer", at_most, after
        )
        return listings.Listing(
            ["id", "name", "prio", "state", "seen", "where"],
            [
                (
                    each.id.hex(),
                    each.name,
                    each.priority,
                    json_schema.consumer_state(each),
                    f"{terminal.age(now_ms - each.seen_at_ms)} ago",
                    f"{each.host}:{each.process}" if each.host else "",
                )
                for each in found
            ],
            [json_schema.consumer_json(each) for each in found],
            f"queue {name} has no consumers",
            more,
        )

    listings.show(look, as_json, watch, as_csv)


@app.command()
def evict(
    name: QueueName,
    ids: Annotated[
        list[str] | None,
        Argument(metavar="ID…", help="Ids of consumers, as consumer list prints them."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove consumers whose process is dead, or those named by ID.

    A process is dead if it has given no sign of life for 15 s; it is removed from all queues. What
    its consumers have leased stays leased, see fdbq lease release. A consumer that is alive after
    all registers again.

    \b
    Examples:
      fdbq consumer evict orders
      fdbq consumer evict orders 0f6f3c1e5b9a4d0c8b7a695847362514 --yes
    """
    db = home.opened()
    queue = home.queue(name)
    known = {each.id.hex(): each for each in queue.consumers(db)}
    if missing := [each for each in ids or [] if each not in known]:
        raise terminal.Refused(f"queue {name!r} has no consumer {', '.join(missing)}", 1)
    chosen = [known[each] for each in ids] if ids else stale(db, [*known.values()])
    if dry_run:
        if as_json:
            names = [each.id.hex() for each in chosen]
            terminal.print_json({"queue": name, "evicted": [], "would_be_evicted": names})
        else:
            print(f"would be evicted: {terminal.count(len(chosen), 'consumer')}")
        return
    gone: list[bytes] = []
    if ids:
        terminal.confirm(
            f"Remove {terminal.count(len(chosen), 'consumer')} of queue {name!r}?", yes
        )
        for each in chosen:
            gone += queue.evict(db, each)
    else:
        while found := queue.evict(db):
            gone += found
    if as_json:
        terminal.print_json({"queue": name, "evicted": [each.hex() for each in gone]})
    else:
        print(f"evicted {terminal.count(len(gone), 'consumer')} of queue {terminal.visible(name)}")


def stale(
    db: fdb.Database, consumers: list[fdbqueue.consumers.Consumer]
) -> list[fdbqueue.consumers.Consumer]:
    """Consumers whose process looks dead."""
    now_ms = fdbqueue.Clock().now_ms(db)
    return [each for each in consumers if now_ms - each.seen_at_ms > DEAD_SECONDS * 1000]
