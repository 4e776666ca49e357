"""``fdbq lease …``: who has which message in hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

import fdbqueue

from . import listing, settling, shapes, terminal
from .params import AsJson, DryRun, QueueName, Watch, Yes

PAGE = 1_000

app = typer.Typer(
    name="lease", help="Look at leases, and take messages back.", no_args_is_help=True
)


@app.command("list")
def list_(
    name: QueueName,
    consumer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of a consumer.")
    ] = None,
    max_leases: Annotated[
        int, typer.Option("--max", metavar="N", min=1, help="Leases at most.")
    ] = 1_000,
    as_json: AsJson = False,
    watch: Watch = None,
) -> None:
    """List the leases of a queue, those that end first at the top.

    One that has lapsed is taken back by the next receive, or by fdbq sweep. One of a plan never
    lapses (see fdbq plan).

    \b
    Examples:
      fdbq lease list orders
      fdbq lease list orders --consumer billing --json
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)

    def look() -> listing.Listing:
        now_ms = fdbqueue.clock.Clock().wall_ms()
        found = sorted(
            islice(_of(db, queue, consumer), min(max_leases, sys.maxsize)),
            key=lambda each: (each.planned, each.delivery.expires_at_ms),
        )
        return listing.Listing(
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
            [shapes.lease_json(each) for each in found],
            f"queue {name} has no leases",
        )

    listing.show(look, as_json, watch)


def _end(lease: fdbqueue.LeasedMessage, now_ms: int) -> str:
    if lease.planned:
        return "never: planned"
    return "lapsed" if lease.lapsed else terminal.age(lease.delivery.expires_at_ms - now_ms)


def _of(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, consumer: str | None
) -> Iterator[fdbqueue.LeasedMessage]:
    for each in pages(db, queue):
        if consumer is None or each.consumer == consumer:
            yield each


def pages(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> Iterator[fdbqueue.LeasedMessage]:
    """All leases of a queue, page after page."""
    after = None
    while found := queue.leases(db, PAGE, after):
        yield from found
        after = found[-1].delivery.token
        if len(found) < PAGE:
            return


@app.command()
def release(
    name: QueueName,
    tokens: Annotated[
        list[str] | None, typer.Argument(metavar="TOKEN…", help="Tokens of leases.")
    ] = None,
    consumer: Annotated[
        str | None, typer.Option(metavar="NAME", help="All leases of a consumer.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All leases of the queue.")] = False,
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
    given = [settling.parse_token(each) for each in tokens or []]
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)
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
    released, gone = settling.settle_tokens(db, queue, given, queue.release_many)
    if as_json:
        terminal.print_json(
            {"queue": name, "released": released, "gone": [each.hex() for each in gone]}
        )
    else:
        print(f"released {terminal.count(released, 'message')}")
    if gone and tokens:
        names = ", ".join(each.hex() for each in gone)
        raise terminal.Refused(f"no lease has token {names}: it lapsed or was settled", 1)
