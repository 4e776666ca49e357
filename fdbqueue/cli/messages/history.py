"""``fdbq history …``: the transitions of messages, for queues that keep a history."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Annotated

from typer import Option, Typer

import fdbqueue

from .. import context, json_schema, terminal
from ..parameters import AsJson, QueueName

PAGE = 5_000
FOLLOW_SECONDS = 0.5

app = Typer(name="history", help="Follow or export the history of messages.", no_args_is_help=True)


@app.command()
def tail(
    name: QueueName,
    max_events: Annotated[
        int, Option("--max", metavar="N", min=0, help="Start with the last N transitions.")
    ] = 20,
    follow: Annotated[
        bool,
        Option("--follow", "-f", help="Print new transitions as they happen, until Ctrl-C."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the last transitions of messages, oldest first.

    A queue keeps a history for as long as its option history_seconds says.

    \b
    Examples:
      fdbq queue set orders history_seconds=86400
      fdbq history tail orders
      fdbq history tail orders --max 0 --follow --json
    """
    db, queue = context.open_queue(name)
    check_kept(db, queue)
    try:
        last = b""
        kept: deque[fdbqueue.Event] = deque(maxlen=min(max_events, sys.maxsize))
        for event in _events(db, queue, last):
            kept.append(event)
            last = event.stamp
        for event in kept:
            _print(event, as_json)
        if not kept and not follow:
            terminal.note(f"queue {name} has no history yet")
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


@app.command()
def export(
    name: QueueName,
    after: Annotated[
        str | None,
        Option(metavar="STAMP", help="Only what follows the line with this stamp."),
    ] = None,
) -> None:
    """Print the whole history as JSON lines, oldest first.

    \b
    Examples:
      fdbq history export orders > orders-history.jsonl
      fdbq history export orders --after "$(tail -n1 orders-history.jsonl | jq -r .stamp)"
    """
    try:
        stamp = bytes.fromhex(after or "")
    except ValueError:
        raise terminal.CommandError(f"--after {after}: a stamp is hexadecimal") from None
    db, queue = context.open_queue(name)
    check_kept(db, queue)
    printed = 0
    with terminal.progress("lines") as update:
        for event in _events(db, queue, stamp):
            terminal.print_json(json_schema.event_json(event))
            printed += 1
            if printed % PAGE == 0:
                update(printed)
    if not printed:
        terminal.note(f"queue {name} has no history {'after that stamp' if after else 'yet'}")


def check_kept(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> None:
    """Raise ``CommandError`` if a queue keeps no history and has none from earlier."""
    if queue.options(db).history_seconds is None and not queue.history(db, 1):
        raise terminal.CommandError(
            f"queue {queue.name!r} keeps no history. To keep it for a day: "
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
