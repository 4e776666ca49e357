"""``fdbq plan …``: what streams have in hand."""

from __future__ import annotations

from typing import Annotated

import fdbqueue

from .. import home, json_schema, listings, terminal
from ..declarations import Argument, Group, Option
from ..parameters import AfterName, AsCsv, AsJson, DryRun, MostOrAll, QueueName, Watch, Yes

app = Group(
    name="plan", help="Look at what streams have in hand, and take it back.", no_args_is_help=True
)

ConsumerName = Annotated[str, Argument(metavar="CONSUMER", help="The stream's option consumer.")]


@app.command("list")
def list_(
    name: QueueName,
    at_most: MostOrAll = None,
    after: AfterName = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """List the consumers that take messages by plans, and the plan that each has in hand.

    The messages of a plan are leased until the stream acknowledges the batch, and never lapse: if
    a stream is not to run again, give them back with fdbq plan release.

    \b
    Examples:
      fdbq plan list orders
      fdbq plan list orders --json
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> listings.Listing:
        now_ms = fdbqueue.Clock().wall_ms()
        consumers = queue.plans.list(db)
        found, more = listings.page(consumers, lambda each: each.name, "consumer", at_most, after)
        return listings.Listing(
            ["consumer", "acknowledged", "batch", "messages", "bytes", "state", "age"],
            [
                (each.name, each.acknowledged, *_columns(plan, now_ms))
                for each in found
                for plan in each.plans or (None,)
            ],
            [json_schema.plans_json(each) for each in found],
            f"no stream takes messages of queue {name}",
            more,
        )

    listings.show(look, as_json, watch, as_csv)


def _columns(plan: fdbqueue.values.model.Plan | None, now_ms: int) -> tuple[object, ...]:
    if plan is None:
        return ("", "", "", "nothing in hand", "")
    age = terminal.age(now_ms - plan.planned_at_ms)
    return (plan.batch, plan.left, plan.size, plan.state, age)


@app.command()
def show(
    name: QueueName,
    consumer: ConsumerName,
    max_messages: Annotated[
        int, Option("--max", metavar="N", min=1, max=10_000, help="Messages at most.")
    ] = 100,
    as_json: AsJson = False,
    watch: Watch = None,
) -> None:
    """Show what a stream has in hand: its messages, in the order of delivery.

    \b
    Examples:
      fdbq plan show orders billing --json
      fdbq plan show orders billing --watch 1
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> listings.Fields:
        found = queue.plans.show(db, consumer)
        messages = queue.plans.messages(db, consumer, max_messages)
        ids = [message.id for message in messages]
        left = sum(plan.left for plan in found.plans) - len(ids)
        fields = [
            ("acknowledged", f"batch {found.acknowledged}"),
            *((f"batch {plan.batch}", _told(plan)) for plan in found.plans),
            *([] if found.plans else [("in hand", "nothing")]),
            *([("not shown", terminal.count(left, "message"))] if left > 0 else []),
        ]
        below = listings.Listing(["message"], [(each,) for each in ids], [], "")
        return listings.Fields(fields, {**json_schema.plans_json(found), "ids": ids}, below)

    listings.show(look, as_json, watch)


def _told(plan: fdbqueue.values.model.Plan) -> str:
    since = json_schema.when(plan.planned_at_ms)
    return f"{terminal.count(plan.left, 'message')} {plan.state}, since {since}"


@app.command()
def release(
    name: QueueName,
    consumer: ConsumerName,
    forget: Annotated[
        bool,
        Option("--forget", help="Forget the consumer, too: its next run begins anew."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give back what a stream has in hand: it is delivered again, the attempt does not count.

    Only for a stream that does not run. Its checkpoint is worth nothing then: what the sink has of
    the batch comes again. A stream that has only stopped takes its plan up when it starts.

    \b
    Examples:
      fdbq plan release orders billing --dry-run
      fdbq plan release orders billing --yes
    """
    db = home.opened()
    queue = home.queue(name)
    found = queue.plans.show(db, consumer)
    held = sum(plan.left for plan in found.plans if plan.batch > found.acknowledged)
    if dry_run:
        if as_json:
            told = {"queue": name, "consumer": consumer, "released": 0, "would_be_released": held}
            terminal.print_json(told)
        else:
            print(f"would be released: {terminal.count(held, 'message')}")
        return
    what = f"{terminal.count(held, 'message')} of queue {name!r}"
    terminal.confirm(f"Take {what} back from consumer {consumer!r}?", yes)
    released = 0
    with terminal.progress("messages released", held or None) as bar:
        for released in queue.plans.releasing(db, consumer):
            bar.update(bar.task_ids[0], completed=released, done=released)
    if forget:
        queue.plans.forget(db, consumer)
    if as_json:
        terminal.print_json({"queue": name, "consumer": consumer, "released": released})
    else:
        print(f"released {terminal.count(released, 'message')}")
