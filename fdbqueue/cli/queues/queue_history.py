"""``fdbq queue history``: the transitions of messages, for queues that keep a history."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator

import fdbqueue

from .. import context, json_schema, terminal
from ..output import AsJson
from ..parameters import QueueName, flag, option

PAGE = 5_000
FOLLOW_SECONDS = 0.5


def history(
    name: QueueName,
    max_events: int | None = option("N", "Show the last N; by default 20.", None, "--max", min=0),
    every: bool = flag("Show the whole history.", "--all"),
    after: str | None = option("STAMP", "Show all that follows the line with this stamp."),
    follow: bool = flag("Print new transitions as they happen, until Ctrl-C.", "--follow", "-f"),
    as_json: AsJson = False,
) -> None:
    """Show the last transitions of messages, or all of them, oldest first.

    A queue keeps a history for as long as its option history_seconds says. With --json, each
    transition is an object on a line.

    Examples:
      fdbq queue set orders history_seconds=86400
      fdbq queue history orders
      fdbq queue history orders --max 0 --follow --json
      fdbq queue history orders --all --json > orders-history.jsonl
      fdbq queue history orders --json --after "$(tail -n1 orders-history.jsonl | jq -r .stamp)"
    """
    try:
        last = bytes.fromhex(after or "")
    except ValueError:
        raise terminal.CommandError(f"--after {after}: a stamp is hexadecimal") from None
    if sum((max_events is not None, every, after is not None)) > 1:
        raise terminal.CommandError("give one of --max, --all and --after")
    db, queue = context.open_queue(name)
    check_kept(db, queue)
    most = None if every or after else 20 if max_events is None else max_events
    printed = 0
    try:
        events = _events(db, queue, last)
        if most is not None:
            # Read from the start, as stamps cannot be counted backwards; only the last ones are
            # kept.
            kept: deque[fdbqueue.Event] = deque(maxlen=min(most, sys.maxsize))
            for event in events:
                kept.append(event)
                last = event.stamp
            events = iter(kept)
        for event in events:
            _print(event, as_json)
            last = max(last, event.stamp)
            printed += 1
        if not printed and not follow:
            terminal.note(f"queue {name} has no history {'after that stamp' if after else 'yet'}")
        while follow:
            terminal.flush()
            time.sleep(FOLLOW_SECONDS)
            for event in _events(db, queue, last):
                _print(event, as_json)
                last = event.stamp
    except KeyboardInterrupt:
        if not follow:
            raise


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
        # The end for now: another look would cost a round trip to find nothing.
        if len(found) < PAGE:
            return


def _print(event: fdbqueue.Event, as_json: bool) -> None:
    if as_json:
        terminal.print_json(json_schema.event_json(event))
        return
    consumer = f"  {terminal.visible(event.consumer)}" if event.consumer else ""
    print(f"{json_schema.when(event.at_ms)}  {event.transition:<16}  {event.id}"
          f"  attempt {event.attempt}{consumer}")  # fmt: skip
