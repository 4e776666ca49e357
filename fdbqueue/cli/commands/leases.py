"""``fdbq lease …``: who has which message in hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import fdbqueue

from .. import home, json_schema, listings, terminal
from ..declarations import Argument, Group, Option
from ..parameters import AsCsv, AsJson, DryRun, Most, QueueName, Watch, Yes
from . import settlement

PAGE = 1_000

app = Group(name="lease", help="Look at leases, and take messages back.", no_args_is_help=True)


@app.command("list")
def list_(
    name: QueueName,
    consumer: Annotated[
        str | None, Option(metavar="NAME", help="Only those of a consumer.")
    ] = None,
    after: Annotated[
        str | None,
        Option(metavar="TOKEN", help="Go on behind this one, as an earlier listing said."),
    ] = None,
    max_leases: Most = 1_000,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """List the leases of a queue, of those that are shown the ones that end first at the top.

    One that has lapsed is taken back by the next receive, or by fdbq sweep. One of a plan never
    lapses (see fdbq plan).

    \b
    Examples:
      fdbq lease list orders
      fdbq lease list orders --consumer billing --json
    """
    db = home.opened()
    queue = home.queue(name)

    behind = None if after is None else settlement.parse_token(after)

    def look() -> listings.Listing:
        now_ms = fdbqueue.Clock().wall_ms()
        found, cut = listings.first(_of(db, queue, consumer, behind), max_leases)
        last = found[-1].delivery.token.hex() if found else ""
        every = cut and consumer is None and behind is None
        total = queue.depth(db).leased if every else None
        found.sort(key=lambda each: (each.planned, each.delivery.expires_at_ms))
        return listings.Listing(
            ["message", "attempt", "ends in", "consumer", "token"],
            [
                (
                    each.delivery.id,
                    each.delivery.attempt,
                    _end(each, now_ms),
                    each.consumer,
                    each.delivery.token.hex(),
                )
                for each in found
            ],
            [json_schema.lease_json(each) for each in found],
            f"queue {name} has no leases",
            listings.more("lease", len(found), last, total) if cut else None,
        )

    listings.show(look, as_json, watch, as_csv)


def _end(lease: fdbqueue.LeasedMessage, now_ms: int) -> str:
    if lease.planned:
        return "never: planned"
    return "lapsed" if lease.lapsed else terminal.age(lease.delivery.expires_at_ms - now_ms)


def _of(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    consumer: str | None,
    after: bytes | None = None,
) -> Iterator[fdbqueue.LeasedMessage]:
    for each in pages(db, queue, after):
        if consumer is None or each.consumer == consumer:
            yield each


def pages(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, after: bytes | None = None
) -> Iterator[fdbqueue.LeasedMessage]:
    """All leases of a queue, or those behind a token, page after page."""
    while found := queue.leases(db, PAGE, after):
        yield from found
        after = found[-1].delivery.token
        if len(found) < PAGE:
            return


@app.command()
def release(
    name: QueueName,
    tokens: Annotated[
        list[str] | None, Argument(metavar="TOKEN…", help="Tokens of leases.")
    ] = None,
    consumer: Annotated[
        str | None, Option(metavar="NAME", help="All leases of a consumer.")
    ] = None,
    every: Annotated[bool, Option("--all", help="All leases of the queue.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take messages back from consumers: they are delivered again, the attempt does not count.

    A consumer that is still at work is not stopped by it: it finds out when it settles. Name the
    leases by TOKEN, by --consumer, or say --all; those of plans stay, see fdbq plan release.

    \b
    Examples:
      fdbq lease release orders 5f1c6a0e3b7d4c21a9b8e7f60d5c4b3a0000 --yes
      fdbq lease release orders --consumer billing --dry-run
    """
    if sum((bool(tokens), consumer is not None, every)) != 1:
        raise terminal.Refused("name the leases: by TOKEN, with --consumer, or with --all")
    given = [settlement.parse_token(each) for each in tokens or []]
    db = home.opened()
    queue = home.queue(name)
    if not given:
        given = [each.delivery.token for each in _of(db, queue, consumer) if not each.planned]
    if dry_run:
        held = sum(queue.delivery(db, each) is not None for each in given)
        if as_json:
            terminal.print_json({"queue": name, "released": 0, "would_be_released": held})
        else:
            print(f"would be released: {terminal.count(held, 'lease')}")
        return
    terminal.confirm(
        f"Take {terminal.count(len(given), 'message')} of queue {name!r} back from whoever has "
        "them in hand?",
        yes,
    )
    released, gone = settlement.settle_tokens(db, queue, given, queue.release_many)
    if as_json:
        terminal.print_json(
            {"queue": name, "released": released, "gone": [each.hex() for each in gone]}
        )
    else:
        print(f"released {terminal.count(released, 'message')}")
    if gone and tokens:
        names = ", ".join(each.hex() for each in gone)
        raise terminal.Refused(f"no lease has token {names}: it lapsed or was settled", 1)
