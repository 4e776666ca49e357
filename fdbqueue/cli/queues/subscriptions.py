"""``fdbq subscription …``: the subscriptions of a queue."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument, Option, Typer

from .. import context, json_schema, listings, terminal
from ..parameters import (
    AsJson,
    Change,
    ListOutput,
    Match,
    Output,
    Page,
    QueueName,
    SubscriptionName,
    grouped,
)

PLACES = "first, now (after all existing messages), or a message's id."

app = Typer(
    name="subscription",
    help="Create, list, show, move and delete subscriptions.",
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
    made = queue.subscribe(
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
def list_(name: QueueName, *, page: Page, output: ListOutput) -> None:
    """List the subscriptions of a queue.

    \b
    Example:
      fdbq subscription list orders
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        subscriptions = queue.subscriptions.list(db)
        found, more = listings.page(subscriptions, lambda each: each.name, "subscription", page)
        return listings.table(
            ["name", "mode", "exclusive", "auto close", "selector"],
            [
                (
                    each.name,
                    each.mode.value,
                    each.exclusive,
                    each.auto_close,
                    "" if each.selector is None else each.selector.text,
                )
                for each in found
            ],
            [*map(json_schema.subscription_json, found)],
            f"queue {name} has no subscriptions",
            more,
        )

    listings.show(look, output)


@app.command()
@grouped
def show(name: QueueName, subscription: SubscriptionName, *, output: Output) -> None:
    """Show a subscription and how far it has come.

    That is the index of the last message it has passed in each level.

    \b
    Examples:
      fdbq subscription show orders eu
      fdbq subscription show orders audit --watch 1
    """
    db = context.connect()
    found = context.queue(name).subscriptions.open(db, subscription)

    def look() -> listings.View:
        value = json_schema.subscription_json(found.definition(db))
        places = {
            str(level): index for level, index in sorted(found.positions(db).items()) if index
        }
        fields = [
            *((field.replace("_", " "), text) for field, text in value.items()),
            *((f"passed in level {level}", index) for level, index in places.items()),
        ]
        return listings.fields(fields, {"queue": name, **value, "places": places})

    listings.show(look, output)


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
    context.queue(name).subscriptions.open(db, subscription).seek(db, place)
    terminal.print_result(
        as_json,
        {"queue": name, "subscription": subscription, "place": place},
        f"subscription {subscription} continues from {place}",
    )


@app.command()
@grouped
def delete(name: QueueName, subscription: SubscriptionName, *, change: Change) -> None:
    """Delete a subscription and its position. Its messages and leases stay.

    \b
    Example:
      fdbq subscription delete orders eu --yes
    """
    db = context.connect()
    found = context.queue(name).subscriptions.open(db, subscription)
    if not change.dry_run:
        change.confirm(f"Delete subscription {subscription!r} of queue {name!r}?")
        found.remove(db)
    change.print_result(
        {"queue": name, "subscription": subscription, "deleted": not change.dry_run},
        f"{change.verb('delete', 'deleted')} subscription {subscription}",
    )
