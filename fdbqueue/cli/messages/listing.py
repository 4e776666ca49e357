"""``fdbq message find`` and ``show``: messages that stay where they are."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from msgspec.structs import replace

import fdbqueue
from fdbqueue.values.states import TRANSITIONS

from ...values.limits import gate_text
from ...values.text import duration, visible
from .. import context, json_schema, listings, terminal
from ..output import ListOutput, View, ViewOutput, fields, table
from ..parameters import Limit, MessageId, QueueName, argument, flag, option
from .filters import Filters
from .release import expiry, parsed

HEADERS_SHOWN = 24
"""Characters of the headers in a table; --json prints all of them."""
TRANSITION = {each.name: each for each in TRANSITIONS}

State = Literal["ready", "waiting", "retrying", "scheduled", "leased", "dead"]
Found = Any
"""A message in a listing: a ``LeasedMessage`` if only leased ones are listed, else a
``MessageState``."""
Table = tuple[list[str], list[tuple[object, ...]]]


def find(
    name: QueueName,
    what: str | None = argument(
        "WHAT", "The id of a message, or a condition, as --match takes.", None
    ),
    *,
    filters: Filters,
    state: State | None = option(
        "STATE",
        "Only ready, waiting (for a key or a limit), retrying, scheduled, leased or dead ones.",
    ),
    consumer: str | None = option("NAME", "Only what this consumer has leased."),
    after: str | None = option("ID", "Continue after this message, as the previous listing says."),
    limit: Limit = 100,
    every: bool = flag("Show all, not only the first 100.", "--all"),
    output: ListOutput,
) -> None:
    """Find messages in all states, without receiving them: all, or those that match.

    A condition is a JMS selector on headers and on id, job, key, unique, error (the last one),
    reason (of a death), priority, attempts and age, and on fields of JSON payloads: payload.order.
    A name that no message has is refused. Leased messages come first, then those that are ready, in
    the order of delivery, that wait, that are tried again or come later, by their times, and dead
    letters in the order of their deaths. Finding reads page by page, so the result is not a
    snapshot of one instant. You can enqueue again what --json prints.

    Examples:
      fdbq message find orders "payload.order = 'A-17'"
      fdbq message find orders "job = 'bill' AND error LIKE '%timeout%'"
      fdbq message find orders --state ready --max 1 --watch 1
      fdbq message find orders --match "region = 'eu' AND age > 60000"
      fdbq message find orders --level 0 --all --json > urgent.json
      fdbq message find orders --state leased --consumer billing
      fdbq message find orders --state dead --error timeout --since 2h
    """
    state = state or ("leased" if consumer is not None else "dead" if filters.of_death else None)
    if consumer is not None and state != "leased":
        raise terminal.CommandError("--consumer is for --state leased")
    if what is not None and filters.match is not None:
        raise terminal.CommandError("give one condition: as WHAT, or with --match")
    filters.match = _condition(what) if what is not None else filters.match
    filters.search()  # raises InvalidSelector
    db, queue = context.open_queue(name)
    filters.check(db, queue)
    leased = state == "leased"
    json: Callable[[Found], dict[str, Any]]
    json = json_schema.lease_json if leased else json_schema.state_json
    noun = {None: "message", "dead": "dead letter"}.get(state, f"{state} message")
    empty = f"queue {name} has no {noun}s" + (" that match" if filters.given else "")

    def found() -> Iterator[Found]:
        return _found(db, queue, state, filters, consumer, after)

    def view(shown: Sequence[Found], more: str | None = None) -> View:
        headers, rows = _lease_table(shown) if leased else message_table(shown, state is None)
        return table(headers, rows, [*map(json, shown)], empty, more)

    def look() -> View:
        shown, cut = listings.first(found(), listings.PAGE if every else limit)
        total = None
        if cut and not filters.given and consumer is after is None:
            depth = queue.depth(db)
            total = getattr(depth, state) if state else depth.unsettled + depth.dead
        if not cut:
            return view(shown)
        last = shown[-1].delivery.token.hex() if leased else shown[-1].id
        return view(shown, listings.more(noun, len(shown), last, total))

    def everything() -> View:
        """Printed as it is read, in tables of a page each."""
        pages = listings.pages(found())
        first = next(pages, [])
        tables = map(view, chain([first], pages))
        return View(
            lambda width: (line for each in tables for line in each.lines(width)),
            map(json, chain(first, chain.from_iterable(pages))),
            None if first else empty,
        )

    # A screen has an end: without one, each look would read the whole queue.
    output.show(everything if every and output.watch is None else look)


def _found(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    state: str | None,
    filters: Filters,
    consumer: str | None,
    after: str | None,
) -> Iterator[Found]:
    """The messages that a command finds; raises ``CommandError`` for a name that none of them
    has."""
    from fdbqueue.queue.admin import finding

    search, shown = filters.search(), False
    wanted = filters.wanted(search)
    states = finding.STATES if state is None else (state,)
    every: Iterator[Found] = finding.find(db, queue, states, after)
    if state == "leased":
        every = finding.leases(db, queue, None if after is None else parsed(after))
    for each in every:
        if isinstance(each, fdbqueue.LeasedMessage):
            message, holder = each.delivery.message, each.consumer
        else:
            message, holder = replace(each.message, death=each.death or each.message.death), None
        if search is not None and search.payloads:
            message = finding.whole(db, queue, message)
        if consumer in (None, holder) and wanted(message):
            yield each
            shown = True
    if search is not None and search.unknown and not shown:
        raise terminal.CommandError(f"queue {queue.name}: {search.unknown}")


def _condition(what: str) -> str:
    """The condition that somebody means who gives an id, or a condition."""
    return (
        f"id = '{what}'" if re.fullmatch(r"(d-)?[0-9a-f]{2}-[0-9a-f]{12}-[0-9a-f]+", what) else what
    )


def message_table(found: Sequence[fdbqueue.MessageState], mixed: bool = False) -> Table:
    """Headers and rows of a table of messages, without optional columns that are empty. mixed: they
    are in several states."""
    now_ms = fdbqueue.Clock().wall_ms()
    messages = [each.message for each in found]
    one = () if mixed else found
    columns: dict[str, list[Any]] = {
        "id": [message.id for message in messages],
        "state": [each.state.value for each in found if mixed],
        "": [why(each, now_ms) for each in found if mixed],
        "due in": [_ago(now_ms, each.due_at_ms) for each in one],
        "waits for": ["" if each.waits_for is None else gate_text(each.waits_for) for each in one],
        "died": ["" if each.death is None else _ago(each.death.died_at_ms, now_ms) for each in one],
        "prio": [message.priority for message in messages],
        "failed": [each.death.attempts if each.death else each.message.attempts for each in found],
        "key": [_excerpt(message.key or "") for message in messages],
        "headers": [_headers(message.headers) for message in messages],
        "why": [_why(each) for each in one],
        "payload": [terminal.excerpt(message.payload) for message in messages],
    }
    needed = ("id", "prio", "payload")
    return _columns(columns, *(each for each in columns if each not in needed))


def _ago(before_ms: int, after_ms: int | None) -> str:
    return "" if after_ms is None else terminal.age(after_ms - before_ms)


def _columns(columns: dict[str, list[Any]], *optional: str) -> Table:
    """Headers and rows of a table, without optional columns that are empty."""
    shown = {name: cells for name, cells in columns.items() if name not in optional or any(cells)}
    return [*shown], [*zip(*shown.values(), strict=True)]


def why(found: fdbqueue.MessageState, now_ms: int) -> str:
    """Why a message is in its state, or until when: in a few words."""
    if found.state is fdbqueue.State.LEASED:
        held = f" for {_ago(found.leased_at_ms, now_ms)}" if found.leased_at_ms else ""
        return f"by {found.consumer or 'somebody'}{held}{', cancelled' * found.cancelled}"
    if found.waits_for is not None:
        return f"for {gate_text(found.waits_for)}"
    if found.death is not None:
        return _excerpt(found.message.last_error or found.death.reason)
    if found.due_at_ms is None:
        return ""
    due, error = f"in {_ago(now_ms, found.due_at_ms)}", found.message.last_error
    return f"{due}: {_excerpt(error)}" if error else due


def _excerpt(text: str) -> str:
    return text if len(text) <= HEADERS_SHOWN else f"{text[: HEADERS_SHOWN - 1]}…"


def _lease_table(found: Sequence[fdbqueue.LeasedMessage]) -> Table:
    now_ms = fdbqueue.Clock().wall_ms()
    those = sorted(found, key=lambda each: (each.planned, each.delivery.expires_at_ms))
    columns: dict[str, list[Any]] = {
        "id": [each.delivery.id for each in those],
        "attempt": [each.delivery.attempt for each in those],
        "key": [_excerpt(each.delivery.message.key or "") for each in those],
        "held": [_ago(each.since_ms, now_ms) if each.since_ms else "" for each in those],
        "expires in": [expiry(each, now_ms) for each in those],
        "consumer": [each.consumer for each in those],
        "token": [each.delivery.token.hex() for each in those],
    }
    return _columns(columns, "key")


def _why(found: fdbqueue.MessageState) -> str:
    """Why a dead letter died."""
    if found.death is None:
        return ""
    reason, error = found.death.reason, found.message.last_error
    return reason if not error or error in reason else f"{error} ({reason})"


def _headers(headers: fdbqueue.Headers) -> str:
    text = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in headers.items()
    )
    return _excerpt(text)


def show(
    name: QueueName,
    message_id: MessageId,
    raw: bool = flag("Write only the payload, byte for byte, to a file or pipe.", "--raw"),
    *,
    output: ViewOutput,
) -> None:
    """Show all that is known of one message: its state and why, who holds it since when, how often
    and where it has failed, headers, payload, and what the history of the queue says of it.

    Fails with exit code 1 if the message is gone, and the history says nothing of it.

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

    def page() -> View:
        found = queue.get(db, message_id)
        # The history before it cannot have the message, and may be long.
        since_ms = None if found is None else found.message.enqueued_at_ms
        events, _ = finding.events(db, queue, message_id, since_ms)
        if found is None:
            kept = results.kept(queue, db, message_id)
            return _gone(message_id, events, kept) if events or kept else message_fields(look())
        return message_fields(found, events, _holder(db, queue, found))

    if not raw:
        from fdbqueue.queue.admin import finding
        from fdbqueue.queue.continuations import results

        output.show(page)
        return
    if output.as_json or output.watch is not None:
        raise terminal.CommandError("--raw cannot be combined with --json or --watch")
    if sys.stdout.isatty():
        raise terminal.CommandError("--raw does not write to a terminal: redirect the output")
    sys.stdout.buffer.write(look().message.payload)


def _holder(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, found: fdbqueue.MessageState) -> str:
    """In which process the consumer runs that holds a message, if it is registered."""
    if not found.consumer:
        return ""
    those = [each for each in queue.admin.consumers(db) if each.name == found.consumer]
    return ", ".join(sorted({f"{each.host}:{each.process}" for each in those if each.host}))


def _gone(
    message_id: str, events: Sequence[fdbqueue.Event], kept: fdbqueue.schema.records.Kept | None
) -> View:
    """A message of which only the history is left, or how it ended."""
    state = kept.state if kept is not None else TRANSITION[events[-1].transition].target
    known: dict[str, Any] = {"id": message_id, "state": state.value}
    if kept is not None and kept.queue:
        known["moved_to"] = {"queue": kept.queue, "id": kept.id}
    moved = [("moved to", f"{kept.id} of queue {kept.queue}")] if kept and kept.queue else []
    return fields(
        [("id", message_id), ("state", state.value), *moved],
        {**known, "history": [*map(json_schema.event_json, events)]},
        _history(events),
    )


def _history(events: Sequence[fdbqueue.Event]) -> View:
    """What happened to a message, and how long after the event before."""
    earlier = [events[0].at_ms, *(each.at_ms for each in events)] if events else []
    rows = [
        (
            json_schema.when(each.at_ms),
            each.transition,
            f"+{terminal.age(each.at_ms - before)}",
            each.attempt,
            each.consumer,
        )
        for each, before in zip(events, earlier, strict=False)
    ]
    return table(["at", "what", "after", "failed", "who"], rows, [], "")


def message_fields(
    found: fdbqueue.MessageState, events: Sequence[fdbqueue.Event] = (), holder: str = ""
) -> View:
    """Everything known about a message. holder: the process that holds it."""
    known = json_schema.state_json(found)
    nested = ("death", "payload", "payload_base64", "headers", "history", "failures")
    death = known.get("death") or {}
    if holder:
        known["process"] = holder
    if events:
        known["history"] = [*map(json_schema.event_json, events)]
    return fields(
        [
            *((name.replace("_", " "), text) for name, text in known.items() if name not in nested),
            *((name.replace("_", " "), death[name]) for name in ("reason", "died_at") if death),
            *((f"header {name}", json.dumps(v)) for name, v in found.message.headers.items()),
            ("bytes", len(found.message.payload)),
            ("payload", terminal.excerpt(found.message.payload)),
        ],
        known,
        _failures(found.failures),
        _history(events),
    )


def _failures(found: Sequence[fdbqueue.Failure]) -> View:
    """The failed attempts of a message, the newest first, each with its traceback."""
    lines: list[str] = []
    for each in reversed(found):
        took = duration(each.ended_at_ms - each.started_at_ms)
        who = f" by {visible(each.consumer)}" if each.consumer else ""
        ended = json_schema.when(each.ended_at_ms)
        lines.append(f"failed {ended} after {took}{who}: {visible(each.error)}")
        lines += [f"  {visible(line)}" for line in each.traceback.splitlines()]
    return View(lambda width: lines, [], None if lines else "")
