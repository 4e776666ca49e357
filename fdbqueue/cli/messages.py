"""``fdbq enqueue``, ``receive`` and ``peek``: messages in and out."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

import fdbqueue
from fdbqueue.options import DEFAULT_PRIORITY, MAX_PAYLOAD

from . import lines, terminal
from .params import AsJson, QueueName

LEASED_AT_ONCE = 500
PEEKED_AT_MOST = 10_000
HEADERS_SHOWN = 24
"""Characters of the headers in a table; --json has them all."""

# -- in ---------------------------------------------------------------------------------------


def enqueue(
    name: QueueName,
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="The payload, as text.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the payload from a file, as it is.")
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", help="0 to 9: the higher, the more urgent.")
    ] = DEFAULT_PRIORITY,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header; can be given several times."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one message, or many from standard input.

    Without PAYLOAD and --file, standard input is read: one JSON object to a line, with "payload"
    (text) or "payload_base64", and perhaps "priority" and "headers". --priority and --header are
    for the lines that have none of their own. What peek and receive print with --json can be
    enqueued again. A wrong line ends it: then the lines before it may have been enqueued, and the
    error says how many.

    \b
    Examples:
      fdbq enqueue orders 'order 17' --priority 7 --header region=eu
      fdbq enqueue orders --file order.json
      fdbq enqueue orders < messages.jsonl
    """
    headers = dict(map(_header, header or []))
    db = fdbqueue.open()
    queue = fdbqueue.Queue(name)
    if payload is not None and file is not None:
        raise terminal.Refused("give PAYLOAD or --file, not both")
    if payload is None and file is None:
        if sys.stdin.isatty():
            raise terminal.Refused("give PAYLOAD, --file, or JSON lines on standard input")
        enqueued = _enqueue_lines(db, queue, priority, headers)
        if as_json:
            terminal.print_json({"queue": name, "enqueued": enqueued})
        return
    data = os.fsencode(payload) if payload is not None else _contents(file)
    message_id = queue.enqueue(db, data, priority=priority, headers=headers)
    if as_json:
        terminal.print_json({"queue": name, "enqueued": 1, "id": message_id})
    else:
        print(message_id)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise terminal.Refused(f"--header {text}: write NAME=VALUE")
    return name, value


def _contents(file: Path | None) -> bytes:
    assert file is not None
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_PAYLOAD + 1)
    except OSError as error:
        raise terminal.Refused(f"--file {file}: {error.strerror}") from None


def _enqueue_lines(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    priority: int,
    headers: dict[str, str],
) -> int:
    """Enqueue what standard input has, batch by batch; returns how many messages."""
    options = queue.options(db)
    options.level(priority)
    reader = lines.Reader(options, priority, headers)
    stream = sys.stdin.buffer
    started = time.monotonic()
    enqueued = 0
    try:
        with terminal.progress("messages enqueued", _size(stream)) as bar:
            for batch in reader.batches(stream):
                queue.enqueue_many(db, batch.messages)
                enqueued += len(batch.messages)
                bar.update(bar.task_ids[0], completed=batch.size, done=enqueued)
    except fdbqueue.InvalidInput as error:
        raise terminal.Refused(f"{error}; {_before(enqueued)}") from None
    except (fdbqueue.QueueError, fdbqueue.fdb.FDBError) as error:
        raise terminal.Refused(f"{error}; {_before(enqueued)}", exit_code=1) from None
    except KeyboardInterrupt:
        # A batch may be under way.
        known = terminal.count(enqueued, "message")
        raise terminal.Refused(f"interrupted; at least {known} enqueued", 130) from None
    if not enqueued:
        raise terminal.Refused("there are no messages on standard input; nothing was enqueued")
    seconds = time.monotonic() - started
    rate = f" ({enqueued / seconds:,.0f}/s)" if seconds > 1 else ""
    terminal.note(f"enqueued {terminal.count(enqueued, 'message')} in {seconds:.1f} s{rate}")
    return enqueued


def _before(enqueued: int) -> str:
    if not enqueued:
        return "nothing was enqueued"
    were = "was" if enqueued == 1 else "were"
    return f"{terminal.count(enqueued, 'message')} before it {were} enqueued"


def _size(stream: BinaryIO) -> int | None:
    """How many bytes there are to read, if that can be known."""
    found = os.fstat(stream.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) and found.st_size else None


# -- out --------------------------------------------------------------------------------------


def receive(
    name: QueueName,
    max_messages: Annotated[
        int, typer.Option("--max", metavar="N", min=1, help="Messages at most.")
    ] = 1,
    lease: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds until they are delivered again; the queue's own by default.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds to wait for a first message.")
    ] = 0.0,
    ack: Annotated[
        bool, typer.Option("--ack", help="Acknowledge them when they are printed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Receive messages: the most urgent first, and in the order of their arrival.

    They are leased: unless --ack acknowledges them, they come back when their lease has lapsed.
    With --json, one message to a line, with the token of its lease.
    """
    db = fdbqueue.open()
    queue = fdbqueue.Queue(name)
    received = 0
    for deliveries in _deliveries(db, queue, max_messages, lease, wait):
        received += len(deliveries)
        if as_json:
            for delivery in deliveries:
                terminal.print_json(lines.delivery_json(delivery))
        else:
            _print_messages([delivery.message for delivery in deliveries])
        sys.stdout.flush()  # what cannot be printed is not acknowledged
        if ack:
            queue.ack_many(db, deliveries)
    if not received:
        terminal.note(f"queue {name} is empty")
    elif not ack and not as_json:
        seconds = queue.options(db).lease if lease is None else lease
        terminal.note(
            f"leased {terminal.count(received, 'message')} for {seconds:g} s; "
            "with --ack they would be done"
        )


def _deliveries(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    max_messages: int,
    lease: float | None,
    wait: float,
) -> Iterator[list[fdbqueue.Delivery]]:
    """Deliveries in batches that fit in a transaction, until there are enough or no more."""
    at_once = LEASED_AT_ONCE
    while max_messages:
        try:
            found = queue.receive_many(db, min(at_once, max_messages), lease=lease, wait=wait)
        except fdbqueue.TransactionTooLarge:
            at_once = max(1, at_once // 8)
            continue
        if not found:
            return
        yield found
        max_messages -= len(found)
        wait = 0.0


def peek(
    name: QueueName,
    max_messages: Annotated[
        int, typer.Option("--max", metavar="N", min=1, max=PEEKED_AT_MOST, help="Messages at most.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the first ready messages, and leave them where they are.

    With --json, one message to a line.
    """
    messages = fdbqueue.Queue(name).peek(fdbqueue.open(), max_messages)
    if as_json:
        for message in messages:
            terminal.print_json(lines.message_json(message))
    elif messages:
        _print_messages(messages)
    else:
        terminal.note(f"queue {name} is empty")


def _print_messages(messages: list[fdbqueue.Message]) -> None:
    """A table; what no message has gets no column."""
    columns: dict[str, list[Any]] = {
        "id": [message.id for message in messages],
        "prio": [message.priority for message in messages],
        "failed": [message.attempts for message in messages],
        "headers": [_headers(message.headers) for message in messages],
        "payload": [terminal.excerpt(message.payload) for message in messages],
    }
    for optional in ("failed", "headers"):
        if not any(columns[optional]):
            del columns[optional]
    terminal.print_table([*columns], [*zip(*columns.values(), strict=True)])


def _headers(headers: fdbqueue.Headers) -> str:
    text = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in headers.items()
    )
    return text if len(text) <= HEADERS_SHOWN else f"{text[: HEADERS_SHOWN - 1]}…"
