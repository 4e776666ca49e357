"""``fdbq queue …``: creating, listing, showing, changing and deleting queues."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from enum import Enum
from typing import Annotated, Any

import fdbqueue
from fdbqueue.values.options import QueueOptions

from ...errors import QueueNotFound
from .. import durations, home, listings, terminal
from .. import queue_options as options
from ..declarations import Argument, Group, Option
from ..parameters import MOST, AsCsv, AsJson, DryRun, NewNames, QueueName, QueueNames, Watch, Yes
from . import bulk

LISTED_AT_ONCE = 1_000
"""Queues that one transaction surveys."""

PAUSED, UNREADABLE = "paused", "unreadable"


class Column(Enum):
    """What queues are sorted by."""

    NAME = "name"
    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    DEAD = "dead"
    DONE = "done"
    ENQUEUED = "enqueued"


app = Group(
    name="queue",
    help="Create, list, show, change, empty, check and delete queues.",
    no_args_is_help=True,
)

Setting = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Any option, as fdbq queue set; several times."),
]


@app.command()
def create(
    names: NewNames,
    levels: Annotated[
        int, Option(metavar="N", help="How many strict priorities it tells apart, 1 to 256.")
    ] = QueueOptions().levels,
    max_attempts: Annotated[
        int,
        Option(metavar="N", help="Deliveries that may fail before a message is dead; 0: no limit."),
    ] = QueueOptions().max_attempts or 0,
    lease: Annotated[
        float,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Seconds that a delivery is leased for, unless it says so itself.",
        ),
    ] = QueueOptions().lease,
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Create queues, all with the same options: all, or where one of them exists none.

    \b
    Examples:
      fdbq queue create orders
      fdbq queue create mail letters
      fdbq queue create mail --levels 3 --max-attempts 10 --set history_seconds=86400
      fdbq queue create jobs --set max_messages=100000 --set when_full=block
    """
    given = {
        "levels": levels,
        "max_attempts": max_attempts or None,
        "lease": lease,
        **options.parse(setting or []),
    }
    from fdbqueue.store.binding import DEFAULT  # decided by --store, so not before

    path = DEFAULT.path
    made = path is not None and not os.path.exists(path)
    db = home.opened(create=True)
    queues = _created(db, names, given)
    if made:
        terminal.note(f"{path} is a new store: there was none")
    if as_json:
        bulk.print_told(
            [{"queue": each.name, "options": each.options(db).to_json()} for each in queues]
        )
    for each in () if as_json else queues:
        print(f"created queue {terminal.visible(each.name)}")


def _created(
    db: fdbqueue.fdb.Database, names: Sequence[str], options: dict[str, Any]
) -> list[fdbqueue.Queue]:
    """Create queues; several in one transaction."""
    unlike = [*dict.fromkeys(names)]
    if len(unlike) == 1:
        return [fdbqueue.Queue.create(db, unlike[0], root=home.space(), **options)]

    def make(tr: fdbqueue.fdb.Transaction) -> list[fdbqueue.Queue]:
        return [fdbqueue.Queue.create(tr, each, root=home.space(), **options) for each in unlike]

    return fdbqueue.transactional(make)(db)


@app.command("set")
def set_(
    name: QueueName,
    settings: Annotated[
        list[str],
        Argument(metavar="NAME=VALUE…", help="Options to change; none is for no value."),
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
    stored = home.queue(name).set_options(home.opened(), **changes)
    if as_json:
        terminal.print_json({"queue": name, "options": stored.to_json()})
    else:
        for option in changes:
            print(f"{option} = {_shown(stored.to_json()[option])}")


@app.command("list")
def list_(
    prefix: Annotated[
        str, Argument(metavar="PREFIX", help="Only queues whose names begin with this.")
    ] = "",
    sort: Annotated[
        Column, Option(metavar="COLUMN", help="By name, or by ready, delayed, …: most first.")
    ] = Column.NAME,
    non_empty: Annotated[
        bool, Option("--non-empty", help="Only those that hold a message of some kind.")
    ] = False,
    after: Annotated[
        str | None, Option(metavar="QUEUE", help="Go on behind this one; sorted by name alone.")
    ] = None,
    max_queues: Annotated[int | None, Option("--max", metavar="N", min=1, help=MOST)] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """List queues and how many messages are in which state.

    By name, numbers in names by their value: mail-2 before mail-10.

    \b
    Examples:
      fdbq queue list
      fdbq queue list mail- --non-empty --sort ready
      fdbq queue list --watch 2
      fdbq queue list --json | jq '.[] | select(.dead > 0) | .queue'
    """
    if after is not None and sort is not Column.NAME:
        raise terminal.Refused("--after goes with --sort name alone")
    db = home.opened()

    def look() -> listings.Listing:
        names = [each for each in home.names(db) if each.startswith(prefix)]
        if after is not None:
            names = [each for each in names if natural(each) > natural(after)]
        found = [(name, seen.depth, _condition(seen)) for name, seen in surveyed(db, names)]
        if non_empty:
            found = [each for each in found if held(each[1])]
        found.sort(key=lambda each: natural(each[0]))
        if sort is not Column.NAME:
            found.sort(key=lambda each: -int(getattr(each[1], sort.value)))
        shown, cut = listings.first(found, max_queues)
        last = shown[-1][0] if shown else ""
        more = listings.more("queue", len(shown), last, len(found)) if cut else None
        every = not prefix and not non_empty and after is None
        empty = (
            f"no queues in {fdbqueue.describe(db)}: fdbq queue create makes one"
            if every
            else "no queue is like that"
        )
        return replace(_listing(shown, empty), more=more)

    listings.show(look, as_json, watch, as_csv)


def natural(name: str) -> list[tuple[int, int, str]]:
    """What names are sorted by: the numbers in them by their value."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(0, int(part), part) if part[0] in "0123456789" else (1, 0, part) for part in parts]


def held(depth: fdbqueue.Depth) -> int:
    """How many messages a queue holds."""
    return depth.ready + depth.delayed + depth.leased + depth.dead


def _listing(found: Sequence[tuple[str, fdbqueue.Depth, str]], empty: str) -> listings.Listing:
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
    return listings.Listing(headers, rows, values, empty)


def _condition(seen: fdbqueue.queue.overview.Surveyed) -> str:
    if seen.unreadable is not None:
        return UNREADABLE
    return PAUSED if seen.options.paused else ""


def surveyed(
    db: fdbqueue.fdb.Database, names: Sequence[str] | None = None
) -> Iterator[tuple[str, fdbqueue.queue.overview.Surveyed]]:
    """These queues, or all, in the order of their names, some hundred from each transaction."""
    names = home.names(db) if names is None else names
    for start in range(0, len(names), LISTED_AT_ONCE):
        yield from fdbqueue.survey(
            db, names[start : start + LISTED_AT_ONCE], root=home.space()
        ).items()


@app.command()
def show(name: QueueName, as_json: AsJson = False, watch: Watch = None) -> None:
    """Show a queue's options and its messages by priority level.

    Options that have their default are only shown with --json.

    \b
    Examples:
      fdbq queue show orders --watch 1
      fdbq queue show orders --json | jq .options
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> listings.Fields:
        from fdbqueue.queue.bulk.sinks import undecided_rows

        found = _look(db, queue)
        staged = undecided_rows(db, queue) if found.unreadable is None else {}
        return _shown_queue(name, found, sum(sink.rows for sink in staged.values()))

    listings.show(look, as_json, watch)


def _look(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> fdbqueue.queue.overview.Surveyed:
    found = fdbqueue.survey(db, [queue.name], root=home.space()).get(queue.name)
    if found is None:
        raise QueueNotFound(name=queue.name)
    return found


def _shown_queue(
    name: str, found: fdbqueue.queue.overview.Surveyed, staged: int
) -> listings.Fields:
    stored, total = found.options, found.depth
    levels = sorted(found.levels.items())
    return listings.Fields(
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
        listings.Listing(
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
    home.queue(name).pause(home.opened())
    _told(name, as_json, "paused", True)


@app.command()
def resume(name: QueueName, as_json: AsJson = False) -> None:
    """End a pause, and wake the consumers that wait.

    \b
    Example:
      fdbq queue resume orders
    """
    home.queue(name).resume(home.opened())
    _told(name, as_json, "paused", False)


def _told(name: str, as_json: bool, field: str, value: bool) -> None:
    if as_json:
        terminal.print_json({"queue": name, field: value})
    else:
        print(f"{'paused' if value else 'resumed'} queue {terminal.visible(name)}")


@app.command()
def delete(
    names: QueueNames, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete queues and everything in them.

    \b
    Examples:
      fdbq queue delete mail letters --yes
      fdbq queue delete orders --dry-run
      fdbq queue delete orders --yes
    """
    db = home.opened()
    queues = [home.queue(name) for name in dict.fromkeys(names)]
    # A look also reads a queue that cannot be used.
    counts = {queue.name: held(_look(db, queue).depth) for queue in queues}
    messages = terminal.count(sum(counts.values()), "message")
    if dry_run:
        if as_json:
            bulk.print_told(
                [
                    {"queue": name, "deleted": False, "would_delete": count}
                    for name, count in counts.items()
                ]
            )
        else:
            print(f"would delete {bulk.named(counts, shown=True)} and {messages}")
        return
    what = "it" if len(queues) == 1 else "them"
    terminal.confirm(f"Delete {bulk.named(counts)} and {messages} in {what}?", yes)
    for queue in queues:
        queue.delete(db)
        if not as_json:
            print(f"deleted queue {terminal.visible(queue.name)}")
    if as_json:
        bulk.print_told([{"queue": name, "deleted": True} for name in counts])


for command in (bulk.purge, bulk.move, bulk.copy, bulk.verify):
    app.command()(command)
