"""``fdbq queue …``: create, change, pause and delete queues."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from typer import Argument, Option, Typer

import fdbqueue
from fdbqueue.values.options import QueueOptions, nested

from .. import context, durations, listings, terminal, trail
from ..parameters import AsJson, ChangeOptions, QueueName, QueueNames, grouped
from . import queue_history, queue_list, queue_options

app = Typer(
    name="queue",
    help="Create, list, show, change, pause and delete queues, and show what happened.",
    no_args_is_help=True,
)


@app.command()
def create(
    names: Annotated[list[str], Argument(metavar="QUEUE…", help="Names of the new queues.")],
    levels: Annotated[
        int, Option(metavar="N", help="Number of priority levels, 1 to 256.")
    ] = QueueOptions().levels,
    max_attempts: Annotated[
        int, Option(metavar="N", help="Failed attempts that make a dead letter; 0: no limit.")
    ] = QueueOptions().max_attempts or 0,
    lease: Annotated[float, durations.option("How long a lease lasts.")] = QueueOptions().lease,
    sort: Annotated[
        str | None,
        Option(metavar="HEADER", help="Order messages by a header, not by arrival."),
    ] = None,
    last_value: Annotated[
        str | None,
        Option(metavar="HEADER", help="Keep only the newest message of each value of a header."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="Any option of fdbq queue set. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create queues with the same options. If one of them exists already, create none.

    \b
    Examples:
      fdbq queue create orders
      fdbq queue create mail letters
      fdbq queue create mail --levels 3 --max-attempts 10 --set history_seconds=1d
      fdbq queue create jobs --set bounds.messages=100000 --set bounds.when_full=block
      fdbq queue create reminders --sort due
      fdbq queue create prices --last-value symbol
    """
    given = {
        "levels": levels,
        "max_attempts": max_attempts or None,
        "lease": lease,
        "sort": sort,
        "last_value": last_value,
        **nested(queue_options.parse(setting or [])),
    }
    db = context.connect(create=True)

    def create_all(to: fdbqueue.fdb.Transaction | fdbqueue.fdb.Database) -> list[fdbqueue.Queue]:
        root = context.subspace()
        return [
            fdbqueue.Queue.create(to, each, root=root, **given) for each in dict.fromkeys(names)
        ]

    # One transaction for several: all or none. A single one needs none from here, and then waits
    # for a store that is being made.
    queues = create_all(db) if len(set(names)) == 1 else fdbqueue.transactional(create_all)(db)
    if as_json:
        listings.print_results(
            [{"queue": each.name, "options": each.options(db).to_json()} for each in queues]
        )
    for each in () if as_json else queues:
        print(f"created queue {terminal.visible(each.name)}")


@app.command("set")
def set_(
    name: QueueName,
    settings: Annotated[
        list[str],
        Argument(metavar="NAME=VALUE…", help="Options to change; none removes a limit."),
    ],
    as_json: AsJson = False,
) -> None:
    """Change options of a queue; all others stay.

    Consumers and producers follow the change at once. How messages are stored is fixed: levels,
    sort and last_value. A backoff is JSON: a wait strategy of tenacity, and its parameters.

    \b
    Options:
      max_attempts, max_deaths, lease, backoff, expired, dead_letter_queue, dedup_window,
      history_seconds, max_payload, compression, max_in_flight, rate, auto_delete,
      bounds.messages, bounds.bytes, bounds.when_full, bounds.dropped, bounds.resume_at,
      keys.concurrency, keys.window, keys.weight, keys.rate

    \b
    Examples:
      fdbq queue set orders max_attempts=10 lease=60
      fdbq queue set orders bounds.messages=none
      fdbq queue set orders 'backoff={"wait": "wait_exponential_jitter", "max": 60}'
    """
    changes = queue_options.parse(settings)
    stored = context.queue(name).set_options(context.connect(), **nested(changes))
    if as_json:
        terminal.print_json({"queue": name, "options": stored.to_json()})
    else:
        for option in changes:
            print(f"{option} = {queue_options.shown(stored.flat()[option])}")


@app.command()
def pause(name: QueueName, as_json: AsJson = False) -> None:
    """Stop delivery from a queue. You can still enqueue, and settle leased messages.

    Consumers wait as if the queue were empty.

    \b
    Example:
      fdbq queue pause orders
    """
    context.queue(name).admin.pause(context.connect(), by=trail.who())
    terminal.print_result(as_json, {"queue": name, "paused": True}, f"paused queue {name}")


@app.command()
def resume(name: QueueName, as_json: AsJson = False) -> None:
    """Resume delivery from a paused queue, and wake its consumers.

    \b
    Example:
      fdbq queue resume orders
    """
    context.queue(name).admin.resume(context.connect())
    terminal.print_result(as_json, {"queue": name, "paused": False}, f"resumed queue {name}")


@app.command()
@grouped
def delete(names: QueueNames, *, change: ChangeOptions) -> None:
    """Delete queues and everything in them.

    \b
    Examples:
      fdbq queue delete mail letters --yes
      fdbq queue delete orders --dry-run
    """
    db = context.removing(context.connect)
    queues = [context.queue(name) for name in dict.fromkeys(names)]
    # The overview can also read a queue that is unusable.
    held = {each.name: queue_list.held(queue_list.of(db, each).depth) for each in queues}
    messages = terminal.count(sum(held.values()), "message")
    if change.dry_run:
        if change.as_json:
            listings.print_results(
                [
                    {"queue": name, "deleted": False, "would_delete": count}
                    for name, count in held.items()
                ]
            )
        else:
            print(terminal.visible(f"would delete {terminal.queues(held)} with {messages}"))
        return
    change.confirm(f"Delete {terminal.queues(held, quoted=True)} with {messages}?")
    for queue in queues:
        context.removing(partial(queue.delete, db))
        if not change.as_json:
            print(f"deleted queue {terminal.visible(queue.name)}")
    if change.as_json:
        listings.print_results([{"queue": name, "deleted": True} for name in held])


app.command("list")(queue_list.list_)
for command in (queue_list.show, queue_history.history):
    app.command()(command)
