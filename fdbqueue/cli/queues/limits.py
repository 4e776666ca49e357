"""``fdbq limit …``: the limits that queues share, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

import fdbqueue

from ...values.limits import LimitState, LimitSummary
from .. import context, json_schema, listings, terminal
from ..parameters import AsJson, Change, ListOutput, Output, Page, grouped, pair
from .keys import number

if TYPE_CHECKING:
    from ...queue.keys.limits import Limits, Shared, SharedLimit

LISTED = 100

app = Typer(
    name="limit",
    help="List the limits that queues share, show who waits for whom, and set them.",
    no_args_is_help=True,
)

Dimension = Annotated[str, Argument(metavar="DIMENSION", help="What is limited, such as api.")]
Name = Annotated[str, Argument(metavar="NAME", help="The limit, such as stripe.")]


def _limits() -> tuple[fdbqueue.fdb.Database, Limits]:
    from ...queue.keys.limits import Limits  # help and completion need no store

    return context.connect(), Limits(context.subspace())


def _limit(dimension: str, name: str) -> tuple[fdbqueue.fdb.Database, SharedLimit]:
    db, limits = _limits()
    return db, limits[dimension, name]


@app.command("list")
@grouped
def list_(*, page: Page, output: ListOutput) -> None:
    """List the limits that are set, and those for which messages wait.

    Without --max, the first 100 are listed. --after takes DIMENSION=NAME.

    \b
    Examples:
      fdbq limit list
      fdbq limit list --max 20 --json
    """
    db, limits = _limits()
    most = page.limit or LISTED
    after = None if page.after is None else pair("--after", page.after, "DIMENSION=NAME")

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().wall_ms()
        rows = limits.list(db, most + 1, after=after)
        found = rows[:most]
        last = f"{found[-1].dimension}={found[-1].name}" if found else ""
        return listings.table(
            ["dimension", "name", "concurrency", "rate", "waiting", "for"],
            [_row(each, now_ms) for each in found],
            [_listed(each) for each in found],
            "no limit is set, and no message waits for one",
            listings.more("limit", most, last) if len(rows) > most else None,
        )

    listings.show(look, output)


def _row(found: LimitSummary, now_ms: int) -> tuple[object, ...]:
    waits = "" if found.since_ms is None else terminal.age(now_ms - found.since_ms)
    concurrency = "paused" if found.paused else _number(found.concurrency)
    return found.dimension, found.name, concurrency, found.rate or "none", found.waiting, waits


def _number(concurrency: int | None) -> object:
    return "none" if concurrency is None else concurrency


def _listed(found: LimitSummary | LimitState) -> dict[str, Any]:
    return {
        "dimension": found.dimension,
        "name": found.name,
        "concurrency": found.concurrency,
        "paused": found.paused,
        "rate": found.rate,
        "waiting": found.waiting,
        **({} if found.since_ms is None else {"since": json_schema.when(found.since_ms)}),
    }


@app.command()
@grouped
def show(dimension: Dimension, name: Name, *, output: Output) -> None:
    """Show what is out of a limit, in which queues, and who waits.

    \b
    Examples:
      fdbq limit show api stripe
      fdbq limit show api stripe --watch 1
    """
    db, limit = _limit(dimension, name)

    def look() -> listings.View:
        state = limit.state(db)
        fields = [
            ("concurrency", _number(state.concurrency)),
            ("rate", state.rate or "none"),
            ("paused", state.paused),
            ("out", len(state.out)),
            ("waiting", state.waiting),
            *([("", waits_for(state, fdbqueue.Clock().wall_ms()))] if state.waiting else []),
        ]
        rows: list[tuple[object, ...]] = [(n, *state.out[n]) for n in sorted(state.out)]
        rows += [("next", *each) for each in state.next]
        below = listings.table(["slot", "queue", "message"], rows, [], "")
        return listings.fields(fields, _state(state), below)

    listings.show(look, output)


def waits_for(state: LimitState, now_ms: int) -> str:
    """What the messages of a limit wait for, for how long, and in which queues."""
    if state.paused:
        reason = "the limit is paused"
    elif state.concurrency is not None and len(state.out) >= state.concurrency:
        reason = f"waits for a slot: {len(state.out)} of {state.concurrency} out"
    elif state.rate is not None:
        coming = max(0, (state.next_ms or now_ms) - now_ms)
        reason = f"waits for its rate: next in {terminal.age(coming)}"
    else:
        reason = "waits for the end of a message, since the limit has changed"
    some = sum(state.waiting_in.values())
    queues = ", ".join(f"{count:,} in {name}" for name, count in sorted(state.waiting_in.items()))
    of = "" if some == state.waiting else f"of the first {some:,}, "
    since = "" if state.since_ms is None else f", for {terminal.age(now_ms - state.since_ms)}"
    return f"{reason}{since}; {of}{queues}"


def _state(state: LimitState) -> dict[str, Any]:
    named = [{"queue": queue, "id": each} for queue, each in state.next]
    return {
        **_listed(state),
        "out": [{"queue": queue, "id": each} for _, (queue, each) in sorted(state.out.items())],
        "next": named,
        "waiting_in": state.waiting_in,
        **({} if state.next_ms is None else {"next_at": json_schema.when(state.next_ms)}),
    }


@app.command("set")
def set_(
    dimension: Dimension,
    name: Name,
    concurrency: Annotated[
        str | None,
        Option(metavar="N", help="How many of its messages may be out at once; none: any."),
    ] = None,
    rate: Annotated[
        str | None,
        Option(metavar="RATE", help="How many of them become ready in how much time; none: any."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Set a limit that queues share, or change it while they run.

    It counts the messages that are enqueued with it, in all queues of the root together. A rate
    is a number and one of s, min, hour and day.

    \b
    Examples:
      fdbq limit set api stripe --concurrency 5
      fdbq limit set api stripe --rate '100/min, burst 20'
      fdbq enqueue orders 'order 17' --limit api=stripe
    """
    shared: Shared = {}
    if concurrency is not None:
        shared["concurrency"] = number("--concurrency", concurrency)
    if rate is not None:
        shared["rate"] = None if rate == "none" else rate
    if not shared:
        raise terminal.CommandError("give --concurrency or --rate")
    db, limit = _limit(dimension, name)
    _print(as_json, limit.set(db, **shared))


@app.command()
def pause(dimension: Dimension, name: Name, as_json: AsJson = False) -> None:
    """Let no more messages of a limit become ready. Those that are ready are still delivered.

    \b
    Example:
      fdbq limit pause api stripe
    """
    db, limit = _limit(dimension, name)
    _print(as_json, limit.pause(db))


@app.command()
def resume(dimension: Dimension, name: Name, as_json: AsJson = False) -> None:
    """End the pause of a limit.

    \b
    Example:
      fdbq limit resume api stripe
    """
    db, limit = _limit(dimension, name)
    _print(as_json, limit.resume(db))


@app.command()
@grouped
def delete(dimension: Dimension, name: Name, *, change: Change) -> None:
    """Delete a limit, a pause included: its messages wait no more, and all become ready.

    \b
    Example:
      fdbq limit delete api stripe --yes
    """
    db, limit = _limit(dimension, name)
    state, named = limit.state(db), f"{dimension}={name}"
    if not change.dry_run:
        waiting = terminal.count(state.waiting, "message")
        change.confirm(f"Delete limit {named}, for which {waiting} wait?")
        limit.delete(db)
    change.print_result(
        {**_listed(state), "deleted": not change.dry_run},
        f"{change.verb('delete', 'deleted')} limit {named}",
    )


def _print(as_json: bool, state: LimitState) -> None:
    rate = "" if state.rate is None else f", rate {state.rate}"
    shown = f"concurrency {_number(state.concurrency)}{rate}{', paused' if state.paused else ''}"
    terminal.print_result(
        as_json,
        _listed(state),
        f"limit {state.dimension}={state.name}: {shown}, {state.waiting:,} waiting",
    )
