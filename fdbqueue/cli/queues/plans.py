"""``fdbq plan …``: the plans of streams."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option, Typer

import fdbqueue

from .. import context, json_schema, listings, terminal
from ..parameters import Change, ListOutput, Output, Page, QueueName, grouped

app = Typer(
    name="plan", help="List and release the messages that streams hold.", no_args_is_help=True
)

ConsumerName = Annotated[
    str, Argument(metavar="CONSUMER", help="The value of the stream's option consumer.")
]


@app.command("list")
@grouped
def list_(name: QueueName, *, page: Page, output: ListOutput) -> None:
    """List streams and the plans that they hold.

    The messages of a plan are leased until the stream acknowledges the batch; these leases never
    expire. If a stream will not run again, release its messages with fdbq plan release.

    \b
    Examples:
      fdbq plan list orders
      fdbq plan list orders --json
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        now_ms = fdbqueue.Clock().wall_ms()
        consumers = queue.plans.list(db)
        found, more = listings.page(consumers, lambda each: each.name, "consumer", page)
        return listings.table(
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

    listings.show(look, output)


def _columns(plan: fdbqueue.values.model.Plan | None, now_ms: int) -> tuple[object, ...]:
    if plan is None:
        return ("", "", "", "no plan", "")
    age = terminal.age(now_ms - plan.planned_at_ms)
    return (plan.batch, plan.left, plan.size, plan.state, age)


@app.command()
@grouped
def show(
    name: QueueName,
    consumer: ConsumerName,
    max_messages: Annotated[
        int, Option("--max", metavar="N", min=1, max=10_000, help="Show at most N messages.")
    ] = 100,
    *,
    output: Output,
) -> None:
    """Show the messages that a stream holds, in the order of delivery.

    \b
    Examples:
      fdbq plan show orders billing --json
      fdbq plan show orders billing --watch 1
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        found = queue.plans.show(db, consumer)
        messages = queue.plans.messages(db, consumer, max_messages)
        ids = [message.id for message in messages]
        left = sum(plan.left for plan in found.plans) - len(ids)
        fields = [
            ("acknowledged", f"batch {found.acknowledged}"),
            *((f"batch {plan.batch}", _summary(plan)) for plan in found.plans),
            *([] if found.plans else [("plan", "none")]),
            *([("not shown", terminal.count(left, "message"))] if left > 0 else []),
        ]
        below = listings.table(["message"], [(each,) for each in ids], [], "")
        return listings.fields(fields, {**json_schema.plans_json(found), "ids": ids}, below)

    listings.show(look, output)


def _summary(plan: fdbqueue.values.model.Plan) -> str:
    since = json_schema.when(plan.planned_at_ms)
    return f"{terminal.count(plan.left, 'message')} {plan.state}, since {since}"


@app.command()
@grouped
def release(
    name: QueueName,
    consumer: ConsumerName,
    forget: Annotated[
        bool,
        Option("--forget", help="Also forget the consumer: its next run starts from scratch."),
    ] = False,
    *,
    change: Change,
) -> None:
    """Return the messages that a stream holds to the queue.

    The attempt does not count. Use it only for a stream that does not run and will not restart: its
    checkpoint becomes useless, and messages of the batch that its sink has written are delivered
    again. A stream that was only stopped resumes its plan when it starts.

    \b
    Example:
      fdbq plan release orders billing --yes
    """
    db, queue = context.open_queue(name)
    found = queue.plans.show(db, consumer)
    count = sum(plan.left for plan in found.plans if plan.batch > found.acknowledged)
    if not change.dry_run:
        messages = f"{terminal.count(count, 'message')} of queue {name!r}"
        change.confirm(f"Take {messages} away from consumer {consumer!r}?")
        with terminal.progress("messages released", count) as update:
            count = queue.plans.release(db, consumer, progress=update)
        if forget:
            queue.plans.forget(db, consumer)
    change.print_result(
        {"queue": name, "consumer": consumer, **change.counted("released", count)},
        f"{change.verb('release', 'released')} {terminal.count(count, 'message')} of queue {name}",
    )
