"""``fdbq top``: a live view of all queues."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from msgspec import Struct

import fdbqueue
from fdbqueue.values.model import Depth

from .. import context, durations, output, terminal
from ..parameters import flag
from ..queues import queue_list

STATES = ("ready", "waiting", "retrying", "scheduled", "leased", "dead")
COLUMNS = ("queue", *STATES, "in/s", "out/s", "oldest")
RIGHT = ("in/s", "out/s", "oldest")


class QueuesAt(Struct, frozen=True):
    """All queues at one time, by the monotonic clock."""

    at: float
    queues: Mapping[str, fdbqueue.queue.overview.Surveyed]
    ready_since_ms: Mapping[str, int]
    conflicts: float | None
    """Conflicted transactions per second; None if nobody counts them."""


def top(
    interval: float = durations.option("Time between two updates.", 2.0, least=0.2),
    once: bool = flag("Print the table once, with the rates of one interval.", "--once"),
) -> None:
    """Watch all queues live: depths, rates and the age of the oldest ready message.

    Queues with the most ready messages come first. Rates are messages per second since the
    previous update. Conflicts are those of the whole cluster; the embedded engine does not count
    them. q or Ctrl-C ends it.

    Examples:
      fdbq top --interval 1
      fdbq top --once
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise terminal.CommandError("top needs a terminal: use fdbq top --once instead")
    db = context.connect()
    store, before = fdbqueue.describe(db), _look(db)

    def look() -> output.View:
        nonlocal before
        then, before = before, _look(db)
        now, mark = before, "" if once else "(q quits)  "
        return output.View(lambda width: lines(then, now, f"{mark}{store}", width), None)

    if once:
        terminal.sleep(interval)
        print("\n".join(look().lines(terminal.width())))
    else:
        output.watch(look, interval)


def _look(db: fdbqueue.fdb.Database) -> QueuesAt:
    from fdbqueue.store import cluster_status

    found = [*queue_list.surveyed(db)]
    since, _ = queue_list.attended(db, found)
    return QueuesAt(time.monotonic(), dict(found), since, cluster_status.conflicts(db))


def lines(before: QueuesAt, now: QueuesAt, store: str, width: int | None) -> list[str]:
    """The store, totals, and a table of the queues, with the rates between two looks."""
    passed = now.at - before.at
    rows = []
    for name, seen in now.queues.items():
        old = before.queues.get(name, seen).depth
        depth = seen.depth
        rates = [
            # A queue that was deleted and made again counts from zero.
            max(0, new - old) / passed if passed else 0.0
            for new, old in ((depth.enqueued, old.enqueued), (depth.done, old.done))
        ]
        rows.append((name, seen, rates))
    rows.sort(key=lambda row: (-row[1].depth.ready, row[0]))
    total = sum((seen.depth for _, seen, _ in rows), Depth())
    totals = [
        terminal.count(len(rows), "queue"),
        *(f"{state} {getattr(total, state):,}" for state in STATES),
        *(
            f"{way} {_rate(sum(rates[n] for *_, rates in rows))}/s"
            for n, way in enumerate(("in", "out"))
        ),
    ]
    if now.conflicts is not None:
        totals.append(f"conflicts {_rate(now.conflicts)}/s")
    head = [f"fdbq top  {terminal.visible(store)}", "  ".join(totals)]
    if not rows:
        return [*head, "no queues: create one with fdbq queue create"]
    clock_ms = fdbqueue.Clock().wall_ms()
    cells = [
        [
            name + (" (unreadable)" if seen.unreadable else " (paused)" * seen.options.paused),
            *(getattr(seen.depth, state) for state in STATES),
            *map(_rate, rates),
            terminal.age(clock_ms - now.ready_since_ms[name]) if name in now.ready_since_ms else "",
        ]
        for name, seen, rates in rows
    ]
    return [*head, *terminal.table(COLUMNS, cells, RIGHT, width)]


def _rate(number: float) -> str:
    return f"{number:.1f}" if 0 < number < 10 else f"{number:,.0f}"
