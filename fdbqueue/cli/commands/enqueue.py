"""``fdbq enqueue``: one message, or many."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated

import fdbqueue
from fdbqueue.values.options import DEFAULT_PRIORITY, MAX_PAYLOAD

from .. import durations, home, terminal
from ..declarations import Argument, Option
from ..parameters import AsJson, QueueName


def enqueue(
    name: QueueName,
    payload: Annotated[
        str | None, Argument(metavar="PAYLOAD", help="The payload, as text.")
    ] = None,
    file: Annotated[
        str | None, Option(metavar="FILE", help="Read the payload from a file, as it is.")
    ] = None,
    priority: Annotated[
        int, Option(metavar="N", help="0 to 9: the higher, the more urgent.")
    ] = DEFAULT_PRIORITY,
    header: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="A header; can be given several times."),
    ] = None,
    delay: Annotated[
        float,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Do not deliver it before so many seconds.",
        ),
    ] = 0.0,
    at: Annotated[
        str | None,
        Option(
            metavar="TIME", help="Do not deliver it before a time, like 2030-01-31T08:00+01:00."
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Deliver it no more after so many seconds.",
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        Option(metavar="N", help="Deliveries that may fail, instead of the queue's."),
    ] = None,
    key: Annotated[
        str | None,
        Option(metavar="KEY", help="Deliver messages of one key one after another."),
    ] = None,
    dedup_id: Annotated[
        str | None,
        Option(metavar="ID", help="Enqueue nothing if this id was enqueued lately."),
    ] = None,
    unique: Annotated[
        str | None,
        Option(metavar="KEY", help="Enqueue nothing while a message with this key is held."),
    ] = None,
    content_type: Annotated[
        str | None, Option(metavar="TYPE", help="What the payload is: application/json.")
    ] = None,
    resume: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Remember in FILE which import this is, and go on with it where it ended.",
        ),
    ] = None,
    as_csv: Annotated[
        bool,
        Option("--csv", help="Standard input is CSV; its first row names the columns."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue one message, or many from standard input.

    Without PAYLOAD and --file, standard input is read: one JSON object to a line, with "payload"
    (text) or "payload_base64", and perhaps "priority", "headers", "delay" or "due_at", "ttl" or
    "ttl_ends_at", "max_attempts", "backoff", "key", "dedup_id", "unique" and "content_type". The
    options are for the lines that do not say it themselves. What peek, receive, browse and dead
    list print with --json can be enqueued again, and is then what it was, but for its id and its
    attempts. A wrong line ends it: then the lines before it may have been enqueued, and the error
    says how many.

    With --csv, standard input is CSV: a column "payload", and columns with the other names above;
    any other column is a header. An empty cell says nothing.

    With --resume, every line is enqueued once, however often the import is interrupted or killed:
    give the same FILE and the same input again, and it goes on behind the last line that is in the
    queue. How far it has come is stored with the messages, in the same transactions.

    \b
    Examples:
      fdbq enqueue orders 'order 17' --priority 7 --header region=eu
      fdbq enqueue orders 'reminder' --delay 3600 --ttl 7200
      fdbq enqueue orders --file order.json
      fdbq enqueue orders < messages.jsonl
      fdbq enqueue orders --resume import.state < messages.jsonl
      fdbq enqueue orders --csv < messages.csv
    """
    given = fdbqueue.NewMessage(
        b"",
        priority,
        dict(map(_header, header or [])),
        delay=delay,
        at=None if at is None else durations.instant(at),
        ttl=ttl,
        max_attempts=max_attempts,
        key=key,
        dedup_id=dedup_id,
        unique=unique,
        content_type=content_type,
    )
    db = home.opened()
    queue = home.queue(name)
    if payload is not None and file is not None:
        raise terminal.Refused("give PAYLOAD or --file, not both")
    if payload is None and file is None:
        if sys.stdin.isatty():
            raise terminal.Refused("give PAYLOAD, --file, or JSON lines on standard input")
        if dedup_id is not None or unique is not None:
            raise terminal.Refused("--dedup-id and --unique name one message, not many")
        from ..enqueue_lines import enqueue_lines  # stands on the bindings: chosen by --store

        done = enqueue_lines(db, queue, given, resume, as_csv)
        if as_json:
            terminal.print_json({"queue": name, "enqueued": done.new, **_known(done.known)})
        return
    if resume is not None or as_csv:
        option = "--csv" if as_csv else "--resume"
        raise terminal.Refused(f"{option} is for messages on standard input")
    data = _encoded(payload) if payload is not None else _contents(file)
    ids = queue.enqueue_many(db, [replace(given, payload=data)])
    if as_json:
        known = _known(1 - ids.new)
        terminal.print_json({"queue": name, "enqueued": ids.new, **known, "id": ids[0]})
    else:
        print(ids[0])
        if not ids.new:
            terminal.note("it was there already: nothing was enqueued")


def _known(count: int) -> dict[str, int]:
    """Of the messages that were there already, for JSON; most have none."""
    return {"known": count} if count else {}


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise terminal.Refused(f"--header {text}: write NAME=VALUE")
    return name, value


def _encoded(payload: str) -> bytes:
    try:
        return os.fsencode(payload)
    except UnicodeEncodeError:
        raise terminal.Refused("PAYLOAD has half of a surrogate pair") from None


def _contents(file: str | None) -> bytes:
    assert file is not None
    try:
        with open(file, "rb") as stream:
            return stream.read(MAX_PAYLOAD + 1)
    except OSError as error:
        raise terminal.Refused(f"--file {file}: {error.strerror}") from None
