"""``fdbq queue list`` and ``show``: the state of queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec.structs import asdict

import fdbqueue
from fdbqueue.values.options import QueueOptions

from ...errors import QueueNotFound
from .. import context, json_schema, listings, output, terminal
from ..output import Listed, Shown, View
from ..parameters import Limit, QueueName, argument, flag, option
from . import queue_options, worker_list

BATCH = 200
"""Queues whose oldest messages and consumers are read in one transaction."""
STATES = ("ready", "waiting", "retrying", "scheduled", "leased", "dead", "done")
Column = Literal["name", "ready", "waiting", "retrying", "scheduled", "leased", "dead", "done"]
"""What a list of queues is sorted by."""


def list_(
    prefix: str = argument("PREFIX", "Only queues whose names start with this.", ""),
    sort: Column = option(
        "COLUMN", "Sort by name, or by ready, waiting, … in falling order.", "name"
    ),
    non_empty: bool = flag("Only queues that hold messages in any state.", "--non-empty"),
    after: str | None = option("QUEUE", "Continue after this one; only by name."),
    limit: Limit = None,
) -> Listed:
    """List queues with the number of their messages in each state.

    Numbers within names sort by value: mail-2 comes before mail-10.

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

    def look() -> View:
        names = [each for each in context.queue_names(db) if each.startswith(prefix)]
        if after is not None:
            names = [each for each in names if natural(each) > natural(after)]
        found = [*surveyed(db, names)]
        if non_empty:
            found = [each for each in found if held(each[1].depth)]
        # By name first: sorting is stable, and so queues of equal depth stay in the order of their
        # names.
        found.sort(key=lambda each: natural(each[0]))
        if sort != "name":
            found.sort(key=lambda each: -int(getattr(each[1].depth, sort)))
        shown, cut = listings.first(found, limit)
        more = listings.more("queue", len(shown), shown[-1][0], len(found)) if cut else None
        empty = "no queue matches"
        if not (prefix or non_empty or after is not None):
            empty = f"no queues in {fdbqueue.describe(db)}: create one with fdbq queue create"
        return _listing(db, shown, empty, more)

    return look


def held(depth: fdbqueue.Depth) -> int:
    """How many messages a queue holds."""
    return depth.unsettled + depth.dead


def _listing(
    db: fdbqueue.fdb.Database,
    found: Sequence[tuple[str, fdbqueue.queue.overview.Surveyed]],
    empty: str,
    more: str | None,
) -> View:
    since, workers = attended(db, found)
    now_ms = fdbqueue.Clock().wall_ms()
    rows, values, notes = [], [], []
    for name, seen in found:
        since_ms, counts = since.get(name), [getattr(seen.depth, state) for state in STATES]
        oldest = "" if since_ms is None else terminal.age(now_ms - since_ms)
        paused = not seen.unreadable and seen.options.paused
        notes.append("unreadable" if seen.unreadable else "paused" * paused)
        rows.append([name, counts[0], oldest, *counts[1:], workers.get(name, 0)])
        values.append(
            {
                "queue": name,
                **asdict(seen.depth),
                "ready_since": None if since_ms is None else json_schema.when(since_ms),
                "workers": workers.get(name, 0),
                "paused": paused,
                "unreadable": bool(seen.unreadable),
            }
        )
    headers = ["queue", "ready", "oldest", *STATES[1:], "workers"]
    if any(notes):
        headers, rows = (
            [*headers, ""],
            [[*row, note] for row, note in zip(rows, notes, strict=True)],
        )
    return output.table(headers, rows, values, empty, more)


def attended(
    db: fdbqueue.fdb.Database, found: Sequence[tuple[str, fdbqueue.queue.overview.Surveyed]]
) -> tuple[dict[str, int], dict[str, int]]:
    """Since when the oldest ready message of each queue waits, by the wall clock in milliseconds;
    and how many consumers take messages. Some hundred queues in each transaction."""
    from fdbqueue.queue import overview

    since: dict[str, int] = {}
    workers: dict[str, int] = {}
    for start in range(0, len(found), BATCH):
        some = found[start : start + BATCH]
        since |= overview.ready_since_ms(db, some, root=context.subspace())
        workers |= overview.workers(db, [name for name, _ in some], root=context.subspace())
    return since, workers


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


def show(name: QueueName) -> Shown:
    """Show a queue's options, its messages by priority level, and what waits for what.

    Of keys and limits for which messages wait, those with the most are shown. Only --json includes
    options that have their default.

    Examples:
      fdbq queue show orders --watch 1
      fdbq queue show orders --json | jq .options
    """
    db, queue = context.open_queue(name)
    return lambda: _shown(db, queue)


def _shown(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> View:
    """A queue: of one that cannot be read, only what is known of it."""
    from fdbqueue.messages.delivery import queue_limits
    from fdbqueue.queue import overview
    from fdbqueue.queue.admin import backlogs
    from fdbqueue.queue.internals import Internals

    found, name, now_ms = of(db, queue), queue.name, fdbqueue.Clock().wall_ms()
    stored, inner = found.options, Internals(queue)
    # In how many seconds the rate lets the next message be taken; None if it does so now.
    coming: float | None = None
    staged, waits, producing = 0, list[backlogs.WaitingMessages](), list[str]()
    if found.unreadable is None:
        staged = sum(sink.rows for sink in queue.streams.undecided(db).values())
        if stored.rate is not None:
            coming = inner.read(db, lambda tr: queue_limits.next_seconds(tr, inner.scope(tr)))
        waits = backlogs.backlogs(db, queue) if found.depth.waiting else []
        processes = overview.processes(db, root=context.subspace())
        producing = worker_list.producing(processes, name, now_ms)
    limit, levels = stored.max_in_flight, sorted(found.levels.items())
    in_flight = [] if limit is None else [("in flight", f"{found.depth.leased:,} of {limit:,}")]
    paced = "now" if coming is None else f"in {coming:.3g} s"
    columns = (*STATES, "ready_bytes")
    headers = ["level", *(each.replace("_", " ") for each in columns)]
    rows = [(level, *(getattr(depth, each) for each in columns)) for level, depth in levels]
    return output.fields(
        [
            ("queue", name),
            *([("unreadable", found.unreadable)] if found.unreadable is not None else []),
            ("levels", stored.levels),
            ("max attempts", stored.max_attempts or "no limit"),
            ("lease", f"{stored.lease:g} s"),
            *_changed_options(stored, found.pause),
            *([("paused", paused(found.pause, now_ms))] if found.pause else []),
            *((state.replace("_", " "), count) for state, count in asdict(found.depth).items()),
            *in_flight,
            *([("next by its rate", paced)] if stored.rate is not None else []),
            *([("staged rows", f"{staged:,} (fdbq stream list)")] if staged else []),
            *(("waits for room", each) for each in producing),
            *((each.gate, f"{each.waiting:,} {each.why}") for each in waits),
        ],
        {
            "queue": name,
            "unreadable": found.unreadable,
            "options": stored.to_json(),
            "depth": asdict(found.depth),
            "pause": json_schema.fields(found.pause, "since_ms", "by") if found.pause else None,
            "staged": staged,
            "next_seconds": coming,
            "waits": [asdict(each) for each in waits],
            "producing": producing,
            "levels": {str(level): asdict(depth) for level, depth in levels},
        },
        output.table(headers, rows, [], ""),
    )


def paused(pause: fdbqueue.schema.catalogue.Pause, now_ms: int) -> str:
    """For how long a queue is paused, and by whom, if that is known."""
    by = f", by {pause.by}" if pause.by else ""
    return f"for {terminal.age(now_ms - pause.since_ms)}{by}"


def _changed_options(stored: QueueOptions, pause: object) -> Iterator[tuple[str, str]]:
    for name, value in stored.unusual().items():
        # The first are always shown, and of a pause what is known of it.
        if name not in ("levels", "max_attempts", "lease", "paused" * bool(pause)):
            yield name if "." in name else name.replace("_", " "), queue_options.shown(value)
