"""``fdbq limit …``: limits that queues share, and those of a queue's keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

import fdbqueue

from ...values.limits import (
    KeyBacklog,
    KeyLimits,
    KeyState,
    Limit,
    LimitState,
    LimitSummary,
    OwnLimits,
)
from .. import context, json_schema, listings, terminal
from ..parameters import (
    AsJson,
    ChangeOptions,
    ListOutput,
    Output,
    PageOptions,
    grouped,
    pair,
    queue_option,
)

if TYPE_CHECKING:
    from ...queue.keys.message_keys import Key
    from ...queue.keys.shared_limits import Limits, SharedLimit

app = Typer(
    name="limit",
    help="List, show, set, pause and delete limits: those that queues share, and those of keys.",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    Argument(
        metavar="LIMIT",
        help="DIMENSION=NAME, such as api=stripe; with --queue, a key of the queue.",
    ),
]
OfQueue = Annotated[str | None, queue_option("The limits of keys of this queue.")]


def _shared() -> Limits:
    from ...queue.keys.shared_limits import Limits  # help and completion need no store

    return Limits(context.subspace())


def _opened(name: str, queue: str | None) -> tuple[fdbqueue.fdb.Database, SharedLimit | Key]:
    if queue is not None:
        db, found = context.open_queue(queue)
        return db, found.keys[name]
    dimension, limit = pair("LIMIT", name, "DIMENSION=NAME, or give --queue for a key")
    return context.connect(), _shared()[dimension, limit]


def _named(state: LimitState | KeyState, queue: str | None) -> str:
    if isinstance(state, KeyState):
        return f"key {state.key} of queue {queue}"
    return f"limit {state.dimension}={state.name}"


@app.command("list")
@grouped
def list_(queue: OfQueue = None, *, page: PageOptions, output: ListOutput) -> None:
    """List the limits that are set, and those for which messages wait.

    With --queue, those of its keys: a key for which no message waits, and without limits of its
    own, is not stored. Without --max, the first 100 are listed. --after takes a LIMIT.

    \b
    Examples:
      fdbq limit list
      fdbq limit list --queue orders --max 20 --json
    """
    if queue is not None:
        listings.show(_keys(queue, page), output)
        return
    after = None if page.after is None else pair("--after", page.after, "DIMENSION=NAME")
    db, limits = context.connect(), _shared()

    def read(most: int, after: Limit | None) -> list[LimitSummary]:
        return limits.list(db, most, after=after)

    def row(each: LimitSummary, now_ms: int) -> tuple[object, ...]:
        places = "paused" if each.paused else _shown(each.concurrency)
        waits = each.waiting, _since(each.since_ms, now_ms)
        return each.dimension, each.name, places, _shown(each.rate), *waits

    headers = ["dimension", "name", "concurrency", "rate", "waiting", "for"]
    place = attrgetter("dimension", "name")
    empty = "no limit is set, and no message waits for one"
    listed = partial(listings.listing, read, place, row, _listed, headers, "limit", empty)
    listings.show(partial(listed, page, after, lambda each: "=".join(place(each))), output)


def _keys(name: str, page: PageOptions) -> Callable[[], listings.View]:
    db, queue = context.open_queue(name)
    waiting: dict[str, KeyBacklog] = {}
    limited: dict[str, OwnLimits] = {}

    def read(most: int, after: str | None) -> list[str]:
        some = {each.key: each for each in queue.keys.waiting(db, most, after=after)}
        own = queue.keys.limited(db, most, after=after)
        waiting.update(some)
        limited.update(own)
        # Each of the two lists has enough: what is past the first page of both cannot be on this
        # one.
        return sorted({*some, *own})[:most]

    def row(key: str, now_ms: int) -> tuple[object, ...]:
        return key, *_waits(waiting.get(key), now_ms), _own(limited.get(key))

    def json(key: str) -> dict[str, Any]:
        return _listed_key(key, waiting.get(key), limited.get(key))

    headers = ["key", "waiting", "for", "own limits"]
    empty = f"no message of queue {name} waits for a slot, and no key has limits of its own"

    def look() -> listings.View:
        waiting.clear()
        limited.clear()
        return listings.listing(read, str, row, json, headers, "key", empty, page, page.after)

    return look


def _waits(backlog: KeyBacklog | None, now_ms: int) -> tuple[object, object]:
    return (0, "") if backlog is None else (backlog.waiting, _since(backlog.since_ms, now_ms))


def _since(since_ms: int | None, now_ms: int) -> str:
    return "" if since_ms is None else terminal.age(now_ms - since_ms)


def _own(own: OwnLimits | None) -> str:
    return ", ".join(_limit(name, value) for name, value in (own or {}).items())


def _limit(name: str, value: object) -> str:
    return name if name == "paused" else f"{name} {_shown(value)}"


def _shown(value: object) -> object:
    return "none" if value is None else value


def _listed(found: LimitSummary | LimitState) -> dict[str, Any]:
    names = ("dimension", "name", "concurrency", "paused", "rate", "waiting")
    return {**json_schema.fields(found, *names), **json_schema.known(found, "since_ms")}


def _listed_key(key: str, backlog: KeyBacklog | None, own: OwnLimits | None) -> dict[str, Any]:
    waits = {"waiting": 0}
    if backlog is not None:
        waits = json_schema.known(backlog, "waiting", "since_ms")
    return {"key": key, **waits, "limits": {**(own or {})}}


@app.command()
@grouped
def show(name: Name, queue: OfQueue = None, *, output: Output) -> None:
    """Show what is out of a limit, in which queues, how many messages wait, and for what.

    \b
    Examples:
      fdbq limit show api=stripe --watch 1
      fdbq limit show tenant-17 --queue orders
    """
    db, limit = _opened(name, queue)

    def look() -> listings.View:
        state = limit.state(db)
        fields = [
            *((what, _shown(value)) for what, value in _limits(state).items()),
            ("out", len(state.out)),
            ("waiting", state.waiting),
            *([("", waits_for(state, fdbqueue.Clock().wall_ms()))] if state.waiting else []),
        ]
        if isinstance(state, KeyState):
            below = listings.table(["slot", "message"], sorted(state.out.items()), [], "")
        else:
            rows: list[tuple[object, ...]] = [(n, *state.out[n]) for n in sorted(state.out)]
            rows += [("next", *each) for each in state.next]
            below = listings.table(["slot", "queue", "message"], rows, [], "")
        return listings.fields(fields, _state(state), below)

    listings.show(look, output)


def waits_for(state: LimitState | KeyState, now_ms: int) -> str:
    """What the messages of a limit wait for, for how long, and in which queues."""
    limits = state.limits if isinstance(state, KeyState) else state
    window = limits.places if isinstance(limits, KeyLimits) else None
    if limits.paused:
        reason = f"the {'key' if isinstance(state, KeyState) else 'limit'} is paused"
    elif limits.concurrency is not None and len(state.out) >= limits.concurrency:
        reason = f"waits for a slot: {len(state.out)} of {limits.concurrency} out"
    elif isinstance(state, KeyState) and window is not None and state.in_window >= window:
        reason = f"waits for a place in the window: {state.in_window} of {window} ready"
    elif limits.rate is not None:
        coming = max(0, (state.next_ms or now_ms) - now_ms)
        reason = f"waits for its rate: next in {terminal.age(coming)}"
    else:
        reason = "waits for the end of a message, since the limit has changed"
    if isinstance(state, KeyState):
        oldest = _since(state.oldest_ms, now_ms)
        return f"{reason}, the oldest {oldest}" if oldest else reason
    some = sum(state.waiting_in.values())
    queues = ", ".join(f"{count:,} in {name}" for name, count in sorted(state.waiting_in.items()))
    of = "" if some == state.waiting else f"of the first {some:,}, "
    since = "" if state.since_ms is None else f", for {_since(state.since_ms, now_ms)}"
    return f"{reason}{since}; {of}{queues}"


def _limits(state: LimitState | KeyState) -> dict[str, Any]:
    limits = state.limits if isinstance(state, KeyState) else state
    window = ("window", "weight") if isinstance(limits, KeyLimits) else ()
    return json_schema.fields(limits, "concurrency", *window, "rate", "paused")


def _state(state: LimitState | KeyState) -> dict[str, Any]:
    if isinstance(state, KeyState):
        return {
            "key": state.key,
            **_limits(state),
            "own": {**state.own},
            "out": [state.out[n] for n in sorted(state.out)],
            "waiting": state.waiting,
            **json_schema.known(state, "since_ms", "oldest_ms", "next_ms"),
        }
    return {
        **_listed(state),
        "out": [{"queue": queue, "id": each} for _, (queue, each) in sorted(state.out.items())],
        "next": [{"queue": queue, "id": each} for queue, each in state.next],
        "waiting_in": state.waiting_in,
        **({} if state.next_ms is None else {"next_at": json_schema.when(state.next_ms)}),
    }


@app.command("set")
def set_(
    name: Name,
    queue: OfQueue = None,
    concurrency: Annotated[
        str | None,
        Option(metavar="N", help="How many of its messages may be out at once; none: any."),
    ] = None,
    rate: Annotated[
        str | None,
        Option(metavar="RATE", help="How many of them become ready in how much time; none: any."),
    ] = None,
    window: Annotated[
        str | None,
        Option(metavar="N", help="How many of a key may be ready at once; none: all that are out."),
    ] = None,
    weight: Annotated[
        str | None,
        Option(metavar="N", help="How many turns a key gets where others get one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set a limit that queues share, or that of a key, or change it while they run.

    A shared limit counts the messages that are enqueued with it, in all queues of the root
    together. With --queue, it is that of one key; the limits of all other keys are the queue's
    options keys.concurrency, keys.window, keys.weight and keys.rate. A rate is a number and one of
    s, min, hour and day; after ", burst" how many may come at once after a rest.

    \b
    Examples:
      fdbq limit set api=stripe --concurrency 5
      fdbq limit set api=stripe --rate '100/min, burst 20'
      fdbq enqueue orders 'order 17' --limit api=stripe
      fdbq limit set tenant-17 --queue orders --concurrency none --window 2 --weight 3
    """
    given: dict[str, Any] = {}
    if concurrency is not None:
        given["concurrency"] = _number("--concurrency", concurrency)
    if window is not None:
        given["window"] = _number("--window", window)
    if weight is not None:
        given["weight"] = _whole("--weight", weight)
    if rate is not None:
        given["rate"] = None if rate == "none" else rate
    if not given:
        raise terminal.CommandError("give --concurrency, --rate, --window or --weight")
    if queue is None and not (window is weight is None):
        raise terminal.CommandError("--window and --weight are of a key: give --queue")
    db, limit = _opened(name, queue)
    limit.set(db, **given)
    _print(as_json, limit.state(db), queue)


def _number(option: str, text: str) -> int | None:
    return None if text == "none" else _whole(option, text, ", or none")


def _whole(option: str, text: str, otherwise: str = "") -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise terminal.CommandError(f"{option} {text}: write a number{otherwise}")
    return int(text)


@app.command()
def pause(name: Name, queue: OfQueue = None, as_json: AsJson = False) -> None:
    """Let no more messages of a limit become ready. Those that are ready are still delivered.

    \b
    Examples:
      fdbq limit pause api=stripe
      fdbq limit pause tenant-17 --queue orders
    """
    db, limit = _opened(name, queue)
    limit.pause(db)
    _print(as_json, limit.state(db), queue)


@app.command()
def resume(name: Name, queue: OfQueue = None, as_json: AsJson = False) -> None:
    """End the pause of a limit.

    \b
    Examples:
      fdbq limit resume api=stripe
      fdbq limit resume tenant-17 --queue orders
    """
    db, limit = _opened(name, queue)
    limit.resume(db)
    _print(as_json, limit.state(db), queue)


@app.command()
@grouped
def delete(name: Name, queue: OfQueue = None, *, change: ChangeOptions) -> None:
    """Delete a limit, a pause included.

    The messages of a shared one wait no more. For a key, the limits of its queue apply again.

    \b
    Examples:
      fdbq limit delete api=stripe --yes
      fdbq limit delete tenant-17 --queue orders --yes
    """
    from ...queue.keys.message_keys import Key

    db, limit = _opened(name, queue)
    state = limit.state(db)
    named = _named(state, queue)
    if not change.dry_run:
        change.confirm(f"Delete the {named} ({terminal.count(state.waiting, 'message')} waiting)?")
        limit.reset(db) if isinstance(limit, Key) else limit.delete(db)
    change.print_result(
        {**_state(state), "deleted": not change.dry_run},
        f"{change.verb('delete', 'deleted')} {named}",
    )


def _print(as_json: bool, state: LimitState | KeyState, queue: str | None) -> None:
    usual = {"window": None, "weight": 1, "rate": None, "paused": False}
    shown = [
        _limit(name, value)
        for name, value in _limits(state).items()
        if name not in usual or value != usual[name]
    ]
    terminal.print_result(
        as_json,
        {"queue": queue, **_state(state)} if isinstance(state, KeyState) else _listed(state),
        f"{_named(state, queue)}: {', '.join(shown)}, {state.waiting:,} waiting",
    )
