"""``fdbq queue purge``, ``move`` and ``copy``, and ``fdbq sweep``: bulk operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from typer import Argument, Option

import fdbqueue

from ...errors import QueueNotFound
from .. import context, listings, terminal
from ..parameters import (
    AnyQueueNames,
    AsJson,
    Change,
    DryRun,
    QueueName,
    QueueNames,
    SelectorOption,
    complete_queue,
    grouped,
)

State = Literal["ready", "delayed", "dead"]
"""The state of the messages that an operation takes."""
StateOption = Annotated[
    State, Option("--state", metavar="STATE", help="Take ready, delayed or dead messages.")
]
Target = Annotated[
    str, Argument(metavar="TARGET", help="The target queue.", autocompletion=complete_queue)
]


@grouped
def purge(
    names: QueueNames,
    selector: SelectorOption = None,
    state: StateOption = "ready",
    *,
    change: Change,
) -> None:
    """Remove all ready messages, or those that match.

    They are not delivered. Leased messages stay with their consumers. Use --state to remove dead
    letters or delayed messages instead.

    \b
    Examples:
      fdbq queue purge orders --dry-run
      fdbq queue purge orders mail --selector "region = 'test'" --yes
      fdbq queue purge orders --state delayed
    """
    db = context.connect()
    queues = [context.queue(name) for name in dict.fromkeys(names)]
    found = {queue.name: _count(db, queue, selector, state) for queue in queues}
    if not change.dry_run:
        messages = terminal.count(sum(found.values()), f"{state} message")
        change.confirm(f"Remove {messages} of {terminal.queues(found, quoted=True)}?")
    results: list[dict[str, Any]] = []
    for queue in queues:
        count = found[queue.name]
        if not change.dry_run:
            with terminal.progress("messages removed", count) as update:
                count = _purge(db, queue, selector, state, update)
        results.append({"queue": queue.name, **change.counted("purged", count)})
        if not change.as_json:
            messages = terminal.count(count, "message")
            verb = change.verb("purge", "purged")
            print(f"{verb} {messages} of queue {terminal.visible(queue.name)}")
    if change.as_json:
        listings.print_results(results)


def _purge(
    db: fdbqueue.fdb.Database,
    queue: fdbqueue.Queue,
    selector: str | None,
    state: State,
    update: Callable[[int], None],
) -> int:
    if selector is None and state == "ready":
        return queue.purge(db, progress=update)
    return queue.remove(db, selector or "TRUE", state=state, progress=_taken(update)).taken


def _taken(update: Callable[[int], None]) -> Callable[[fdbqueue.Progress], None]:
    return lambda progress: update(progress.taken)


def _count(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, selector: str | None, state: State
) -> int:
    """How many messages match; a selector has to test each of them."""
    if selector is None:
        return int(getattr(queue.depth(db), state))
    with terminal.progress("messages matched") as update:
        return queue.count(db, selector, state=state, progress=_taken(update)).taken


@grouped
def move(
    name: QueueName,
    target: Target,
    selector: SelectorOption = None,
    state: StateOption = "ready",
    *,
    change: Change,
) -> None:
    """Move all ready messages, or those that match.

    One transaction removes a message here and adds it there. There it has a new id and no attempts.
    To continue after an interruption, run the same command again.

    \b
    Examples:
      fdbq queue move orders orders-eu --selector "region = 'eu'"
      fdbq queue move orders parked --state dead --yes
    """
    db, queue = context.open_queue(name)
    count = _count(db, queue, selector, state)
    context.queue(target).options(db)  # raises QueueNotFound
    if not change.dry_run:
        messages = terminal.count(count, f"{state} message")
        change.confirm(f"Move {messages} of queue {name!r} to queue {target!r}?")
        with terminal.progress("messages moved", count) as update:
            told = _taken(update)
            count = queue.move(db, target, selector, state=state, progress=told).taken
    _print(change, name, target, ("move", "moved"), count)


def copy(
    name: QueueName,
    target: Target,
    selector: SelectorOption = None,
    state: StateOption = "ready",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy all ready messages, or those that match.

    \b
    Example:
      fdbq queue copy orders orders-test --selector "priority > 6"
    """
    db, queue = context.open_queue(name)
    context.queue(target).options(db)  # raises QueueNotFound
    change = Change(dry_run=dry_run, as_json=as_json)
    if dry_run:
        count = _count(db, queue, selector, state)
    else:
        with terminal.progress("messages copied") as update:
            told = _taken(update)
            count = queue.copy(db, target, selector, state=state, progress=told).taken
    _print(change, name, target, ("copy", "copied"), count)


def _print(change: Change, name: str, target: str, verbs: tuple[str, str], count: int) -> None:
    messages = terminal.count(count, "message")
    change.print_result(
        {"queue": name, "target": target, **change.counted(verbs[1], count)},
        f"{change.verb(*verbs)} {messages} of queue {name} to queue {target}",
    )


def sweep(names: AnyQueueNames = None, as_json: AsJson = False) -> None:
    """Run housekeeping now: reclaim expired leases, promote due messages, drop expired ones.

    Also removes rows that were staged a week ago and never enqueued, and deletes unused queues that
    have the option auto_delete. Consumers do all of this in passing, so you rarely need it.

    \b
    Examples:
      fdbq sweep orders
      fdbq sweep
    """
    db = context.connect()
    for name in names or context.queue_names(db):
        try:
            swept = context.queue(name).sweep(db)
        except QueueNotFound:
            if names:
                raise
            continue  # it was deleted a moment ago
        staged = f", {swept.staged:,} staged rows removed" if swept.staged else ""
        deleted = "; the queue was unused and is deleted" if swept.deleted else ""
        terminal.print_result(
            as_json,
            {"queue": name, **asdict(swept)},
            f"{name}: {terminal.count(swept.promoted, 'message')} became ready, "
            f"{swept.expired:,} expired{staged}{deleted}",
        )
