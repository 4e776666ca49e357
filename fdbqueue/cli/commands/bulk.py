"""``fdbq queue purge``, ``move``, ``copy`` and ``verify``: what goes through a whole queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Annotated, Any

import fdbqueue

from .. import home, listings, terminal
from ..declarations import Argument, Option
from ..parameters import AsJson, DryRun, QueueName, QueueNames, Selecting, Yes, complete_queue

EVERYTHING = "TRUE"
"""The selector that matches every message."""


class Which(Enum):
    """Messages in which state."""

    READY = "ready"
    DELAYED = "delayed"
    DEAD = "dead"


State = Annotated[Which, Option("--state", metavar="STATE", help="Which: ready, delayed or dead.")]
Target = Annotated[
    str,
    Argument(metavar="TARGET", help="Name of the queue they go to.", autocompletion=complete_queue),
]


def purge(
    names: QueueNames,
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
      fdbq queue purge orders mail --selector "region = 'test'" --yes
      fdbq queue purge orders --state delayed
    """
    db = home.opened()
    queues = [home.queue(name) for name in dict.fromkeys(names)]
    found = {queue.name: _matching(db, queue, selector, state) for queue in queues}
    told: list[dict[str, Any]] = []
    if not dry_run:
        total = sum(found.values())
        terminal.confirm(f"Remove {_counted(total, state)} of {named(found)}?", yes)
    for queue in queues:
        gone, would = 0, found[queue.name]
        if dry_run:
            told.append({"queue": queue.name, "purged": 0, "would_be_purged": would})
        else:
            with terminal.progress("messages removed", would or None) as bar:
                for gone in _purged(db, queue, selector, state):
                    bar.update(bar.task_ids[0], completed=gone, done=gone)
            told.append({"queue": queue.name, "purged": gone})
        if not as_json:
            count = terminal.count(would if dry_run else gone, "message")
            verb = "would purge" if dry_run else "purged"
            print(f"{verb} {count} of queue {terminal.visible(queue.name)}")
    if as_json:
        print_told(told)


def print_told(told: Sequence[dict[str, Any]]) -> None:
    """Print what was done to each queue: of several an array."""
    if len(told) == 1:
        terminal.print_json(told[0])
    else:
        listings.print_array(told)


def named(names: Collection[str], *, shown: bool = False) -> str:
    """Queues in a sentence: one by its name, several by their number."""
    if len(names) > 1:
        return terminal.count(len(names), "queue")
    (name,) = names
    return f"queue {terminal.visible(name)}" if shown else f"queue {name!r}"


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
    db = home.opened()
    queue = home.queue(name)
    found = _matching(db, queue, selector, state)
    home.queue(target).options(db)
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
    db = home.opened()
    queue = home.queue(name)
    if dry_run:
        found = _matching(db, queue, selector, state)
        home.queue(target).options(db)
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
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, after: str | None = None, page: int = 1_000
) -> Iterator[fdbqueue.DeadMessage]:
    """All dead letters, or those behind one, page after page."""
    while found := queue.dead.list(db, page, after):
        yield from found
        after = found[-1].id


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
    names: QueueNames,
    repair: Annotated[
        bool,
        Option("--repair", help="Mend what can be mended without a guess."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check what is stored of queues against what it must be, while they are in use.

    Counters, leases and their expiries, the chunks of payloads, and more: see docs/verify.md. It
    reads everything once and disturbs nobody. Ends with 1 if anything is wrong, or could not be
    checked.

    \b
    Examples:
      fdbq queue verify orders
      fdbq queue verify orders mail --repair
    """
    db = home.opened()
    told: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        found = fdbqueue.verify(db, home.queue(name), repair=repair)
        told.append(
            {
                "queue": name,
                "ok": found.ok,
                "messages": found.messages,
                "staged": found.staged,
                "deviations": [asdict(each) for each in found.deviations],
                "unchecked": [*found.unchecked],
            }
        )
        if not as_json:
            _print_verified(name, found, several=len(names) > 1)
    if as_json:
        print_told(told)
    if not all(each["ok"] for each in told):
        raise terminal.Exit(1)


def _print_verified(name: str, found: fdbqueue.values.model.Verification, *, several: bool) -> None:
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
    of = f"queue {terminal.visible(name)}: " if several else ""
    print(f"{of}{terminal.count(found.messages, 'message')} looked at: "
          f"{'all is well' if found.ok else 'not all is well'}")  # fmt: skip
