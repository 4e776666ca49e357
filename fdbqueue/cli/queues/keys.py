"""``fdbq key …``: the keys of a queue, their limits, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

import fdbqueue

from ...values.limits import KeyBacklog, KeyLimits, KeyState, OwnLimits
from .. import context, json_schema, listings, terminal
from ..parameters import AsJson, ListOutput, Output, Page, QueueName, grouped

if TYPE_CHECKING:
    from ...queue.keys.keys import Key

LISTED = 100

app = Typer(
    name="key",
    help="List keys, show who waits for whom, and set their limits.",
    no_args_is_help=True,
)

KeyName = Annotated[str, Argument(metavar="KEY", help="The key of messages.")]


@app.command("list")
@grouped
def list_(name: QueueName, *, page: Page, output: ListOutput) -> None:
    """List the keys of which messages wait for a slot, and those with limits of their own.

    A key without either is not stored. Without --max, the first 100 are listed.

    \b
    Examples:
      fdbq key list orders
      fdbq key list orders --max 20 --json
    """
    db, queue = context.open_queue(name)
    limit = page.limit or LISTED

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().wall_ms()
        waiting = {each.key: each for each in queue.keys.waiting(db, limit + 1, after=page.after)}
        limited = queue.keys.limited(db, limit + 1, after=page.after)
        names = sorted({*waiting, *limited})
        found = names[:limit]
        return listings.table(
            ["key", "waiting", "for", "own limits"],
            [(key, *_waits(waiting.get(key), now_ms), _own(limited.get(key))) for key in found],
            [_listed(key, waiting.get(key), limited.get(key)) for key in found],
            f"no message of queue {name} waits for a slot, and no key has limits of its own",
            listings.more("key", limit, found[-1]) if len(names) > limit else None,
        )

    listings.show(look, output)


def _waits(backlog: KeyBacklog | None, now_ms: int) -> tuple[object, object]:
    if backlog is None:
        return 0, ""
    return backlog.waiting, terminal.age(now_ms - backlog.since_ms)


def _own(own: OwnLimits | None) -> str:
    return ", ".join(_limit(name, value) for name, value in (own or {}).items())


def _limit(name: str, value: object) -> str:
    return name if name == "paused" else f"{name} {'none' if value is None else value}"


def _listed(key: str, backlog: KeyBacklog | None, own: OwnLimits | None) -> dict[str, Any]:
    since = {} if backlog is None else {"since": json_schema.when(backlog.since_ms)}
    return {
        "key": key,
        "waiting": 0 if backlog is None else backlog.waiting,
        **since,
        "limits": {**(own or {})},
    }


@app.command()
@grouped
def show(name: QueueName, key: KeyName, *, output: Output) -> None:
    """Show what is out of a key, how many of its messages wait, and for what.

    \b
    Examples:
      fdbq key show orders tenant-17
      fdbq key show orders tenant-17 --watch 1
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        state = queue.keys[key].state(db)
        limits = state.limits
        fields = [
            ("concurrency", "none" if limits.concurrency is None else limits.concurrency),
            ("window", "none" if limits.window is None else limits.window),
            ("weight", limits.weight),
            ("rate", limits.rate or "none"),
            ("paused", limits.paused),
            ("out", len(state.out)),
            ("waiting", state.waiting),
            *([("", waits_for(state, fdbqueue.Clock().wall_ms()))] if state.waiting else []),
        ]
        below = listings.table(["slot", "message"], sorted(state.out.items()), [], "")
        return listings.fields(fields, _state(state), below)

    listings.show(look, output)


def waits_for(state: KeyState, now_ms: int) -> str:
    """What the messages of a key wait for, and how long the first has waited."""
    limits = state.limits
    slots, window = limits.concurrency, limits.places
    if limits.paused:
        reason = "the key is paused"
    elif slots is not None and len(state.out) >= slots:
        reason = f"waits for a slot: {len(state.out)} of {slots} out"
    elif window is not None and state.in_window >= window:
        reason = f"waits for a place in the window: {state.in_window} of {window} ready"
    elif limits.rate is not None:
        coming = max(0, (state.next_ms or now_ms) - now_ms)
        reason = f"waits for its rate: next in {terminal.age(coming)}"
    else:
        reason = "waits for the end of a message, since the limits have changed"
    if state.oldest_ms is None:
        return reason
    return f"{reason}, the oldest {terminal.age(now_ms - state.oldest_ms)}"


def _state(state: KeyState) -> dict[str, Any]:
    times = {"since": state.since_ms, "oldest": state.oldest_ms, "next": state.next_ms}
    return {
        "key": state.key,
        **_limits(state.limits),
        "own": {**state.own},
        "out": [state.out[n] for n in sorted(state.out)],
        "waiting": state.waiting,
        **{name: json_schema.when(at) for name, at in times.items() if at is not None},
    }


def _limits(limits: KeyLimits) -> dict[str, Any]:
    return {
        "concurrency": limits.concurrency,
        "window": limits.window,
        "weight": limits.weight,
        "paused": limits.paused,
        "rate": limits.rate,
    }


@app.command("set")
def set_(
    name: QueueName,
    key: KeyName,
    concurrency: Annotated[
        str | None,
        Option(metavar="N", help="How many messages of the key may be out at once; none: any."),
    ] = None,
    window: Annotated[
        str | None,
        Option(metavar="N", help="How many of them may be ready at once; none: all that are out."),
    ] = None,
    weight: Annotated[
        str | None,
        Option(metavar="N", help="How many turns the key gets where others get one."),
    ] = None,
    rate: Annotated[
        str | None,
        Option(metavar="RATE", help="How many of them become ready in how much time; none: any."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Give a key limits of its own, while the queue runs.

    The limits of all other keys are the queue's options key_concurrency, key_window,
    key_weight and key_rate. A rate is a number and one of s, min, hour and day; after ", burst"
    how many may come at once after a rest.

    \b
    Examples:
      fdbq key set orders tenant-17 --concurrency 5
      fdbq key set orders tenant-17 --concurrency none --window 2
      fdbq key set orders tenant-17 --weight 3
      fdbq key set orders tenant-17 --rate '100/min, burst 20'
    """
    own: OwnLimits = {}
    if concurrency is not None:
        own["concurrency"] = number("--concurrency", concurrency)
    if window is not None:
        own["window"] = number("--window", window)
    if weight is not None:
        own["weight"] = _whole("--weight", weight)
    if rate is not None:
        own["rate"] = None if rate == "none" else rate
    if not own:
        raise terminal.CommandError("give --concurrency, --window, --weight or --rate")
    db, queue = context.open_queue(name)
    _print(as_json, name, queue.keys[key], queue.keys[key].set(db, **own))


def number(option: str, text: str) -> int | None:
    """A number of an option, or none."""
    return None if text == "none" else _whole(option, text, ", or none")


def _whole(option: str, text: str, otherwise: str = "") -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise terminal.CommandError(f"{option} {text}: write a number{otherwise}")
    return int(text)


@app.command()
def pause(name: QueueName, key: KeyName, as_json: AsJson = False) -> None:
    """Let no more messages of a key become ready. Those that are ready are still delivered.

    \b
    Example:
      fdbq key pause orders tenant-17
    """
    db, queue = context.open_queue(name)
    _print(as_json, name, queue.keys[key], queue.keys[key].pause(db))


@app.command()
def resume(name: QueueName, key: KeyName, as_json: AsJson = False) -> None:
    """End the pause of a key.

    \b
    Example:
      fdbq key resume orders tenant-17
    """
    db, queue = context.open_queue(name)
    _print(as_json, name, queue.keys[key], queue.keys[key].resume(db))


@app.command()
def reset(name: QueueName, key: KeyName, as_json: AsJson = False) -> None:
    """Drop a key's own limits, a pause included: those of the queue apply.

    \b
    Example:
      fdbq key reset orders tenant-17
    """
    db, queue = context.open_queue(name)
    _print(as_json, name, queue.keys[key], queue.keys[key].reset(db))


def _print(as_json: bool, queue: str, key: Key, limits: KeyLimits) -> None:
    shown = [_limit("concurrency", limits.concurrency)]
    shown += [_limit("window", limits.window)] if limits.window is not None else []
    shown += [_limit("weight", limits.weight)] if limits.weight > 1 else []
    shown += [_limit("rate", limits.rate)] if limits.rate is not None else []
    shown += ["paused"] if limits.paused else []
    terminal.print_result(
        as_json,
        {"queue": queue, "key": key.name, **_limits(limits)},
        f"key {key.name} of queue {queue}: {', '.join(shown)}",
    )
