"""``fdbq queue list`` and ``show``: the state of queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec.structs import asdict
from typer import Argument, Option

import fdbqueue
from fdbqueue.values.options import QueueOptions

from ...errors import QueueNotFound
from .. import context, listings, terminal
from ..parameters import Limit, ListOutput, Output, QueueName, grouped
from . import options

STATES = ("ready", "delayed", "leased", "dead", "done", "enqueued")
Column = Literal["name", "ready", "delayed", "leased", "dead", "done", "enqueued"]
"""What a list of queues is sorted by."""


@grouped
def list_(
    prefix: Annotated[
        str, Argument(metavar="PREFIX", help="Only queues whose names start with this.")
    ] = "",
    sort: Annotated[
        Column,
        Option(metavar="COLUMN", help="Sort by name, or by ready, delayed, … in falling order."),
    ] = "name",
    non_empty: Annotated[
        bool, Option("--non-empty", help="Only queues that hold messages in any state.")
    ] = False,
    after: Annotated[
        str | None, Option(metavar="QUEUE", help="Continue after this one; only by name.")
    ] = None,
    limit: Limit = None,
    *,
    output: ListOutput,
) -> None:
    """List queues with the number of their messages in each state.

    Numbers within names sort by value: mail-2 comes before mail-10.

    \b
    Examples:
      fdbq queue list
      fdbq queue list mail- --non-empty --sort ready
      fdbq queue list --watch 2
      fdbq queue list --json | jq '.[] | select(.dead > 0) | .queue'
    """
    if after is not None and sort != "name":
        raise terminal.CommandError("--after works only with --sort name")
    from fdbqueue.queue.overview import natural

    db = context.connect()

    def look() -> listings.View:
        names = [each for each in context.queue_names(db) if each.startswith(prefix)]
        if after is not None:
            names = [each for each in names if natural(each) > natural(after)]
        found = [*surveyed(db, names)]
        if non_empty:
            found = [each for each in found if held(each[1].depth)]
        found.sort(key=lambda each: natural(each[0]))
        if sort != "name":
            found.sort(key=lambda each: -int(getattr(each[1].depth, sort)))
        shown, cut = listings.first(found, limit)
        more = listings.more("queue", len(shown), shown[-1][0], len(found)) if cut else None
        if prefix or non_empty or after is not None:
            return _listing(shown, "no queue matches", more)
        empty = f"no queues in {fdbqueue.describe(db)}: create one with fdbq queue create"
        return _listing(shown, empty, more)

    listings.show(look, output)


def held(depth: fdbqueue.Depth) -> int:
    """How many messages a queue holds."""
    return depth.ready + depth.delayed + depth.leased + depth.dead


def _listing(
    found: Sequence[tuple[str, fdbqueue.queue.overview.Surveyed]], empty: str, more: str | None
) -> listings.View:
    rows = [[name, *(getattr(seen.depth, state) for state in STATES)] for name, seen in found]
    headers = ["queue", *STATES]
    notes = ["unreadable" if s.unreadable else "paused" * s.options.paused for _, s in found]
    if any(notes):
        headers.append("")
        rows = [[*row, note] for row, note in zip(rows, notes, strict=True)]
    values = [
        {
            "queue": name,
            **asdict(seen.depth),
            "paused": note == "paused",
            "unreadable": note == "unreadable",
        }
        for (name, seen), note in zip(found, notes, strict=True)
    ]
    return listings.table(headers, rows, values, empty, more)


def surveyed(
    db: fdbqueue.fdb.Database, names: Sequence[str] | None = None
) -> Iterator[tuple[str, fdbqueue.queue.overview.Surveyed]]:
    """Queues by name, by default all, with their state; some hundred in each transaction."""
    from fdbqueue.queue import overview

    names = context.queue_names(db) if names is None else names
    return overview.surveyed(db, names, root=context.subspace())


def of(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> fdbqueue.queue.overview.Surveyed:
    """The state of one queue; raises ``QueueNotFound``."""
    for _, seen in surveyed(db, [queue.name]):
        return seen
    raise QueueNotFound(name=queue.name)


@grouped
def show(name: QueueName, *, output: Output) -> None:
    """Show a queue's options, and its messages by priority level.

    Only --json includes options that have their default.

    \b
    Examples:
      fdbq queue show orders --watch 1
      fdbq queue show orders --json | jq .options
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        from fdbqueue.messages.delivery import limits

        found = of(db, queue)
        staged = queue.streams.undecided(db) if found.unreadable is None else {}
        coming = None
        if found.unreadable is None and found.options.rate is not None:
            coming = queue._read(db, lambda tr: limits.next_seconds(tr, queue._scope(tr)))
        return _fields(name, found, sum(sink.rows for sink in staged.values()), coming)

    listings.show(look, output)


def _fields(
    name: str, found: fdbqueue.queue.overview.Surveyed, staged: int, coming: float | None
) -> listings.View:
    """A queue. coming: in how many seconds its rate lets the next message be taken; None if it does
    so now."""
    stored = found.options
    limit = stored.max_in_flight
    in_flight = [] if limit is None else [("in flight", f"{found.depth.leased:,} of {limit:,}")]
    paced = "now" if coming is None else f"in {coming:.3g} s"
    levels = sorted(found.levels.items())
    columns = (*STATES, "ready_bytes")
    return listings.fields(
        [
            ("queue", name),
            *([("unreadable", found.unreadable)] if found.unreadable is not None else []),
            ("levels", stored.levels),
            ("max attempts", stored.max_attempts or "no limit"),
            ("lease", f"{stored.lease:g} s"),
            *_changed_options(stored),
            *((state.replace("_", " "), count) for state, count in asdict(found.depth).items()),
            *in_flight,
            *([("next by its rate", paced)] if stored.rate is not None else []),
            *([("staged rows", f"{staged:,} (fdbq stream list)")] if staged else []),
        ],
        {
            "queue": name,
            "unreadable": found.unreadable,
            "options": stored.to_json(),
            "depth": asdict(found.depth),
            "staged": staged,
            "next_seconds": coming,
            "levels": {str(level): asdict(depth) for level, depth in levels},
        },
        listings.table(
            ["level", *(each.replace("_", " ") for each in columns)],
            [(level, *(getattr(depth, each) for each in columns)) for level, depth in levels],
            [],
            "",
        ),
    )


def _changed_options(stored: QueueOptions) -> Iterator[tuple[str, str]]:
    for name, value in stored.unusual().items():
        if name not in ("levels", "max_attempts", "lease"):  # which are always shown
            yield name if "." in name else name.replace("_", " "), options.shown(value)
