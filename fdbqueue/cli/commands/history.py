"""``fdbq history …``: what became of messages, for queues that keep a history."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Annotated

import fdbqueue

from .. import home, json_schema, terminal
from ..declarations import Group, Option
from ..parameters import AsJson, QueueName

PAGE = 5_000
FOLLOW_SECONDS = 0.5

app = Group(
    name="history",
    help="Follow or export the transitions of messages, if the queue keeps them.",
    no_args_is_help=True,
)


@app.command()
def tail(
    name: QueueName,
    max_events: Annotated[
        int, Option("--max", metavar="N", min=0, help="Of the past, at most the last N.")
    ] = 20,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the last transitions of a queue's messages, the oldest first.

    A queue keeps a history if its option history_seconds says for how long.

    \b
    Examples:
      fdbq queue set orders history_seconds=86400
      fdbq history tail orders
      fdbq history tail orders --max 0 --follow --json
    """
    db = home.opened()
    queue = home.queue(name)
    check(db, queue)
    try:
        last = _past(db, queue, max_events, as_json, follow)
        while follow:
            terminal.flush()
            for event in _events(db, queue, last):
                _print(event, as_json)
                last = event.stamp
            terminal.flush()
            time.sleep(FOLLOW_SECONDS)
    except KeyboardInterrupt:
        if not follow:
            raise


def _past(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, max_events: int, as_json: bool, follow: bool
) -> bytes:
    """Print the last events that there are; returns the stamp of the last one."""
    last = b""
    kept: deque[fdbqueue.Event] = deque(maxlen=min(max_events, sys.maxsize))
    for event in _events(db, queue, b""):
        kept.append(event)
        last = event.stamp
    for event in kept:
        _print(event, as_json)
    if not kept and not follow:
        terminal.note(f"queue {queue.name} has no history yet")
    return last


@app.command()
def export(
    name: QueueName,
    after: Annotated[
        str | None,
        Option(metavar="STAMP", help="Only what follows a line with this stamp."),
    ] = None,
) -> None:
    """Print the whole history of a queue as JSON lines, the oldest first.

    \b
    Examples:
      fdbq history export orders > orders-history.jsonl
      fdbq history export orders --after "$(tail -n1 orders-history.jsonl | jq -r .stamp)"
    """
    try:
        stamp = bytes.fromhex(after or "")
    except ValueError:
        raise terminal.Refused(f"--after {after}: a stamp is hexadecimal") from None
    db = home.opened()
    queue = home.queue(name)
    check(db, queue)
    printed = 0
    with terminal.progress("lines", None) as bar:
        for event in _events(db, queue, stamp):
            terminal.print_json(json_schema.event_json(event))
            printed += 1
            if printed % PAGE == 0:
                bar.update(bar.task_ids[0], done=printed)
    if not printed:
        terminal.note(f"queue {name} has no history after that" if after else
                      f"queue {name} has no history yet")  # fmt: skip


def check(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> None:
    """Refuse a queue that keeps no history, and has none of before."""
    if queue.options(db).history_seconds is None and not queue.history(db, 1):
        raise terminal.Refused(
            f"queue {queue.name!r} keeps no history: "
            f"fdbq queue set {shlex.quote(queue.name)} history_seconds=86400",
            1,
        )


def _events(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, after: bytes
) -> Iterator[fdbqueue.Event]:
    while found := queue.history(db, PAGE, after):
        yield from found
        after = found[-1].stamp
        if len(found) < PAGE:
            return


def _print(event: fdbqueue.Event, as_json: bool) -> None:
    if as_json:
        terminal.print_json(json_schema.event_json(event))
        return
    consumer = f"  {terminal.visible(event.consumer)}" if event.consumer else ""
    print(f"{json_schema.when(event.at_ms)}  {event.transition:<16}  {event.id}"
          f"  attempt {event.attempt}{consumer}")  # fmt: skip
