"""``fdbq subscription …``: the subscriptions of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

from typer import Argument, Option, Typer

from .. import context, json_schema, listings, terminal
from ..parameters import (
    AsJson,
    ChangeOptions,
    ListOutput,
    Match,
    PageOptions,
    QueueName,
    SubscriptionName,
    grouped,
)

PLACES = "first, now (after all existing messages), or a message's id."

COUNTED = 1_000
"""How many messages are counted that a subscription has not seen."""

app = Typer(
    name="subscription",
    help="Create, list, move and delete subscriptions.",
    no_args_is_help=True,
)


@app.command()
def create(
    name: QueueName,
    subscription: Annotated[str, Argument(metavar="NAME", help="Name of the new subscription.")],
    mode: Annotated[
        Literal["acquire", "browse"],
        Option(metavar="MODE", help="acquire takes messages; browse sees each of them once."),
    ] = "acquire",
    match: Match = None,
    exclusive: Annotated[bool, Option("--exclusive", help="Allow one consumer at a time.")] = False,
    auto_close: Annotated[
        bool,
        Option("--auto-close", help="Delete it once it has reached the end of the queue."),
    ] = False,
    start: Annotated[str, Option(metavar="PLACE", help=f"Where it starts: {PLACES}")] = "first",
    as_json: AsJson = False,
) -> None:
    """Create a subscription.

    \b
    Examples:
      fdbq subscription create orders eu --match "region = 'eu'"
      fdbq subscription create orders audit --mode browse --start now
    """
    db, queue = context.open_queue(name)
    if any(each.name == subscription for each in queue.subscriptions.list(db)):
        raise terminal.CommandError(
            f"queue {name!r} already has a subscription {subscription!r}", 1
        )
    made = queue.subscriptions.open(
        db,
        subscription,
        mode=mode,
        selector=match,
        exclusive=exclusive,
        auto_close=auto_close,
        start=start,
    )
    terminal.print_result(
        as_json,
        {"queue": name, **json_schema.subscription_json(made.definition(db))},
        f"created subscription {subscription}",
    )


@app.command("list")
@grouped
def list_(name: QueueName, *, page: PageOptions, output: ListOutput) -> None:
    """List the subscriptions of a queue, and how far each has come.

    That is the index of the last message that it has passed in each level; and how many ready
    messages it has still to see, counted up to 1,000.

    \b
    Examples:
      fdbq subscription list orders
      fdbq subscription list orders --watch 1 --json
    """
    from fdbqueue.queue.admin import finding

    db, queue = context.open_queue(name)

    def look() -> listings.View:
        subscriptions = queue.subscriptions.list(db)
        found, more = listings.page(subscriptions, lambda each: each.name, "subscription", page)
        rows, values = [], []
        for each in found:
            opened = queue.subscriptions.open(db, each.name, create=False)
            places = _places(opened.positions(db))
            lag = finding.lag(db, queue, each.name, COUNTED)
            passed = " ".join(f"{level}:{index}" for level, index in places.items())
            selector = "" if each.selector is None else each.selector.text
            terms = each.mode.value, each.exclusive, each.auto_close
            rows.append((each.name, *terms, passed, lag, selector))
            values.append({**json_schema.subscription_json(each), "places": places, "lag": lag})
        headers = ["name", "mode", "exclusive", "auto close", "passed", "lag", "selector"]
        empty = f"queue {name} has no subscriptions"
        return listings.table(headers, rows, values, empty, more)

    listings.show(look, output)


def _places(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(level): index for level, index in sorted(positions.items()) if index}


@app.command()
def seek(
    name: QueueName,
    subscription: SubscriptionName,
    place: Annotated[str, Argument(metavar="PLACE", help=f"Where to continue: {PLACES}")],
    as_json: AsJson = False,
) -> None:
    """Move a subscription to another place in its queue.

    A message's id moves it only within the level of that message.

    \b
    Examples:
      fdbq subscription seek orders audit first
      fdbq subscription seek orders audit 05-000000000001-83ca4e58174f03bb
    """
    db = context.connect()
    context.queue(name).subscriptions.open(db, subscription, create=False).seek(db, place)
    terminal.print_result(
        as_json,
        {"queue": name, "subscription": subscription, "place": place},
        f"subscription {subscription} continues from {place}",
    )


@app.command()
@grouped
def delete(name: QueueName, subscription: SubscriptionName, *, change: ChangeOptions) -> None:
    """Delete a subscription and its position. Its messages and leases stay.

    \b
    Example:
      fdbq subscription delete orders eu --yes
    """
    db = context.connect()
    found = context.queue(name).subscriptions.open(db, subscription, create=False)
    remove = partial(found.remove, db)
    change.remove("delete", "deleted", "subscription", name, subscription, remove)
