"""``fdbq subscription …``: who reads a queue, and how far they have come."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from .. import home, json_schema, listings, terminal
from ..declarations import Argument, Group, Option
from ..parameters import (
    AfterName,
    AsCsv,
    AsJson,
    DryRun,
    MostOrAll,
    QueueName,
    Selecting,
    SubscriptionName,
    Watch,
    Yes,
)

app = Group(
    name="subscription",
    help="Make, look at, move and delete subscriptions.",
    no_args_is_help=True,
)


class Mode(Enum):
    """What a subscription does with a message."""

    ACQUIRE = "acquire"
    BROWSE = "browse"


@app.command()
def create(
    name: QueueName,
    subscription: Annotated[str, Argument(metavar="NAME", help="Name of the new subscription.")],
    mode: Annotated[
        Mode,
        Option(metavar="MODE", help="acquire takes messages; browse looks at each once."),
    ] = Mode.ACQUIRE,
    selector: Selecting = None,
    exclusive: Annotated[bool, Option("--exclusive", help="One consumer at a time.")] = False,
    auto_close: Annotated[
        bool,
        Option("--auto-close", help="Remove it once it has seen the end of the queue."),
    ] = False,
    start: Annotated[
        str,
        Option(metavar="PLACE", help="first, now (behind all that is there), or a message's id."),
    ] = "first",
    as_json: AsJson = False,
) -> None:
    """Make a subscription.

    \b
    Examples:
      fdbq subscription create orders eu --selector "region = 'eu'"
      fdbq subscription create orders audit --mode browse --start now
    """
    db = home.opened()
    queue = home.queue(name)
    if any(each.name == subscription for each in queue.subscriptions.list(db)):
        raise terminal.Refused(f"subscription {subscription!r} of queue {name!r} exists already", 1)
    made = queue.subscribe(
        db,
        subscription,
        mode=mode.value,
        selector=selector,
        exclusive=exclusive,
        auto_close=auto_close,
        start=start,
    )
    if as_json:
        terminal.print_json({"queue": name, **json_schema.subscription_json(made.definition(db))})
    else:
        print(f"created subscription {terminal.visible(subscription)}")


@app.command("list")
def list_(
    name: QueueName,
    at_most: MostOrAll = None,
    after: AfterName = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """List the subscriptions of a queue.

    \b
    Example:
      fdbq subscription list orders
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> listings.Listing:
        subscriptions = [
            json_schema.subscription_json(each) for each in queue.subscriptions.list(db)
        ]
        found, more = listings.page(
            subscriptions, lambda each: str(each["subscription"]), "subscription", at_most, after
        )
        return listings.Listing(
            ["name", "mode", "exclusive", "auto close", "selector"],
            [
                (
                    each["subscription"],
                    each["mode"],
                    "yes" if each["exclusive"] else "no",
                    "yes" if each["auto_close"] else "no",
                    each["selector"] or "",
                )
                for each in found
            ],
            found,
            f"queue {name} has no subscriptions",
            more,
        )

    listings.show(look, as_json, watch, as_csv)


@app.command()
def show(
    name: QueueName, subscription: SubscriptionName, as_json: AsJson = False, watch: Watch = None
) -> None:
    """Show a subscription, and by level the index of the last message that it has passed.

    \b
    Examples:
      fdbq subscription show orders eu
      fdbq subscription show orders audit --watch 1
    """
    db = home.opened()
    found = home.queue(name).subscriptions.open(db, subscription)

    def look() -> listings.Fields:
        value = json_schema.subscription_json(found.definition(db))
        places = {str(level): index for level, index in sorted(found.places(db).items()) if index}
        fields = [
            *((field.replace("_", " "), text) for field, text in value.items()),
            *((f"passed in level {level}", index) for level, index in places.items()),
        ]
        return listings.Fields(fields, {"queue": name, **value, "places": places})

    listings.show(look, as_json, watch)


@app.command()
def seek(
    name: QueueName,
    subscription: SubscriptionName,
    place: Annotated[
        str,
        Argument(metavar="PLACE", help="first, now (behind all that is there), or a message's id."),
    ],
    as_json: AsJson = False,
) -> None:
    """Take a subscription to another place of its queue.

    An id says where to go in the level of that message alone.

    \b
    Examples:
      fdbq subscription seek orders audit first
      fdbq subscription seek orders audit 05-000000000001-83ca4e58174f03bb
    """
    db = home.opened()
    home.queue(name).subscriptions.open(db, subscription).seek(db, place)
    if as_json:
        terminal.print_json({"queue": name, "subscription": subscription, "place": place})
    else:
        print(f"subscription {terminal.visible(subscription)} goes on at {terminal.visible(place)}")


@app.command()
def delete(
    name: QueueName,
    subscription: SubscriptionName,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a subscription and its place; the messages stay, and its leases go on.

    \b
    Examples:
      fdbq subscription delete orders eu --dry-run
      fdbq subscription delete orders eu --yes
    """
    db = home.opened()
    found = home.queue(name).subscriptions.open(db, subscription)
    if dry_run:
        if as_json:
            terminal.print_json({"queue": name, "subscription": subscription, "deleted": False})
        else:
            print(f"would delete subscription {terminal.visible(subscription)}")
        return
    terminal.confirm(f"Delete subscription {subscription!r} of queue {name!r}?", yes)
    found.remove(db)
    if as_json:
        terminal.print_json({"queue": name, "subscription": subscription, "deleted": True})
    else:
        print(f"deleted subscription {terminal.visible(subscription)}")
