"""``fdbq peek``, ``browse`` and ``show``: messages that stay where they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from typer import Option

import fdbqueue
from fdbqueue.values.states import State

from ...errors import InvalidArgument
from .. import context, json_schema, listings, terminal
from ..parameters import (
    After,
    Limit,
    ListOutput,
    MessageId,
    Output,
    QueueName,
    SelectorOption,
    grouped,
)

HEADERS_SHOWN = 24
"""Characters of the headers in a table; --json prints all of them."""
BATCH = 1_000


Waiting = Literal["ready", "delayed", "waiting"]
"""Why a message waits."""
WaitingOption = Annotated[
    Waiting,
    Option(metavar="STATE", help="ready, delayed, or waiting for others of an ordering key."),
]


@grouped
def peek(
    name: QueueName,
    selector: SelectorOption = None,
    state: WaitingOption = "ready",
    after: After = None,
    limit: Limit = 10,
    *,
    output: ListOutput,
) -> None:
    """Show the first waiting messages without receiving them.

    To see all of them, use fdbq browse.

    \b
    Examples:
      fdbq peek orders
      fdbq peek orders --max 1 --watch 1
      fdbq peek orders --state delayed
    """
    _browse(name, selector, None, state, after, limit, output)


@grouped
def browse(
    name: QueueName,
    selector: SelectorOption = None,
    level: Annotated[
        list[int] | None,
        Option(metavar="N", help="Only this level; 0 is the most urgent. Repeatable."),
    ] = None,
    state: WaitingOption = "ready",
    after: After = None,
    limit: Limit = None,
    *,
    output: ListOutput,
) -> None:
    """Show all waiting messages, or those that match.

    The messages stay in the queue. Ready messages appear in the order of delivery, delayed ones
    (--state delayed) by the time they become ready, and those that wait for others of their
    ordering key (--state waiting) by key. Browsing reads page by page, so the result is not a
    snapshot of one instant. With --watch, it shows at most 1,000 messages unless you give --max.

    \b
    Examples:
      fdbq browse orders --selector "region = 'eu' AND age > 60000"
      fdbq browse orders --level 0 --json > urgent.json
      fdbq browse orders --state delayed --max 100
    """
    limit = limit or (None if output.watch is None else BATCH)
    _browse(name, selector, level, state, after, limit, output)


def _browse(
    name: str,
    selector: str | None,
    levels: Sequence[int] | None,
    state: Waiting,
    after: str | None,
    limit: int | None,
    output: ListOutput,
) -> None:
    wanted = None if selector is None else fdbqueue.Selector(selector)
    db, queue = context.open_queue(name)
    clock = fdbqueue.Clock()
    everything = wanted is None and not levels
    empty = f"queue {name} has no {state} messages" if everything else "no message matches"

    def found() -> Iterator[fdbqueue.MessageState]:
        for each in _waiting(db, queue, levels, state, after):
            if wanted is None or wanted.matches(each.message, clock.wall_ms()):
                yield each

    if limit is not None or output.as_csv:
        listings.show(lambda: _listing(*listings.first(found(), limit), empty), output)
        return
    if output.as_json:
        listings.print_array(map(json_schema.waiting_json, found()))
        return
    messages = found()
    shown = False
    while batch := [*islice(messages, BATCH)]:
        print("\n".join(_listing(batch, False, empty).lines(terminal.width())))
        terminal.flush()
        shown = True
    if not shown:
        terminal.note(empty)


def _waiting(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    levels: Sequence[int] | None,
    state: Waiting,
    after: str | None,
) -> Iterator[fdbqueue.MessageState]:
    from fdbqueue.queue.subscriptions import check_levels

    if levels and state == "ready" and after is None:  # this reads no other level
        for message in queue.browse(db, levels=levels):
            yield fdbqueue.MessageState(message, State.READY)
        return
    check_levels(levels, queue.options(db).levels)
    for each in _every(db, queue, state, after):
        if not levels or each.message.level in levels:
            yield each


def _every(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, state: Waiting, after: str | None
) -> Iterator[fdbqueue.MessageState]:
    """The messages, a page at a time: each behind the last one that was shown and still exists."""
    known = [after]
    while True:
        try:
            page = queue.messages(db, state, BATCH, known[-1])
        except InvalidArgument:
            if len(known) == 1:
                raise
            known.pop()
            continue
        if not page:
            return
        yield from page
        known = [after, *(each.message.id for each in page)]


def _listing(found: Sequence[fdbqueue.MessageState], cut: bool, empty: str) -> listings.View:
    return listings.table(
        *message_table([each.message for each in found], found),
        [json_schema.waiting_json(each) for each in found],
        empty,
        listings.more("message", len(found), found[-1].message.id) if cut else None,
    )


def message_table(
    messages: Sequence[fdbqueue.Message], states: Sequence[fdbqueue.MessageState] = ()
) -> tuple[list[str], list[tuple[object, ...]]]:
    """Headers and rows of a table of messages, without optional columns that are empty."""
    now_ms = fdbqueue.Clock().wall_ms()
    dues = [each.due_at_ms for each in states]
    columns: dict[str, list[Any]] = {
        "id": [message.id for message in messages],
        "due in": ["" if due is None else terminal.age(due - now_ms) for due in dues],
        "key": [each.message.key if each.waits_for_key else "" for each in states],
        "prio": [message.priority for message in messages],
        "failed": [message.attempts for message in messages],
        "headers": [_headers(message.headers) for message in messages],
        "payload": [terminal.excerpt(message.payload) for message in messages],
    }
    for optional in ("due in", "key", "failed", "headers"):
        if not any(columns[optional]):
            del columns[optional]
    return [*columns], [*zip(*columns.values(), strict=True)]


def _headers(headers: fdbqueue.Headers) -> str:
    text = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in headers.items()
    )
    return text if len(text) <= HEADERS_SHOWN else f"{text[: HEADERS_SHOWN - 1]}…"


@grouped
def show(
    name: QueueName,
    message_id: MessageId,
    raw: Annotated[
        bool,
        Option("--raw", help="Write only the payload, byte for byte, to a file or pipe."),
    ] = False,
    *,
    output: Output,
) -> None:
    """Show one message: its state, headers and payload.

    Fails with exit code 1 if the message is gone: acknowledged, expired or purged.

    \b
    Examples:
      fdbq show orders 05-000000000001-83ca4e58174f03bb
      fdbq show orders 05-000000000001-83ca4e58174f03bb --watch 1
      fdbq show orders 05-000000000001-83ca4e58174f03bb --raw > payload
    """
    db, queue = context.open_queue(name)

    def look() -> fdbqueue.MessageState:
        found = queue.get(db, message_id)
        if found is None:
            raise terminal.CommandError(
                f"queue {name!r} has no message {message_id}: it was acknowledged, expired or "
                "purged, or the id is wrong",
                1,
            )
        return found

    if not raw:
        listings.show(lambda: message_fields(look()), output)
        return
    if output.as_json or output.watch is not None:
        raise terminal.CommandError("--raw cannot be combined with --json or --watch")
    if sys.stdout.isatty():
        raise terminal.CommandError("--raw does not write to a terminal: redirect the output")
    sys.stdout.buffer.write(look().message.payload)


def message_fields(
    found: fdbqueue.MessageState, value: dict[str, Any] | None = None
) -> listings.View:
    """Everything known about a message. value: what --json prints, unless all of it."""
    known = json_schema.state_json(found)
    nested = ("death", "payload", "payload_base64", "headers")
    death = known.get("death") or {}
    return listings.fields(
        [
            *((name.replace("_", " "), text) for name, text in known.items() if name not in nested),
            *((name.replace("_", " "), death[name]) for name in ("reason", "died_at") if death),
            *((f"header {name}", json.dumps(v)) for name, v in found.message.headers.items()),
            ("bytes", len(found.message.payload)),
            ("payload", terminal.excerpt(found.message.payload)),
        ],
        value or known,
    )
