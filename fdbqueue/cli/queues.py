"""``fdbq queue …``: creating, listing, showing, changing and deleting queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

import fdbqueue
from fdbqueue.options import QueueOptions

from ..errors import QueueNotFound
from . import bulk, listing, options, terminal
from .params import AsJson, DryRun, NewName, QueueName, Watch, Yes

LISTED_AT_ONCE = 1_000
"""Queues that one transaction surveys."""

PAUSED, UNREADABLE = "paused", "unreadable"

app = typer.Typer(
    name="queue",
    help="Create, list, show, change, empty, check and delete queues.",
    no_args_is_help=True,
)

Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any option, as fdbq queue set; several times."
    ),
]


@app.command()
def create(
    name: NewName,
    levels: Annotated[
        int, typer.Option(metavar="N", help="How many strict priorities it tells apart, 1 to 256.")
    ] = QueueOptions().levels,
    max_attempts: Annotated[
        int,
        typer.Option(
            metavar="N", help="Deliveries that may fail before a message is dead; 0: no limit."
        ),
    ] = QueueOptions().max_attempts or 0,
    lease: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Seconds that a delivery is leased for, unless it says so itself.",
        ),
    ] = QueueOptions().lease,
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Create a queue.

    \b
    Examples:
      fdbq queue create orders
      fdbq queue create mail --levels 3 --max-attempts 10 --set history_seconds=86400
      fdbq queue create jobs --set max_messages=100000 --set when_full=block
    """
    given = {
        "levels": levels,
        "max_attempts": max_attempts or None,
        "lease": lease,
        **options.parse(setting or []),
    }
    db = fdbqueue.open()
    queue = fdbqueue.Queue.create(db, name, **given)
    if as_json:
        terminal.print_json({"queue": name, "options": queue.options(db).to_json()})
    else:
        print(f"created queue {terminal.visible(name)}")


@app.command("set")
def set_(
    name: QueueName,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE…", help="Options to change; none is for no value."),
    ],
    as_json: AsJson = False,
) -> None:
    """Change options of a queue; the others stay.

    Consumers and producers follow at once. The number of levels cannot change. A backoff is JSON:
    the name of a wait strategy of tenacity, and its parameters.

    \b
    Options:
      max_attempts, lease, backoff, expired, dead_letter_queue, dedup_window, history_seconds,
      contention, window, max_payload, compression, compress_from, max_messages, max_bytes,
      when_full, resume_at, dropped, auto_delete, auto_delete_after

    \b
    Examples:
      fdbq queue set orders max_attempts=10 lease=60
      fdbq queue set orders max_messages=none
      fdbq queue set orders 'backoff={"wait": "wait_exponential_jitter", "max": 60}'
    """
    changes = options.parse(settings)
    stored = fdbqueue.Queue(name).set_options(fdbqueue.open(create=False), **changes)
    if as_json:
        terminal.print_json({"queue": name, "options": stored.to_json()})
    else:
        for option in changes:
            print(f"{option} = {_shown(stored.to_json()[option])}")


@app.command("list")
def list_(as_json: AsJson = False, watch: Watch = None) -> None:
    """List all queues and how many messages are in which state.

    \b
    Examples:
      fdbq queue list
      fdbq queue list --watch 2
      fdbq queue list --json | jq '.[] | select(.dead > 0) | .queue'
    """
    db = fdbqueue.open(create=False)
    listing.show(lambda: _listing(db), as_json, watch)


def _listing(db: fdbqueue.fdb.Database) -> listing.Listing:
    found = [(name, seen.depth, _condition(seen)) for name, seen in surveyed(db)]
    states = ["ready", "delayed", "leased", "dead", "done", "enqueued"]
    headers = ["queue", *states]
    rows: list[tuple[object, ...]] = [
        (name, *(getattr(depth, state) for state in states)) for name, depth, _ in found
    ]
    if any(condition for _, _, condition in found):
        headers.append("")
        rows = [(*row, condition) for row, (_, _, condition) in zip(rows, found, strict=True)]
    values = [
        {
            "queue": name,
            **asdict(depth),
            "paused": condition == PAUSED,
            "unreadable": condition == UNREADABLE,
        }
        for name, depth, condition in found
    ]
    return listing.Listing(
        headers, rows, values, f"no queues in {fdbqueue.describe(db)}: fdbq queue create makes one"
    )


def _condition(seen: fdbqueue.surveying.Surveyed) -> str:
    if seen.unreadable is not None:
        return UNREADABLE
    return PAUSED if seen.options.paused else ""


def surveyed(db: fdbqueue.fdb.Database) -> Iterator[tuple[str, fdbqueue.surveying.Surveyed]]:
    """All queues, in the order of their names, some hundred from each transaction."""
    names = fdbqueue.list_queues(db)
    for start in range(0, len(names), LISTED_AT_ONCE):
        yield from fdbqueue.survey(db, names[start : start + LISTED_AT_ONCE]).items()


@app.command()
def show(name: QueueName, as_json: AsJson = False, watch: Watch = None) -> None:
    """Show a queue's options and its messages by priority level.

    Options that have their default are only shown with --json.

    \b
    Examples:
      fdbq queue show orders --watch 1
      fdbq queue show orders --json | jq .options
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)

    def look() -> listing.Fields:
        from fdbqueue.sinks import undecided_rows

        found = _look(db, queue)
        staged = undecided_rows(db, queue) if found.unreadable is None else {}
        return _shown_queue(name, found, sum(sink.rows for sink in staged.values()))

    listing.show(look, as_json, watch)


def _look(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> fdbqueue.surveying.Surveyed:
    found = fdbqueue.survey(db, [queue.name]).get(queue.name)
    if found is None:
        raise QueueNotFound(name=queue.name)
    return found


def _shown_queue(name: str, found: fdbqueue.surveying.Surveyed, staged: int) -> listing.Fields:
    stored, total = found.options, found.depth
    levels = sorted(found.levels.items())
    return listing.Fields(
        [
            ("queue", name),
            *([(UNREADABLE, found.unreadable)] if found.unreadable is not None else []),
            ("levels", stored.levels),
            ("max attempts", stored.max_attempts or "no limit"),
            ("lease", f"{stored.lease:g} s"),
            *_others(stored),
            *((field.replace("_", " "), number) for field, number in asdict(total).items()),
            *([("staged rows", f"{staged:,} (fdbq sink list)")] if staged else []),
        ],
        {
            "queue": name,
            "unreadable": found.unreadable,
            "options": stored.to_json(),
            "depth": asdict(total),
            "staged": staged,
            "levels": {str(level): asdict(depth) for level, depth in levels},
        },
        listing.Listing(
            ["level", "ready", "delayed", "leased", "dead", "done", "enqueued", "ready bytes"],
            [
                (level, d.ready, d.delayed, d.leased, d.dead, d.done, d.enqueued, d.ready_bytes)
                for level, d in levels
            ],
            [],
            f"queue {name} never had a message",
        ),
    )


def _others(stored: QueueOptions) -> Iterator[tuple[str, str]]:
    default = QueueOptions()
    for each in fields(QueueOptions):
        value = getattr(stored, each.name)
        if each.name not in ("levels", "max_attempts", "lease") and value != getattr(
            default, each.name
        ):
            yield each.name.replace("_", " "), _shown(value)


def _shown(value: Any) -> str:
    return terminal.dumps(value) if isinstance(value, dict) else terminal.cell(value)


@app.command()
def pause(name: QueueName, as_json: AsJson = False) -> None:
    """Let nobody receive from a queue; enqueues go on.

    Consumers wait as if it was empty. What is leased can be settled.

    \b
    Example:
      fdbq queue pause orders
    """
    fdbqueue.Queue(name).pause(fdbqueue.open(create=False))
    _told(name, as_json, "paused", True)


@app.command()
def resume(name: QueueName, as_json: AsJson = False) -> None:
    """End a pause, and wake the consumers that wait.

    \b
    Example:
      fdbq queue resume orders
    """
    fdbqueue.Queue(name).resume(fdbqueue.open(create=False))
    _told(name, as_json, "paused", False)


def _told(name: str, as_json: bool, field: str, value: bool) -> None:
    if as_json:
        terminal.print_json({"queue": name, field: value})
    else:
        print(f"{'paused' if value else 'resumed'} queue {terminal.visible(name)}")


@app.command()
def delete(
    name: QueueName, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete a queue and everything in it.

    \b
    Examples:
      fdbq queue delete orders --dry-run
      fdbq queue delete orders --yes
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)
    depth = _look(db, queue).depth  # which also reads a queue that cannot be used
    held = depth.ready + depth.delayed + depth.leased + depth.dead
    if dry_run:
        if as_json:
            terminal.print_json({"queue": name, "deleted": False, "would_delete": held})
        else:
            print(f"would delete queue {terminal.visible(name)} and "
                  f"{terminal.count(held, 'message')}")  # fmt: skip
        return
    terminal.confirm(f"Delete queue {name!r} and {terminal.count(held, 'message')} in it?", yes)
    queue.delete(db)
    if as_json:
        terminal.print_json({"queue": name, "deleted": True})
    else:
        print(f"deleted queue {terminal.visible(name)}")


for command in (bulk.purge, bulk.move, bulk.copy, bulk.verify):
    app.command()(command)
