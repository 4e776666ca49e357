"""``fdbq queue purge``, ``move``, ``copy`` and ``verify``: what goes through a whole queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer

import fdbqueue

from . import terminal
from .params import AsJson, DryRun, QueueName, Selecting, Yes, complete_queue

EVERYTHING = "TRUE"
"""The selector that matches every message."""


class Which(Enum):
    """Messages in which state."""

    READY = "ready"
    DELAYED = "delayed"
    DEAD = "dead"


State = Annotated[
    Which, typer.Option("--state", metavar="STATE", help="Which: ready, delayed or dead.")
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="Name of the queue they go to.", autocompletion=complete_queue
    ),
]


def purge(
    name: QueueName,
    selector: Selecting = None,
    state: State = Which.READY,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove messages without delivering them: all ready ones, or those that match.

    Leased messages stay with their consumers. Dead letters and delayed messages stay where they
    are, unless --state names them.

    \b
    Examples:
      fdbq queue purge orders --dry-run
      fdbq queue purge orders --selector "region = 'test'" --yes
      fdbq queue purge orders --state delayed
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)
    found = _matching(db, queue, selector, state)
    if dry_run:
        _told(as_json, name, "purged", "would purge", 0, found)
        return
    terminal.confirm(f"Remove {_counted(found, state)} of queue {name!r}?", yes)
    gone = 0
    with terminal.progress("messages removed", found or None) as bar:
        for gone in _purged(db, queue, selector, state):
            bar.update(bar.task_ids[0], completed=gone, done=gone)
    _told(as_json, name, "purged", "purged", gone)


def _purged(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, selector: str | None, state: Which
) -> Iterator[int]:
    if selector is None and state is Which.READY:
        yield from queue.purging(db)
        return
    for done in queue.removing(db, selector or EVERYTHING, state=state.value):
        yield done.taken


def move(
    name: QueueName,
    target: Target,
    selector: Selecting = None,
    state: State = Which.READY,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move messages to another queue: all ready ones, or those that match.

    Each is out of here and in there in one transaction. They get new ids there, and no attempts
    made. What is interrupted can simply be run again.

    \b
    Examples:
      fdbq queue move orders orders-eu --selector "region = 'eu'"
      fdbq queue move orders parked --state dead --yes
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)
    found = _matching(db, queue, selector, state)
    fdbqueue.Queue(target).options(db)
    if dry_run:
        _told(as_json, name, "moved", "would move", 0, found, target)
        return
    terminal.confirm(f"Move {_counted(found, state)} of queue {name!r} to queue {target!r}?", yes)
    done = _carry(queue.moving(db, target, selector, state=state.value), "moved", found)
    _told(as_json, name, "moved", "moved", done, target=target)


def copy(
    name: QueueName,
    target: Target,
    selector: Selecting = None,
    state: State = Which.READY,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy messages to another queue: all ready ones, or those that match; they stay here.

    \b
    Example:
      fdbq queue copy orders orders-test --selector "priority > 6"
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)
    if dry_run:
        found = _matching(db, queue, selector, state)
        fdbqueue.Queue(target).options(db)
        _told(as_json, name, "copied", "would copy", 0, found, target)
        return
    done = _carry(queue.copying(db, target, selector, state=state.value), "copied", None)
    _told(as_json, name, "copied", "copied", done, target=target)


def _carry(progress: Iterator[fdbqueue.Progress], verb: str, total: int | None) -> int:
    taken = 0
    with terminal.progress(f"messages {verb}", total or None) as bar:
        for done in progress:
            taken = done.taken
            bar.update(bar.task_ids[0], completed=taken, done=taken)
    return taken


def _matching(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, selector: str | None, state: Which
) -> int:
    """How many messages there are to take; counted one by one where a selector says which."""
    if selector is None:
        return int(getattr(queue.depth(db), state.value))
    return _carry(queue.counting(db, selector, state=state.value), "looked at", None)


def _counted(found: int, state: Which) -> str:
    return terminal.count(found, f"{state.value} message")


def dead(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, page: int = 1_000
) -> Iterator[fdbqueue.DeadMessage]:
    """All dead letters, page after page."""
    after = None
    while found := queue.dead.list(db, page, after):
        yield from found
        after = found[-1].id
        if len(found) < page:
            return


def _told(
    as_json: bool,
    name: str,
    field: str,
    verb: str,
    done: int,
    would: int | None = None,
    target: str | None = None,
) -> None:
    if as_json:
        terminal.print_json(
            {
                "queue": name,
                **({"target": target} if target is not None else {}),
                field: done,
                **({f"would_be_{field}": would} if would is not None else {}),
            }
        )
        return
    count = terminal.count(done if would is None else would, "message")
    to = "" if target is None else f" to queue {terminal.visible(target)}"
    print(f"{verb} {count} of queue {terminal.visible(name)}{to}")


def verify(
    name: QueueName,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Mend what can be mended without a guess."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check what is stored of a queue against what it must be, while it is in use.

    Counters, leases and their expiries, the chunks of payloads, and more: see docs/verify.md. It
    reads everything once and disturbs nobody. Ends with 1 if anything is wrong, or could not be
    checked.

    \b
    Examples:
      fdbq queue verify orders
      fdbq queue verify orders --repair
    """
    found = fdbqueue.verify(fdbqueue.open(create=False), fdbqueue.Queue(name), repair=repair)
    if as_json:
        terminal.print_json(
            {
                "queue": name,
                "ok": found.ok,
                "messages": found.messages,
                "staged": found.staged,
                "deviations": [asdict(each) for each in found.deviations],
                "unchecked": [*found.unchecked],
            }
        )
    else:
        if found.deviations:
            terminal.print_table(
                ["kind", "subject", "", "detail"],
                [
                    (each.kind, each.subject, "repaired" if each.repaired else "", each.detail)
                    for each in found.deviations
                ],
            )
        for each in found.unchecked:
            print(f"not checked, since it is too large to be read at one version: {each}")
        if found.staged:
            print(f"{terminal.count(found.staged, 'row')} staged and not enqueued: "
                  f"fdbq sink list {terminal.visible(name)}")  # fmt: skip
        print(f"{terminal.count(found.messages, 'message')} looked at: "
              f"{'all is well' if found.ok else 'not all is well'}")  # fmt: skip
    if not found.ok:
        raise typer.Exit(1)
