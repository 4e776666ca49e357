"""``fdbq dead …``: the dead letters of a queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated

from typer import Argument, Option, Typer

import fdbqueue

from .. import context, durations, json_schema, listings, terminal
from ..parameters import (
    After,
    Change,
    Limit,
    ListOutput,
    MessageId,
    Output,
    QueueName,
    SelectorOption,
    grouped,
    queue_option,
)
from .inspection import message_fields

BATCH = 100
PAGE = 1_000

app = Typer(name="dead", help="List, redrive, move and remove dead letters.", no_args_is_help=True)


@dataclass
class Filters:
    """Which dead letters a command is about; by default all."""

    selector: SelectorOption = None
    reason: Annotated[
        str | None, Option(metavar="TEXT", help="Only those whose reason contains this text.")
    ] = None
    error: Annotated[
        str | None,
        Option(metavar="TEXT", help="Only those whose last error contains this text."),
    ] = None
    since: Annotated[
        datetime | None,
        durations.moment_option("Only those that died since: 2030-01-31T08:00, or 2h for 2 h ago."),
    ] = None
    until: Annotated[
        datetime | None, durations.moment_option("Only those that died before this.")
    ] = None

    @property
    def given(self) -> bool:
        """Whether any filter is given."""
        return any(getattr(self, name) is not None for name in Filters.__annotations__)

    def predicate(self) -> Callable[[fdbqueue.Message], bool]:
        """Whether a dead message matches."""
        selector = None if self.selector is None else fdbqueue.Selector(self.selector)
        now_ms = fdbqueue.Clock().wall_ms()
        since, until = (
            None if at is None else at.timestamp() * 1000 for at in (self.since, self.until)
        )

        def matches(message: fdbqueue.Message) -> bool:
            death = message.death
            assert death is not None
            return (
                (self.reason is None or self.reason in death.reason)
                and (self.error is None or self.error in (message.last_error or ""))
                and (since is None or death.died_at_ms >= since)
                and (until is None or death.died_at_ms < until)
                and (selector is None or selector.matches(message, now_ms))
            )

        return matches

    def find(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, after: str | None = None
    ) -> Iterator[fdbqueue.DeadMessage]:
        """The matching dead letters of a queue, in the order of their deaths."""
        matches = self.predicate()
        while page := queue.dead.list(db, PAGE, after):
            for each in page:
                if matches(replace(each.message, death=each.death)):
                    yield each
            after = page[-1].id


@app.command("list")
@grouped
def list_(
    name: QueueName,
    filters: Filters,
    after: After = None,
    limit: Limit = 100,
    *,
    output: ListOutput,
) -> None:
    """List dead letters with their reason and last error.

    The list is in the order of their deaths. You can enqueue what --json prints again.

    \b
    Examples:
      fdbq dead list orders
      fdbq dead list orders --error timeout --since 2h
      fdbq dead list orders --selector "region = 'eu'" --json
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        found, cut = listings.first(filters.find(db, queue, after), limit)
        now_ms = fdbqueue.Clock().wall_ms()
        total = queue.depth(db).dead if cut and not filters.given and after is None else None
        return listings.table(
            ["id", "died", "failed", "why", "payload"],
            [
                (
                    each.id,
                    terminal.age(now_ms - each.death.died_at_ms),
                    each.death.attempts,
                    _why(each),
                    terminal.excerpt(each.message.payload),
                )
                for each in found
            ],
            [*map(json_schema.dead_json, found)],
            f"queue {name} has no dead letters" + (" that match" if filters.given else ""),
            listings.more("dead letter", len(found), found[-1].id, total) if cut else None,
        )

    listings.show(look, output)


def _why(dead: fdbqueue.DeadMessage) -> str:
    reason, error = dead.death.reason, dead.message.last_error
    return reason if not error or error in reason else f"{error} ({reason})"


@app.command()
@grouped
def show(name: QueueName, message_id: MessageId, *, output: Output) -> None:
    """Show one dead letter: why it died, headers and payload.

    \b
    Example:
      fdbq dead show orders 05-000000000001-83ca4e58174f03bb
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        found = queue.dead.show(db, message_id)
        if found is None:
            raise terminal.CommandError(f"queue {name!r} has no dead letter {message_id}", 1)
        state = fdbqueue.MessageState(found.message, fdbqueue.State.DEAD, death=found.death)
        return message_fields(state, json_schema.dead_json(found))

    listings.show(look, output)


@dataclass
class Choice(Filters):
    """Which dead letters a command changes, unless it names them by id."""

    every: Annotated[bool, Option("--all", help="All dead letters of the queue.")] = False
    others: Annotated[list[str] | None, queue_option("Also those of this queue. Repeatable.")] = (
        None
    )


Ids = Annotated[list[str] | None, Argument(metavar="ID…", help="Ids of dead letters.")]
Target = Annotated[str, Argument(metavar="TARGET", help="The queue that gets them.")]
Progress = Callable[[int], None]
Operation = Callable[["fdbqueue.fdb.Database", "fdbqueue.Queue", Sequence[str], Progress], int]
"""Changes dead letters of a queue, those with the ids or all that match; returns how many."""


@app.command()
@grouped
def redrive(
    name: QueueName,
    message_ids: Ids = None,
    *,
    choice: Choice,
    rate: Annotated[
        float | None, Option(metavar="N", min=0.001, help="Redrive at most N per second.")
    ] = None,
    change: Change,
) -> None:
    """Deliver dead letters again.

    They go to the end of their level and start with no attempts. Choose them by ID, with filters
    (--selector, --reason, --error, --since, --until), or with --all. A dead letter stays if another
    message now holds its unique key. The exit code is 1 if no dead letter matches.

    \b
    Examples:
      fdbq dead redrive orders 05-000000000001-83ca4e58174f03bb
      fdbq dead redrive orders --error timeout --since 2h --rate 50 --yes
      fdbq dead redrive orders --queue mail --selector "region = 'eu'" --dry-run
      fdbq dead redrive orders --all --yes
    """

    def run(
        db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: Sequence[str], told: Progress
    ) -> int:
        if ids:
            return sum(queue.dead.redrive_ids(db, batch) for batch in _batches(ids))
        batch = BATCH if rate is None else max(1, min(BATCH, int(rate / 10)))
        began = time.monotonic()

        def paced(redriven: int) -> None:
            told(redriven)
            if rate is not None:
                terminal.sleep(began + redriven / rate - time.monotonic())

        return queue.dead.redrive(db, choice.predicate(), at_once=batch, progress=paced)

    question = None if message_ids else "Deliver {} again?"
    _change(name, message_ids or [], choice, change, ("redrive", "redriven"), question, run)


@app.command()
@grouped
def purge(name: QueueName, message_ids: Ids = None, *, choice: Choice, change: Change) -> None:
    """Remove dead letters for good.

    Choose them by ID, with filters (--selector, --reason, --error, --since, --until), or with
    --all. The exit code is 1 if no dead letter matches.

    \b
    Examples:
      fdbq dead purge orders 05-000000000001-83ca4e58174f03bb --yes
      fdbq dead purge orders --until 30d --yes
      fdbq dead purge orders --all --dry-run
    """

    def run(
        db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: Sequence[str], told: Progress
    ) -> int:
        if ids:
            return sum(queue.dead.purge_ids(db, batch) for batch in _batches(ids))
        return queue.dead.purge(db, choice.predicate(), progress=told)

    verbs, question = ("purge", "purged"), "Remove {} for good?"
    _change(name, message_ids or [], choice, change, verbs, question, run)


@app.command()
@grouped
def move(
    name: QueueName,
    target: Target,
    message_ids: Ids = None,
    *,
    choice: Choice,
    change: Change,
) -> None:
    """Move dead letters to another queue, where they are ready and remember how they died.

    There they have new ids and no attempts. Choose them by ID, with filters (--selector, --reason,
    --error, --since, --until), or with --all. The exit code is 1 if no dead letter matches.

    \b
    Examples:
      fdbq dead move orders parked --reason declined --dry-run
      fdbq dead move orders parked --reason declined --yes
      fdbq dead move orders parked 05-000000000001-83ca4e58174f03bb --yes
    """
    context.open_queue(target)  # raises QueueNotFound

    def run(
        db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: Sequence[str], told: Progress
    ) -> int:
        if ids:
            return queue.dead.move_ids(db, context.queue(target), ids)
        moved = queue.move(
            db,
            target,
            choice.predicate(),
            state="dead",
            progress=lambda progress: told(progress.taken),
        )
        return moved.taken

    named = repr(target).replace("{", "{{").replace("}", "}}")
    verbs, question = ("move", "moved"), f"Move {{}} to queue {named}?"
    _change(name, message_ids or [], choice, change, verbs, question, run)


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _change(
    name: str,
    message_ids: Sequence[str],
    choice: Choice,
    change: Change,
    verbs: tuple[str, str],
    question: str | None,
    run: Operation,
) -> None:
    """Find the dead letters, ask the user, change them, and print how many."""
    if sum((bool(message_ids), choice.given, choice.every)) != 1:
        raise terminal.CommandError(
            "choose dead letters by ID, with filters (--selector, --reason, --error, --since, "
            "--until), or with --all"
        )
    if message_ids and choice.others:
        raise terminal.CommandError("an ID belongs to one queue: omit --queue")
    db = context.connect()
    ids = [*dict.fromkeys(message_ids)]
    queues = [context.queue(each) for each in dict.fromkeys([name, *(choice.others or [])])]
    found = {queue.name: _count(db, queue, ids, choice) for queue in queues}
    total = sum(found.values())
    of = terminal.queues(found, quoted=True)
    verb, done = verbs
    changed = dict(found)
    if total and not change.dry_run:
        if question is not None:
            change.confirm(question.format(f"{terminal.count(total, 'dead letter')} of {of}"))
        with terminal.progress(f"dead letters {done}", total) as update:
            changed = dict.fromkeys(found, 0)
            for queue in queues:
                before = sum(changed.values())
                changed[queue.name] = run(db, queue, ids, partial(_add, update, before))
    count = sum(changed.values())
    if change.as_json:
        listings.print_results(
            [{"queue": each, **change.counted(done, n)} for each, n in changed.items()]
        )
    else:
        dead_letters = f"{terminal.count(count, 'dead letter')} of {terminal.queues(found)}"
        print(terminal.visible(f"{change.verb(verb, done)} {dead_letters}"))
    if count < total and not ids and not change.dry_run:
        stayed = terminal.count(total - count, "dead letter")
        terminal.note(
            f"{stayed} not {done}: another message holds the unique key, it cannot be read, "
            "the message, or somebody else was faster"
        )
    if count < len(ids):
        raise terminal.CommandError("some ids have no dead letter, or one that has to stay", 1)
    if not total and not choice.every:
        raise terminal.CommandError(f"no dead letter of {of} matches", 1)


def _add(update: terminal.Update, before: int, count: int) -> None:
    update(before + count)


def _count(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: Sequence[str], choice: Choice
) -> int:
    if ids:
        return sum(queue.dead.show(db, each) is not None for each in ids)
    if not choice.given:
        return queue.depth(db).dead
    return sum(1 for _ in choice.find(db, queue))
