"""``fdbq receive``, ``peek``, ``browse``, ``show`` and ``cancel``: messages out."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Annotated, Any, TypeVar

import fdbqueue
from fdbqueue.values.states import State

from ...errors import QueueError, TransactionTooLarge
from .. import durations, home, json_schema, listings, terminal
from ..declarations import Argument, Option
from ..parameters import (
    MOST,
    After,
    AsCsv,
    AsJson,
    DryRun,
    MessageId,
    Most,
    QueueName,
    Selecting,
    Watch,
    Yes,
)

LEASED_AT_ONCE = 500
HEADERS_SHOWN = 24
"""Characters of the headers in a table; --json has them all."""
SHOWN_AT_ONCE = 1_000
T = TypeVar("T")
Predicate = Callable[["fdbqueue.Message"], bool]
CANCELLED = (State.READY, State.DELAYED)


class Which(Enum):
    """What messages wait for."""

    READY = "ready"
    DELAYED = "delayed"
    WAITING = "waiting"


Waiting = Annotated[
    Which,
    Option(
        "--state",
        metavar="STATE",
        help="Which: ready, delayed, or waiting for another message of their key.",
    ),
]


def receive(
    name: QueueName,
    max_messages: Annotated[int, Option("--max", metavar="N", min=1, help="Messages at most.")] = 1,
    lease: Annotated[
        float | None,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Seconds until they are delivered again; the queue's own by default.",
        ),
    ] = None,
    wait: Annotated[
        float,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Seconds to wait for a first message.",
        ),
    ] = 0.0,
    ack: Annotated[bool, Option("--ack", help="Acknowledge them when they are printed.")] = False,
    consumer: Annotated[
        str, Option(metavar="NAME", help="Who receives, to show in listings.")
    ] = "",
    subscription: Annotated[
        str | None,
        Option(metavar="NAME", help="Receive for a subscription: what its selector matches."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Receive messages: the most urgent first, and in the order of their arrival.

    They are leased: unless --ack, or fdbq ack with the tokens of the leases, acknowledges them,
    they come back when their lease has lapsed. With --json, one message to a line, with its token.

    \b
    Examples:
      fdbq receive orders --ack
      fdbq receive orders --max 10 --wait 60 --json
      fdbq receive orders --lease 600 --json | tee work.jsonl
    """
    if ack and 1 in terminal.closed:
        raise terminal.Refused("standard output is closed: what is acknowledged would be lost")
    db = home.opened()
    queue = home.queue(name)
    source = queue if subscription is None else queue.subscriptions.open(db, subscription)

    def take(count: int, seconds: float) -> list[fdbqueue.Delivery]:
        return source.receive_many(db, count, lease=lease, wait=seconds, consumer=consumer)

    received = 0
    with terminal.ending():
        for deliveries in _deliveries(take, max_messages, wait):
            received += len(deliveries)
            try:
                _print_deliveries(deliveries, as_json)
            except BaseException:
                # What nobody has seen goes back, and the attempt does not count.
                with contextlib.suppress(QueueError):
                    queue.release_many(db, deliveries, delay=0)
                raise
            if ack:
                queue.ack_many(db, deliveries)
    if not received:
        paused = " (it is paused)" if queue.options(db).paused else ""
        terminal.note(f"queue {name} is empty{paused}")
    elif not ack and not as_json:
        seconds = queue.options(db).lease if lease is None else lease
        terminal.note(
            f"leased {terminal.count(received, 'message')} for {seconds:g} s; "
            "with --ack they would be done, with --json their tokens are shown"
        )


def _print_deliveries(deliveries: Sequence[fdbqueue.Delivery], as_json: bool) -> None:
    if as_json:
        for delivery in deliveries:
            terminal.print_json(json_schema.delivery_json(delivery))
    else:
        _print_messages([delivery.message for delivery in deliveries])
    terminal.flush()


def _deliveries(
    take: Callable[[int, float], list[fdbqueue.Delivery]], max_messages: int, wait: float
) -> Iterator[list[fdbqueue.Delivery]]:
    """Deliveries in batches that fit in a transaction, until there are enough or no more."""
    at_once = LEASED_AT_ONCE
    while max_messages:
        try:
            found = take(min(at_once, max_messages), wait)
        except TransactionTooLarge:
            if at_once == 1:
                raise
            at_once = max(1, at_once // 8)
            continue
        if not found:
            return
        yield found
        max_messages -= len(found)
        wait = 0.0


def peek(
    name: QueueName,
    selector: Selecting = None,
    state: Waiting = Which.READY,
    after: After = None,
    max_messages: Most = 10,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """Show the first messages that wait, and leave them where they are.

    As browse, which shows all.

    \b
    Examples:
      fdbq peek orders
      fdbq peek orders --max 1 --watch 1
      fdbq peek orders --state delayed
    """
    _browse(name, selector, None, state, after, max_messages, as_json, as_csv, watch)


def browse(
    name: QueueName,
    selector: Selecting = None,
    level: Annotated[
        list[int] | None,
        Option(metavar="N", help="Only of this level, 0 the most urgent; several times."),
    ] = None,
    state: Waiting = Which.READY,
    after: After = None,
    max_messages: Annotated[int | None, Option("--max", metavar="N", min=1, help=MOST)] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """Show all messages that wait, or those that match, and leave them where they are.

    Those that are ready, in the order of delivery; with --state delayed those that are for later,
    the first due at the top; with --state waiting those that wait for another message of their
    ordering key, by keys. It reads page after page, so it is no picture of one instant. With
    --watch, the first thousand, unless --max says how many.

    \b
    Examples:
      fdbq browse orders --selector "region = 'eu' AND age > 60000"
      fdbq browse orders --level 0 --json > urgent.json
      fdbq browse orders --state delayed --max 100
    """
    most = max_messages or (None if watch is None else SHOWN_AT_ONCE)
    _browse(name, selector, level, state, after, most, as_json, as_csv, watch)


def _browse(
    name: str,
    selector: str | None,
    levels: Sequence[int] | None,
    state: Which,
    after: str | None,
    most: int | None,
    as_json: bool,
    as_csv: bool,
    watch: float | None,
) -> None:
    wanted = None if selector is None else fdbqueue.Selector(selector)
    db = home.opened()
    queue = home.queue(name)
    clock = fdbqueue.Clock()
    every = wanted is None and not levels
    empty = f"queue {name} has no {state.value} messages" if every else "no message matches"

    def found() -> Iterator[fdbqueue.MessageState]:
        for each in _waiting(db, queue, levels, state, after):
            if wanted is None or wanted.matches(each.message, clock.wall_ms()):
                yield each

    if most is not None or as_csv:

        def look() -> listings.Listing:
            return _listed(queue, *listings.first(found(), most), empty)

        listings.show(look, as_json, watch, as_csv)
        return
    if as_json:
        listings.print_array(map(json_schema.waiting_json, found()))
        return
    shown = 0
    for page in _batches(found()):
        shown += len(page)
        print("\n".join(_listed(queue, page, False, empty).lines(terminal.width())))
        terminal.flush()
    if not shown:
        terminal.note(empty)


def _waiting(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    levels: Sequence[int] | None,
    state: Which,
    after: str | None,
) -> Iterator[fdbqueue.MessageState]:
    from fdbqueue.queue.subscriptions import check_levels

    if levels and state is Which.READY and after is None:  # no other level is read then
        for message in queue.browse(db, levels=levels):
            yield fdbqueue.MessageState(message, State.READY)
        return
    check_levels(levels, queue.options(db).levels)
    for each in queue.looking(db, state.value, after):
        if not levels or each.message.level in levels:
            yield each


def _listed(
    queue: fdbqueue.Queue, found: Sequence[fdbqueue.MessageState], cut: bool, empty: str
) -> listings.Listing:
    headers, rows = _table(_columns([each.message for each in found], found))
    return listings.Listing(
        headers,
        rows,
        [json_schema.waiting_json(each) for each in found],
        empty,
        listings.more("message", len(found), found[-1].id) if cut else None,
    )


def _batches(messages: Iterator[T]) -> Iterator[list[T]]:
    while batch := list(islice(messages, SHOWN_AT_ONCE)):
        yield batch


def show(
    name: QueueName,
    message_id: MessageId,
    raw: Annotated[
        bool,
        Option("--raw", help="Write the payload alone, as it is: not for a terminal."),
    ] = False,
    as_json: AsJson = False,
    watch: Watch = None,
) -> None:
    """Show one message, wherever it is: its state, headers and payload.

    A message that is done, expired or purged is gone; then this ends with 1.

    \b
    Examples:
      fdbq show orders 05-000000000001-83ca4e58174f03bb
      fdbq show orders 05-000000000001-83ca4e58174f03bb --watch 1
      fdbq show orders 05-000000000001-83ca4e58174f03bb --raw > payload
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> fdbqueue.MessageState:
        found = queue.get(db, message_id)
        if found is None:
            raise terminal.Refused(f"queue {name!r} has no message {message_id}: it is gone", 1)
        return found

    if not raw:
        listings.show(lambda: stated(look()), as_json, watch)
        return
    if as_json or watch is not None:
        raise terminal.Refused("--raw goes neither with --json nor with --watch")
    if sys.stdout.isatty():
        raise terminal.Refused("--raw does not write to a terminal: redirect it")
    sys.stdout.buffer.write(look().message.payload)


def stated(found: fdbqueue.MessageState) -> listings.Fields:
    """A message with all that is known of it."""
    value = json_schema.state_json(found)
    fields = {
        name: text
        for name, text in value.items()
        if name not in ("death", "payload", "payload_base64", "headers")
    }
    death = value.get("death") or {}
    return listings.Fields(
        [
            *((name.replace("_", " "), text) for name, text in fields.items()),
            *((name.replace("_", " "), death[name]) for name in ("reason", "died_at") if death),
            *((f"header {name}", json.dumps(v)) for name, v in found.message.headers.items()),
            ("bytes", len(found.message.payload)),
            ("payload", terminal.excerpt(found.message.payload)),
        ],
        value,
    )


def cancel(
    name: QueueName,
    message_ids: Annotated[list[str], Argument(metavar="ID…", help="Ids of messages.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove messages that are ready or delayed, before they are delivered.

    One that is leased, dead or gone stays as it is; then this ends with 1.

    \b
    Examples:
      fdbq cancel orders 05-000000000001-83ca4e58174f03bb --dry-run
      fdbq cancel orders 05-000000000001-83ca4e58174f03bb --yes
    """
    db = home.opened()
    queue = home.queue(name)
    ids = [*dict.fromkeys(message_ids)]
    found = {each: queue.get(db, each) for each in ids}
    waiting = [each for each, state in found.items() if state and state.state in CANCELLED]
    cancelled = waiting
    if not dry_run:
        if waiting:
            terminal.confirm(
                f"Remove {terminal.count(len(waiting), 'message')} of queue {name!r}?", yes
            )
        cancelled = [each for each in waiting if queue.cancel(db, each)]
    missed = [each for each in ids if each not in cancelled]
    if as_json:
        done = {"cancelled": 0, "would_be_cancelled": len(waiting)} if dry_run else {}
        terminal.print_json({"queue": name, "cancelled": len(cancelled), **done, "missed": missed})
    else:
        verb = "would be cancelled:" if dry_run else "cancelled"
        print(f"{verb} {terminal.count(len(cancelled), 'message')}")
    if missed:
        raise terminal.Refused(f"not ready or delayed: {', '.join(missed)}", 1)


def edit(
    name: QueueName,
    message_ids: Annotated[list[str], Argument(metavar="ID…", help="Ids of messages.")],
    priority: Annotated[
        int | None, Option(metavar="N", help="0 to 9: the higher, the more urgent.")
    ] = None,
    delay: Annotated[
        float | None,
        Option(
            metavar="DURATION",
            parser=durations.seconds,
            help="Do not deliver them before so long from now; 0: as soon as can be.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        Option(metavar="TIME", help="Do not deliver them before 2030-01-31T08:00+01:00."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the priority of messages that wait, or when they are due.

    One that comes into another level goes behind all others there. One that is leased, dead or
    gone stays as it is; then this ends with 1.

    \b
    Examples:
      fdbq edit orders 05-000000000001-83ca4e58174f03bb --priority 9
      fdbq edit orders 05-000000000001-83ca4e58174f03bb --delay 2h
    """
    if priority is None and delay is None and at is None:
        raise terminal.Refused("say what to change: --priority, --delay or --at")
    moment = None if at is None else durations.instant(at)
    db = home.opened()
    queue = home.queue(name)
    ids = [*dict.fromkeys(message_ids)]
    edited = [
        each for each in ids if queue.edit(db, each, priority=priority, delay=delay, at=moment)
    ]
    missed = [each for each in ids if each not in edited]
    if as_json:
        terminal.print_json({"queue": name, "edited": len(edited), "missed": missed})
    else:
        print(f"edited {terminal.count(len(edited), 'message')}")
    if missed:
        raise terminal.Refused(f"not waiting: {', '.join(missed)}", 1)


# -- tables -----------------------------------------------------------------------------------


def _print_messages(messages: Sequence[fdbqueue.Message]) -> None:
    terminal.print_table(*_table(_columns(messages)))


def _columns(
    messages: Sequence[fdbqueue.Message], states: Sequence[fdbqueue.MessageState] = ()
) -> dict[str, list[Any]]:
    """What no message has gets no column."""
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
    return columns


def _table(columns: dict[str, list[Any]]) -> tuple[list[str], list[tuple[object, ...]]]:
    return [*columns], [*zip(*columns.values(), strict=True)]


def _headers(headers: fdbqueue.Headers) -> str:
    text = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in headers.items()
    )
    return text if len(text) <= HEADERS_SHOWN else f"{text[: HEADERS_SHOWN - 1]}…"
