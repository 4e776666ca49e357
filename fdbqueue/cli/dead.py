"""``fdbq dead …``: the dead letters of a queue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated

import typer

import fdbqueue

from . import bulk, listing, messages, shapes, terminal
from .params import AsJson, DryRun, MessageId, QueueName, Selecting, Watch, Yes

app = typer.Typer(
    name="dead", help="Look at dead letters, deliver them again, or remove them.",
    no_args_is_help=True,
)  # fmt: skip

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids of dead letters.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the queue.")]


@app.command("list")
def list_(
    name: QueueName,
    selector: Selecting = None,
    max_letters: Annotated[
        int, typer.Option("--max", metavar="N", min=1, help="Dead letters at most.")
    ] = 100,
    as_json: AsJson = False,
    watch: Watch = None,
) -> None:
    """List dead letters in the order of their deaths, with the reasons.

    With --json, one to a line; that can be enqueued again.

    \b
    Examples:
      fdbq dead list orders
      fdbq dead list orders --selector "region = 'eu'" --json
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)

    def look() -> listing.Listing:
        found = list(islice(_matching(db, queue, selector), min(max_letters, sys.maxsize)))
        return listing.Listing(
            ["id", "died", "failed", "reason", "payload"],
            [
                (
                    each.id,
                    shapes.when(each.death.died_at_ms)[:19],
                    each.death.attempts,
                    each.death.reason,
                    terminal.excerpt(each.message.payload),
                )
                for each in found
            ],
            [shapes.dead_json(each) for each in found],
            f"queue {name} has no dead letters" + (" that match" if selector else ""),
        )

    listing.show(look, as_json, watch, lines=True)


def _matching(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, selector: str | None
) -> Iterator[fdbqueue.DeadMessage]:
    wanted = None if selector is None else fdbqueue.Selector(selector)
    now_ms = fdbqueue.clock.Clock().wall_ms()
    for letter in bulk.dead(db, queue):
        if wanted is None or wanted.matches(letter.message, now_ms):
            yield letter


@app.command()
def show(
    name: QueueName, message_id: MessageId, as_json: AsJson = False, watch: Watch = None
) -> None:
    """Show one dead letter: why and when it died, its headers and payload.

    \b
    Example:
      fdbq dead show orders 05-000000000001-83ca4e58174f03bb
    """
    db = fdbqueue.open(create=False)
    queue = fdbqueue.Queue(name)

    def look() -> listing.Fields:
        letter = queue.dead.show(db, message_id)
        if letter is None:
            raise terminal.Refused(f"queue {name!r} has no dead letter {message_id}", 1)
        state = fdbqueue.MessageState(letter.message, fdbqueue.State.DEAD, death=letter.death)
        return replace(messages.stated(state), value=shapes.dead_json(letter))

    listing.show(look, as_json, watch)


@app.command()
def redrive(
    name: QueueName,
    message_ids: Ids = None,
    selector: Selecting = None,
    every: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Deliver dead letters again: behind all others of their level, with no attempts made.

    Name them by ID, by --selector, or say --all. One whose unique key another message has by now
    stays.

    \b
    Examples:
      fdbq dead redrive orders 05-000000000001-83ca4e58174f03bb
      fdbq dead redrive orders --selector "region = 'eu'" --dry-run
      fdbq dead redrive orders --all --yes
    """
    db = fdbqueue.open(create=False)
    letters = fdbqueue.Queue(name).dead
    _do(
        db, name, message_ids, selector, every, dry_run, yes, as_json,
        ("Deliver", "again", "redriven"), letters.redriving, letters.redrive_ids,
    )  # fmt: skip


@app.command()
def purge(
    name: QueueName,
    message_ids: Ids = None,
    selector: Selecting = None,
    every: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove dead letters for good.

    Name them by ID, by --selector, or say --all.

    \b
    Examples:
      fdbq dead purge orders 05-000000000001-83ca4e58174f03bb --yes
      fdbq dead purge orders --all --dry-run
    """
    db = fdbqueue.open(create=False)
    letters = fdbqueue.Queue(name).dead
    _do(
        db, name, message_ids, selector, every, dry_run, yes, as_json,
        ("Remove", "for good", "purged"), letters.purging, letters.purge_ids,
    )  # fmt: skip


def _do(
    db: fdbqueue.fdb.Database,
    name: str,
    message_ids: Sequence[str] | None,
    selector: str | None,
    every: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    words: tuple[str, str, str],
    through: Callable[[fdbqueue.fdb.Database, str | None], Iterator[int]],
    by_id: Callable[[fdbqueue.fdb.Database, Sequence[str]], int],
) -> None:
    """What redrive and purge have in common: which letters, whether really, and how many."""
    verb, how, done = words
    if sum((bool(message_ids), selector is not None, every)) != 1:
        raise terminal.Refused("name the dead letters: by ID, with --selector, or with --all")
    queue = fdbqueue.Queue(name)
    if message_ids:
        found = sum(queue.dead.show(db, each) is not None for each in dict.fromkeys(message_ids))
    elif selector is not None:
        found = sum(1 for _ in _matching(db, queue, selector))
    else:
        found = queue.depth(db).dead
    if dry_run:
        if as_json:
            terminal.print_json({"queue": name, done: 0, f"would_be_{done}": found})
        else:
            print(f"would be {done}: {terminal.count(found, 'dead letter')}")
        return
    count = terminal.count(found, "dead letter")
    if not message_ids or done == "purged":
        terminal.confirm(f"{verb} {count} of queue {name!r} {how}?", yes)
    taken = 0
    if message_ids:
        taken = by_id(db, message_ids)
    else:
        with terminal.progress(f"dead letters {done}", found or None) as bar:
            for taken in through(db, selector):
                bar.update(bar.task_ids[0], completed=taken, done=taken)
    if as_json:
        terminal.print_json({"queue": name, done: taken})
    else:
        print(f"{done} {terminal.count(taken, 'dead letter')} of queue {terminal.visible(name)}")
    if (message_ids and taken < found) or (message_ids and found < len({*message_ids})):
        raise terminal.Refused("some ids have no dead letter, or one that stays", 1)
