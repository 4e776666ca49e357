"""``fdbq queue …``: create, change, pause and delete queues."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import fdbqueue
from fdbqueue.values.options import QueueOptions, nested

from .. import context, durations, terminal, trail
from ..commands import Group
from ..output import Done, Result
from ..parameters import ChangeOptions, QueueName, QueueNames, argument, option
from . import queue_history, queue_list, queue_options

app = Group("queue", "Create, list, show, change, pause and delete queues, and show what happened.")


@app.command()
def create(
    names: list[str] = argument("QUEUE…", "Names of the new queues."),
    levels: int = option("N", "Number of priority levels, 1 to 256.", QueueOptions().levels),
    max_attempts: int = option(
        "N",
        "Failed attempts that make a dead letter; 0: no limit.",
        QueueOptions().max_attempts or 0,
    ),
    lease: float = durations.option("How long a lease lasts.", QueueOptions().lease),
    sort: str | None = option("HEADER", "Order messages by a header, not by arrival."),
    last_value: str | None = option(
        "HEADER", "Keep only the newest message of each value of a header."
    ),
    setting: list[str] | None = option(
        "NAME=VALUE", "Any option of fdbq queue set. Repeatable.", None, "--set"
    ),
) -> Done:
    """Create queues with the same options. If one of them exists already, create none.

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
    return Result(
        [{"queue": each.name, "options": each.options(db).to_json()} for each in queues],
        [f"created queue {each.name}" for each in queues],
    )


@app.command("set")
def set_(
    name: QueueName,
    settings: list[str] = argument("NAME=VALUE…", "Options to change; none removes a limit."),
) -> Done:
    """Change options of a queue; all others stay.

    Consumers and producers follow the change at once. How messages are stored is fixed: levels,
    sort and last_value. A backoff is JSON: a wait strategy of tenacity, and its parameters.

    Options:
      max_attempts, max_deaths, lease, backoff, expired, dead_letter_queue, dedup_window,
      history_seconds, max_payload, compression, max_in_flight, rate, auto_delete,
      bounds.messages, bounds.bytes, bounds.when_full, bounds.dropped, bounds.resume_at,
      keys.concurrency, keys.window, keys.weight, keys.rate

    Examples:
      fdbq queue set orders max_attempts=10 lease=60
      fdbq queue set orders bounds.messages=none
      fdbq queue set orders 'backoff={"wait": "wait_exponential_jitter", "max": 60}'
    """
    changes = queue_options.parse(settings)
    stored = context.queue(name).set_options(context.connect(), **nested(changes))
    flat = stored.flat()
    shown = [f"{option} = {queue_options.shown(flat[option])}" for option in changes]
    return Result({"queue": name, "options": stored.to_json()}, shown)


@app.command()
def pause(name: QueueName) -> Done:
    """Stop delivery from a queue. You can still enqueue, and settle leased messages.

    Consumers wait as if the queue were empty.

    Example:
      fdbq queue pause orders
    """
    context.queue(name).admin.pause(context.connect(), by=trail.who())
    return Result({"queue": name, "paused": True}, f"paused queue {name}")


@app.command()
def resume(name: QueueName) -> Done:
    """Resume delivery from a paused queue, and wake its consumers.

    Example:
      fdbq queue resume orders
    """
    context.queue(name).admin.resume(context.connect())
    return Result({"queue": name, "paused": False}, f"resumed queue {name}")


@app.command()
def delete(names: QueueNames, *, change: ChangeOptions) -> Done:
    """Delete queues and everything in them.

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
        would = [{"queue": each, "deleted": False, "would_delete": held[each]} for each in held]
        return Result(would, f"would delete {terminal.queues(held)} with {messages}")
    change.confirm(f"Delete {terminal.queues(held, quoted=True)} with {messages}?")
    return _deleted(db, queues)


def _deleted(db: fdbqueue.fdb.Database, queues: list[fdbqueue.Queue]) -> Iterator[Result]:
    for queue in queues:
        context.removing(partial(queue.delete, db))
        yield Result([], f"deleted queue {queue.name}")
    yield Result([{"queue": each.name, "deleted": True} for each in queues], ())


app.command("list")(queue_list.list_)
for command in (queue_list.show, queue_history.history):
    app.command()(command)
