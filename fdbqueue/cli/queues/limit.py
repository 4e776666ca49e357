"""``fdbq limit …``: limits that queues share, and those of a queue's keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

import fdbqueue

from ...values.limits import KeyBacklog, KeyState, LimitState, LimitSummary, OwnLimits
from .. import context, json_schema, listings, output, terminal
from ..commands import Group
from ..output import Done, Listed, Result, Shown
from ..parameters import ChangeOptions, PageOptions, option, pair, queue_option

if TYPE_CHECKING:
    from ...queue.keys.message_keys import Key
    from ...queue.keys.shared_limits import Limits, SharedLimit

app = Group(
    "limit",
    "List, show, set, pause and delete limits: those that queues share, and those of keys.",
)

Name = Annotated[
    str,
    Argument(
        metavar="LIMIT",
        help="DIMENSION=NAME, such as api=stripe; with --queue, a key of the queue.",
    ),
]
OF_QUEUE = queue_option("The limits of keys of this queue.")
State = KeyState | LimitState


def _shared() -> Limits:
    from ...queue.keys.shared_limits import Limits  # help and completion need no store

    return Limits(context.subspace())


def _opened(name: str, queue: str | None) -> tuple[fdbqueue.fdb.Database, SharedLimit | Key]:
    if queue is not None:
        db, found = context.open_queue(queue)
        return db, found.keys[name]
    dimension, limit = pair("LIMIT", name, "DIMENSION=NAME, or give --queue for a key")
    return context.connect(), _shared()[dimension, limit]


def _named(state: State, queue: str | None) -> str:
    if isinstance(state, KeyState):
        return f"key {state.key} of queue {queue}"
    return f"limit {state.dimension}={state.name}"


@app.command("list")
def list_(queue: str | None = OF_QUEUE, *, page: PageOptions) -> Listed:
    """List the limits that are set, and those for which messages wait.

    With --queue, those of its keys: a key for which no message waits, and without limits of its
    own, is not stored. Without --max, the first 100 are listed. --after takes a LIMIT.

    Examples:
      fdbq limit list
      fdbq limit list --queue orders --max 20 --json
    """
    if queue is not None:
        return _keys(queue, page)
    after = None if page.after is None else pair("--after", page.after, "DIMENSION=NAME")
    read, place = partial(_shared().list, context.connect()), attrgetter("dimension", "name")

    def row(each: LimitSummary, now_ms: int) -> tuple[object, ...]:
        places = "paused" if each.paused else _shown(each.concurrency)
        waits = each.waiting, terminal.since(each.since_ms, now_ms)
        return each.dimension, each.name, places, _shown(each.rate), *waits

    headers = ["dimension", "name", "concurrency", "rate", "waiting", "for"]
    nothing = "no limit is set, and no message waits for one"
    listed = partial(listings.listing, "limit", read, place, headers, row, _json, nothing)
    return listed(page, after, lambda each: "=".join(place(each)))


ListedKey = tuple[str, KeyBacklog | None, OwnLimits]


def _keys(name: str, page: PageOptions) -> Callable[[], output.View]:
    db, queue = context.open_queue(name)

    def read(most: int, after: str | None) -> list[ListedKey]:
        waiting = {each.key: each for each in queue.keys.waiting(db, most, after=after)}
        limited = queue.keys.limited(db, most, after=after)
        # Each of the two lists has enough: what is past the first page of both cannot be on this
        # one.
        found = sorted({*waiting, *limited})[:most]
        return [(key, waiting.get(key), limited.get(key, {})) for key in found]

    def row(each: ListedKey, now_ms: int) -> tuple[object, ...]:
        key, backlog, own = each
        waits: tuple[object, ...] = 0, ""
        if backlog is not None:
            waits = backlog.waiting, terminal.since(backlog.since_ms, now_ms)
        return key, *waits, ", ".join(_limit(name, value) for name, value in own.items())

    def json(each: ListedKey) -> dict[str, Any]:
        key, backlog, own = each
        waits = json_schema.known(backlog, "waiting", "since_ms") if backlog else {"waiting": 0}
        return {"key": key, **waits, "limits": {**own}}

    headers = ["key", "waiting", "for", "own limits"]
    nothing = f"no message of queue {name} waits for a slot, and no key has limits of its own"
    return listings.listing("key", read, lambda each: each[0], headers, row, json, nothing, page)


def _limit(name: str, value: object) -> str:
    return name if name == "paused" else f"{name} {_shown(value)}"


def _shown(value: object) -> object:
    return "none" if value is None else value


@app.command()
def show(name: Name, queue: str | None = OF_QUEUE) -> Shown:
    """Show what is out of a limit, in which queues, how many messages wait, and for what.

    Examples:
      fdbq limit show api=stripe --watch 1
      fdbq limit show tenant-17 --queue orders
    """
    db, limit = _opened(name, queue)

    def look() -> output.View:
        from ...queue.admin import backlogs

        state = limit.state(db)
        why = backlogs.waits_for(state, fdbqueue.Clock().wall_ms())
        fields = [
            *((what, _shown(value)) for what, value in _limits(state).items()),
            ("out", len(state.out)),
            ("waiting", state.waiting),
            *([("", why)] if state.waiting else []),
        ]
        rows: list[tuple[object, ...]]
        if isinstance(state, KeyState):
            headers, rows = ["slot", "message"], [*sorted(state.out.items())]
        else:
            headers = ["slot", "queue", "message"]
            rows = [(n, *state.out[n]) for n in sorted(state.out)]
            rows += [("next", *each) for each in state.next]
        return output.fields(fields, _json(state), output.table(headers, rows, [], ""))

    return look


def _limits(state: State | LimitSummary) -> dict[str, Any]:
    if isinstance(state, KeyState):
        names = ("concurrency", "window", "weight", "rate", "paused")
        return json_schema.fields(state.limits, *names)
    return json_schema.fields(state, "concurrency", "rate", "paused")


def _json(state: State | LimitSummary) -> dict[str, Any]:
    if isinstance(state, KeyState):
        out = {"own": {**state.own}, "out": [state.out[n] for n in sorted(state.out)]}
        times = json_schema.known(state, "since_ms", "oldest_ms", "next_ms")
        return {"key": state.key, **_limits(state), **out, "waiting": state.waiting, **times}
    names = json_schema.fields(state, "dimension", "name", "waiting")
    found = {**names, **_limits(state), **json_schema.known(state, "since_ms")}
    if isinstance(state, LimitSummary):
        return found
    return {
        **found,
        "out": [{"queue": queue, "id": each} for _, (queue, each) in sorted(state.out.items())],
        "next": [{"queue": queue, "id": each} for queue, each in state.next],
        "waiting_in": state.waiting_in,
        **({} if state.next_ms is None else {"next_at": json_schema.when(state.next_ms)}),
    }


@app.command("set")
def set_(
    name: Name,
    queue: str | None = OF_QUEUE,
    concurrency: str | None = option(
        "N", "How many of its messages may be out at once; none: any."
    ),
    rate: str | None = option("RATE", "How many of them become ready in how much time; none: any."),
    window: str | None = option(
        "N", "How many of a key may be ready at once; none: all that are out."
    ),
    weight: str | None = option("N", "How many turns a key gets where others get one."),
) -> Done:
    """Set a limit that queues share, or that of a key, or change it while they run.

    A shared limit counts the messages that are enqueued with it, in all queues of the root
    together. With --queue, it is that of one key; the limits of all other keys are the queue's
    options keys.concurrency, keys.window, keys.weight and keys.rate. A rate is a number and one of
    s, min, hour and day; after ", burst" how many may come at once after a rest.

    Examples:
      fdbq limit set api=stripe --concurrency 5
      fdbq limit set api=stripe --rate '100/min, burst 20'
      fdbq enqueue orders 'order 17' --limit api=stripe
      fdbq limit set tenant-17 --queue orders --concurrency none --window 2 --weight 3
    """
    texts = {"concurrency": concurrency, "window": window, "weight": weight, "rate": rate}
    given: Any = {name: _term(name, text) for name, text in texts.items() if text is not None}
    if not given:
        raise terminal.CommandError("give --concurrency, --rate, --window or --weight")
    if queue is None and not (window is weight is None):
        raise terminal.CommandError("--window and --weight are of a key: give --queue")
    db, limit = _opened(name, queue)
    limit.set(db, **given)
    return _result(limit.state(db), queue)


def _term(name: str, text: str) -> int | str | None:
    if text == "none" and name != "weight":
        return None
    if name == "rate":
        return text
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        otherwise = "" if name == "weight" else ", or none"
        raise terminal.CommandError(f"--{name} {text}: write a number{otherwise}")
    return int(text)


@app.command()
def pause(name: Name, queue: str | None = OF_QUEUE) -> Done:
    """Let no more messages of a limit become ready. Those that are ready are still delivered.

    Examples:
      fdbq limit pause api=stripe
      fdbq limit pause tenant-17 --queue orders
    """
    db, limit = _opened(name, queue)
    limit.pause(db)
    return _result(limit.state(db), queue)


@app.command()
def resume(name: Name, queue: str | None = OF_QUEUE) -> Done:
    """End the pause of a limit.

    Examples:
      fdbq limit resume api=stripe
      fdbq limit resume tenant-17 --queue orders
    """
    db, limit = _opened(name, queue)
    limit.resume(db)
    return _result(limit.state(db), queue)


@app.command()
def delete(name: Name, queue: str | None = OF_QUEUE, *, change: ChangeOptions) -> Done:
    """Delete a limit, a pause included.

    The messages of a shared one wait no more. For a key, the limits of its queue apply again.

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
    value = {**_json(state), "deleted": not change.dry_run}
    return Result(value, f"{change.verb('delete', 'deleted')} {named}")


def _result(state: State, queue: str | None) -> Result:
    usual = {"window": None, "weight": 1, "rate": None, "paused": False}
    shown = [
        _limit(name, value)
        for name, value in _limits(state).items()
        if name not in usual or value != usual[name]
    ]
    found = _json(state)
    if isinstance(state, LimitState):
        found = {
            name: found[name]
            for name in found
            if name not in ("out", "next", "waiting_in", "next_at")
        }
    return Result(
        {"queue": queue, **found} if isinstance(state, KeyState) else found,
        f"{_named(state, queue)}: {', '.join(shown)}, {state.waiting:,} waiting",
    )
