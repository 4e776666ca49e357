"""``fdbq subscription …``: the subscriptions of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from .. import context, json_schema, listings, output, terminal
from ..commands import Group
from ..output import Done, Listed, Result
from ..parameters import (
    ChangeOptions,
    Match,
    PageOptions,
    QueueName,
    SubscriptionName,
    argument,
    flag,
    option,
)

PLACES = "first, now (after all existing messages), or a message's id."
COUNTED = 1_000
"""How many messages are counted that a subscription has not seen."""

app = Group("subscription", "Create, list, move and delete subscriptions.")


@app.command()
def create(
    name: QueueName,
    subscription: str = argument("NAME", "Name of the new subscription."),
    mode: Literal["acquire", "browse"] = option(
        "MODE", "acquire takes messages; browse sees each of them once.", "acquire"
    ),
    match: Match = None,
    exclusive: bool = flag("Allow one consumer at a time.", "--exclusive"),
    auto_close: bool = flag("Delete it once it has reached the end of the queue.", "--auto-close"),
    start: str = option("PLACE", f"Where it starts: {PLACES}", "first"),
) -> Done:
    """Create a subscription.

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
    value = {"queue": name, **json_schema.subscription_json(made.definition(db))}
    return Result(value, f"created subscription {subscription}")


@app.command("list")
def list_(name: QueueName, *, page: PageOptions) -> Listed:
    """List the subscriptions of a queue, and how far each has come.

    That is the index of the last message that it has passed in each level; and how many ready
    messages it has still to see, counted up to 1,000.

    Examples:
      fdbq subscription list orders
      fdbq subscription list orders --watch 1 --json
    """
    from fdbqueue.queue.admin import finding

    db, queue = context.open_queue(name)

    def look() -> output.View:
        subscriptions = queue.subscriptions.list(db)
        found, more = listings.page(subscriptions, lambda each: each.name, "subscription", page)
        rows, values = [], []
        for each in found:
            opened = queue.subscriptions.open(db, each.name, create=False)
            places, lag = _places(opened.positions(db)), finding.lag(db, queue, each.name, COUNTED)
            passed = " ".join(f"{level}:{index}" for level, index in places.items())
            terms = each.mode.value, each.exclusive, each.auto_close
            selector = "" if each.selector is None else each.selector.text
            rows.append((each.name, *terms, passed, lag, selector))
            values.append({**json_schema.subscription_json(each), "places": places, "lag": lag})
        headers = ["name", "mode", "exclusive", "auto close", "passed", "lag", "selector"]
        return output.table(headers, rows, values, f"queue {name} has no subscriptions", more)

    return look


def _places(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(level): index for level, index in sorted(positions.items()) if index}


@app.command()
def seek(
    name: QueueName,
    subscription: SubscriptionName,
    place: str = argument("PLACE", f"Where to continue: {PLACES}"),
) -> Done:
    """Move a subscription to another place in its queue.

    A message's id moves it only within the level of that message.

    Examples:
      fdbq subscription seek orders audit first
      fdbq subscription seek orders audit 05-000000000001-83ca4e58174f03bb
    """
    db, queue = context.open_queue(name)
    queue.subscriptions.open(db, subscription, create=False).seek(db, place)
    value = {"queue": name, "subscription": subscription, "place": place}
    return Result(value, f"subscription {subscription} continues from {place}")


@app.command()
def delete(name: QueueName, subscription: SubscriptionName, *, change: ChangeOptions) -> Done:
    """Delete a subscription and its position. Its messages and leases stay.

    Example:
      fdbq subscription delete orders eu --yes
    """
    db, queue = context.open_queue(name)
    found = queue.subscriptions.open(db, subscription, create=False)
    remove = partial(found.remove, db)
    return change.remove("delete", "deleted", "subscription", name, subscription, remove)
