"""``fdbq message list`` and ``show``: messages that stay where they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from typer import Option

import fdbqueue

from ...errors import InvalidArgument
from .. import context, json_schema, listings, terminal
from ..parameters import Limit, ListOutput, MessageId, Output, QueueName, grouped
from .filters import Filters
from .leases import expiry, leases_of, parsed

HEADERS_SHOWN = 24
"""Characters of the headers in a table; --json prints all of them."""
BATCH = 1_000

State = Literal["ready", "waiting", "retrying", "scheduled", "leased", "dead"]
Found = Any
"""A message in a listing: a ``MessageState``, ``LeasedMessage`` or ``DeadMessage``."""
Table = tuple[list[str], list[tuple[object, ...]]]


@grouped
def list_(
    name: QueueName,
    filters: Filters,
    state: Annotated[
        State | None,
        Option(
            metavar="STATE",
            help="ready, waiting (for a key or a limit), retrying, scheduled, leased, or dead. "
            "The default is ready, or dead with --reason, --since or --until.",
        ),
    ] = None,
    consumer: Annotated[
        str | None, Option(metavar="NAME", help="Only what this consumer has leased.")
    ] = None,
    after: Annotated[
        str | None,
        Option(metavar="ID", help="Continue after this message, as the previous listing says."),
    ] = None,
    limit: Limit = 100,
    every: Annotated[bool, Option("--all", help="Show all, not only the first 100.")] = False,
    *,
    output: ListOutput,
) -> None:
    """List messages without receiving them: the first that are ready, or those that match.

    Ready messages appear in the order of delivery, retrying and scheduled ones by their times,
    leased ones with their consumers and tokens, and dead letters in the order of their deaths with
    their reasons. Listing reads page by page, so the result is not a snapshot of one instant. You
    can enqueue again what --json prints.

    \b
    Examples:
      fdbq message list orders --max 1 --watch 1
      fdbq message list orders --match "region = 'eu' AND age > 60000"
      fdbq message list orders --level 0 --all --json > urgent.json
      fdbq message list orders --state retrying
      fdbq message list orders --state leased --consumer billing
      fdbq message list orders --state dead --error timeout --since 2h
    """
    state = state or ("dead" if filters.of_death else "ready")
    if consumer is not None and state != "leased":
        raise terminal.CommandError("--consumer is for --state leased")
    wanted = filters.wanted()
    db, queue = context.open_queue(name)
    filters.check(db, queue)
    kind = KINDS[state]
    empty = f"queue {name} has no {kind.noun}s" + (" that match" if filters.given else "")

    def found() -> Iterator[Found]:
        for each in kind.read(db, queue, state, after):
            if consumer in (None, getattr(each, "consumer", None)) and wanted(kind.message(each)):
                yield each

    def look() -> listings.View:
        shown, cut = listings.first(found(), most)
        total = None
        if cut and not filters.given and consumer is after is None:
            total = getattr(queue.depth(db), state)
        more = listings.more(kind.noun, len(shown), kind.id(shown[-1]), total) if cut else None
        return _view(kind, shown, empty, more)

    most = (BATCH if output.watch is not None else None) if every else limit
    if most is not None or output.as_csv:
        listings.show(look, output)
    elif output.as_json:
        listings.print_array(map(kind.json, found()))
    else:
        _print_all(kind, found(), empty)


def _print_all(kind: Kind, messages: Iterator[Found], empty: str) -> None:
    shown = False
    while batch := [*islice(messages, BATCH)]:
        print("\n".join(_view(kind, batch, empty).lines(terminal.width())))
        terminal.flush()
        shown = True
    if not shown:
        terminal.note(empty)


def _view(kind: Kind, found: Sequence[Found], empty: str, more: str | None = None) -> listings.View:
    return listings.table(*kind.table(found), [*map(kind.json, found)], empty, more)


def waiting(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, state: str, after: str | None = None
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


def _leased(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, _: str, after: str | None
) -> Iterator[fdbqueue.LeasedMessage]:
    return leases_of(db, queue, None if after is None else parsed(after))


def _dead(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, _: str, after: str | None
) -> Iterator[fdbqueue.DeadMessage]:
    while page := queue.dead.list(db, BATCH, after):
        yield from page
        after = page[-1].id


class Kind(Struct, frozen=True):
    """How messages of a state are read and shown."""

    noun: str
    read: Callable[..., Iterator[Found]]
    message: Callable[[Found], fdbqueue.Message]
    table: Callable[[Sequence[Found]], Table]
    json: Callable[[Found], dict[str, Any]]
    id: Callable[[Found], str] = lambda each: each.id


def message_table(
    messages: Sequence[fdbqueue.Message], states: Sequence[fdbqueue.MessageState] = ()
) -> Table:
    """Headers and rows of a table of messages, without optional columns that are empty."""
    now_ms = fdbqueue.Clock().wall_ms()
    dues = [each.due_at_ms for each in states]
    columns: dict[str, list[Any]] = {
        "id": [message.id for message in messages],
        "due in": ["" if due is None else terminal.age(due - now_ms) for due in dues],
        "waits for": [
            "" if each.waits_for is None else json_schema.gate_text(each.waits_for)
            for each in states
        ],
        "prio": [message.priority for message in messages],
        "failed": [message.attempts for message in messages],
        "headers": [_headers(message.headers) for message in messages],
        "payload": [terminal.excerpt(message.payload) for message in messages],
    }
    for optional in ("due in", "waits for", "failed", "headers"):
        if not any(columns[optional]):
            del columns[optional]
    return [*columns], [*zip(*columns.values(), strict=True)]


def _waiting_table(found: Sequence[fdbqueue.MessageState]) -> Table:
    return message_table([each.message for each in found], found)


def _leased_table(found: Sequence[fdbqueue.LeasedMessage]) -> Table:
    now_ms = fdbqueue.Clock().wall_ms()
    return ["id", "attempt", "expires in", "consumer", "token"], [
        (
            each.delivery.id,
            each.delivery.attempt,
            expiry(each, now_ms),
            each.consumer,
            each.delivery.token.hex(),
        )
        for each in sorted(found, key=lambda each: (each.planned, each.delivery.expires_at_ms))
    ]


def _dead_table(found: Sequence[fdbqueue.DeadMessage]) -> Table:
    now_ms = fdbqueue.Clock().wall_ms()
    return ["id", "died", "failed", "why", "payload"], [
        (
            each.id,
            terminal.age(now_ms - each.death.died_at_ms),
            each.death.attempts,
            _why(each),
            terminal.excerpt(each.message.payload),
        )
        for each in found
    ]


def _why(dead: fdbqueue.DeadMessage) -> str:
    reason, error = dead.death.reason, dead.message.last_error
    return reason if not error or error in reason else f"{error} ({reason})"


def _headers(headers: fdbqueue.Headers) -> str:
    text = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in headers.items()
    )
    return text if len(text) <= HEADERS_SHOWN else f"{text[: HEADERS_SHOWN - 1]}…"


def _kind_of_waiting(state: str) -> Kind:
    return Kind(
        f"{state} message",
        waiting,
        lambda each: each.message,
        _waiting_table,
        json_schema.waiting_json,
    )


KINDS = {
    **{each: _kind_of_waiting(each) for each in ("ready", "waiting", "retrying", "scheduled")},
    "leased": Kind(
        "leased message",
        _leased,
        lambda each: each.delivery.message,
        _leased_table,
        json_schema.lease_json,
        lambda each: each.delivery.token.hex(),
    ),
    "dead": Kind(
        "dead letter",
        _dead,
        lambda each: replace(each.message, death=each.death),
        _dead_table,
        json_schema.dead_json,
    ),
}


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
    """Show one message in any state: where it is, why it died, headers and payload.

    Fails with exit code 1 if the message is gone: acknowledged, expired or purged.

    \b
    Examples:
      fdbq message show orders 05-000000000001-83ca4e58174f03bb
      fdbq message show orders 05-000000000001-83ca4e58174f03bb --watch 1
      fdbq message show orders 05-000000000001-83ca4e58174f03bb --raw > payload
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


def message_fields(found: fdbqueue.MessageState) -> listings.View:
    """Everything known about a message."""
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
        known,
    )
