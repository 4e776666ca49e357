"""``fdbq queue …``: creating, listing, showing, purging and deleting queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

import fdbqueue
from fdbqueue.options import QueueOptions

from . import terminal
from .params import AsJson, NewName, QueueName, Yes

LISTED_AT_ONCE = 100
"""Queues whose depths one transaction reads."""

app = typer.Typer(
    name="queue", help="Create, list, show, purge and delete queues.", no_args_is_help=True
)


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
    as_json: AsJson = False,
) -> None:
    """Create a queue."""
    db = fdbqueue.open()
    queue = fdbqueue.Queue.create(
        db, name, levels=levels, max_attempts=max_attempts or None, lease=lease
    )
    if as_json:
        terminal.print_json({"queue": name, "options": queue.options(db).to_json()})
    else:
        print(f"created queue {terminal.visible(name)}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List all queues and how many messages are in which state."""
    found = list(_depths(fdbqueue.open()))
    if as_json:
        terminal.print_json([{"queue": name, **asdict(depth)} for name, depth in found])
    elif found:
        terminal.print_table(
            ["queue", "ready", "delayed", "leased", "dead", "done", "enqueued"],
            [(name, d.ready, d.delayed, d.leased, d.dead, d.done, d.enqueued) for name, d in found],
        )
    else:
        terminal.note("no queues: fdbq queue create makes one")


def _depths(db: fdbqueue.fdb.Database) -> Iterator[tuple[str, fdbqueue.Depth]]:
    names = fdbqueue.list_queues(db)
    for start in range(0, len(names), LISTED_AT_ONCE):
        yield from _depths_of(db, names[start : start + LISTED_AT_ONCE])


def _depths_of(db: fdbqueue.fdb.Database, names: list[str]) -> list[tuple[str, fdbqueue.Depth]]:
    @fdbqueue.fdb.transactional
    def read(tr: fdbqueue.fdb.Transaction) -> list[tuple[str, fdbqueue.Depth]]:
        found = []
        for name in names:
            try:
                found.append((name, fdbqueue.Queue(name).depth(tr)))
            except fdbqueue.QueueNotFound:  # deleted since the names were read
                continue
        return found

    return read(db)


@app.command()
def show(name: QueueName, as_json: AsJson = False) -> None:
    """Show a queue's options and its messages by priority level."""
    db = fdbqueue.open()
    queue = fdbqueue.Queue(name)
    options = queue.options(db)
    levels = queue.depths(db)
    total = sum(levels.values(), fdbqueue.Depth())
    if as_json:
        terminal.print_json(
            {
                "queue": name,
                "options": options.to_json(),
                "depth": asdict(total),
                "levels": {str(level): asdict(depth) for level, depth in sorted(levels.items())},
            }
        )
        return
    terminal.print_fields(
        [
            ("queue", name),
            ("levels", options.levels),
            ("max attempts", options.max_attempts or "no limit"),
            ("lease", f"{options.lease:g} s"),
            *((field.replace("_", " "), number) for field, number in asdict(total).items()),
        ]
    )
    if levels:
        print()
        terminal.print_table(
            ["level", "ready", "delayed", "leased", "dead", "done", "enqueued", "ready bytes"],
            [
                (level, d.ready, d.delayed, d.leased, d.dead, d.done, d.enqueued, d.ready_bytes)
                for level, d in sorted(levels.items())
            ],
        )


@app.command()
def purge(name: QueueName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove all ready messages without delivering them.

    Leased messages stay with their consumers, and dead letters stay where they are.
    """
    db = fdbqueue.open()
    queue = fdbqueue.Queue(name)
    ready = queue.depth(db).ready
    terminal.confirm(f"Remove {terminal.count(ready, 'message')} of queue {name!r}?", yes)
    gone = 0
    with terminal.progress("messages removed", ready or None) as bar:
        for gone in queue.purge(db):
            bar.update(bar.task_ids[0], completed=gone, done=gone)
    if as_json:
        terminal.print_json({"queue": name, "purged": gone})
    else:
        print(f"purged {terminal.count(gone, 'message')} of queue {terminal.visible(name)}")


@app.command()
def delete(name: QueueName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a queue and everything in it."""
    db = fdbqueue.open()
    queue = fdbqueue.Queue(name)
    depth = queue.depth(db)
    held = depth.ready + depth.delayed + depth.leased + depth.dead
    terminal.confirm(f"Delete queue {name!r} and {terminal.count(held, 'message')} in it?", yes)
    queue.delete(db)
    if as_json:
        terminal.print_json({"queue": name, "deleted": True})
    else:
        print(f"deleted queue {terminal.visible(name)}")
