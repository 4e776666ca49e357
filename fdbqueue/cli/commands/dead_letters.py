"""``fdbq dead …``: the dead letters of a queue."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import fdbqueue

from ...values.records import record
from .. import durations, home, json_schema, listings, terminal
from ..declarations import Argument, Group, Option
from ..parameters import (
    After,
    AsCsv,
    AsJson,
    DryRun,
    MessageId,
    Most,
    QueueName,
    Selecting,
    Watch,
    Yes,
    complete_queue,
)
from . import bulk, messages

app = Group(
    name="dead",
    help="Look at dead letters, deliver them again, or remove them.",
    no_args_is_help=True,
)

Ids = Annotated[list[str] | None, Argument(metavar="ID…", help="Ids of dead letters.")]
All = Annotated[bool, Option("--all", help="All dead letters of the queue.")]
Reason = Annotated[
    str | None, Option(metavar="TEXT", help="Only those whose reason has this text in it.")
]
Error = Annotated[
    str | None, Option(metavar="TEXT", help="Only those whose last error has this text in it.")
]
Since = Annotated[
    datetime | None,
    Option(
        metavar="TIME",
        parser=durations.moment,
        help="Only those that died from then on, or 2h ago.",
    ),
]
Until = Annotated[
    datetime | None,
    Option(metavar="TIME", parser=durations.moment, help="Only those that died before."),
]
Others = Annotated[
    list[str] | None,
    Option(
        "--queue",
        metavar="QUEUE",
        help="Of this queue, too; several times.",
        autocompletion=complete_queue,
    ),
]
AT_ONCE = 100


@record
class Chosen:
    """Which dead letters a command is about."""

    selector: str | None = None
    reason: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def every(self) -> bool:
        """Whether it is about all."""
        return self == Chosen()

    def predicate(self) -> messages.Predicate:
        """Whether a message is one of these; its death is known."""
        selector = None if self.selector is None else fdbqueue.Selector(self.selector)
        now_ms = fdbqueue.Clock().wall_ms()
        since, until = (
            None if at is None else at.timestamp() * 1000 for at in (self.since, self.until)
        )

        def wanted(message: fdbqueue.Message) -> bool:
            death = message.death
            assert death is not None
            return (
                (self.reason is None or self.reason in death.reason)
                and (self.error is None or self.error in (message.last_error or ""))
                and (since is None or death.died_at_ms >= since)
                and (until is None or death.died_at_ms < until)
                and (selector is None or selector.matches(message, now_ms))
            )

        return wanted

    def letters(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, after: str | None = None
    ) -> Iterator[fdbqueue.DeadMessage]:
        """These dead letters of a queue, in the order of their deaths."""
        wanted = self.predicate()
        for letter in bulk.dead(db, queue, after):
            if wanted(replace(letter.message, death=letter.death)):
                yield letter


@app.command("list")
def list_(
    name: QueueName,
    selector: Selecting = None,
    reason: Reason = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    after: After = None,
    max_letters: Most = 100,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    watch: Watch = None,
) -> None:
    """List dead letters in the order of their deaths, with why they died.

    That is the reason, and what the last failed attempt said. What --json prints can be enqueued
    again.

    \b
    Examples:
      fdbq dead list orders
      fdbq dead list orders --error timeout --since 2h
      fdbq dead list orders --selector "region = 'eu'" --json
    """
    db = home.opened()
    queue = home.queue(name)
    chosen = Chosen(selector, reason, error, since, until)

    def look() -> listings.Listing:
        found, cut = listings.first(chosen.letters(db, queue, after), max_letters)
        now_ms = fdbqueue.Clock().wall_ms()
        total = queue.depth(db).dead if cut and chosen.every and after is None else None
        return listings.Listing(
            ["id", "died", "failed", "why", "payload"],
            [
                (
                    each.id,
                    terminal.age(now_ms - each.death.died_at_ms),
                    each.death.attempts,
                    why(each),
                    terminal.excerpt(each.message.payload),
                )
                for each in found
            ],
            [json_schema.dead_json(each) for each in found],
            f"queue {name} has no dead letters" + ("" if chosen.every else " that match"),
            listings.more("dead letter", len(found), found[-1].id, total) if cut else None,
        )

    listings.show(look, as_json, watch, as_csv)


def why(letter: fdbqueue.DeadMessage) -> str:
    """Why a message died: the reason, and what the last attempt said where that is not the same."""
    reason, error = letter.death.reason, letter.message.last_error
    return reason if not error or error in reason else f"{error} ({reason})"


@app.command()
def show(
    name: QueueName, message_id: MessageId, as_json: AsJson = False, watch: Watch = None
) -> None:
    """Show one dead letter: why and when it died, its headers and payload.

    \b
    Example:
      fdbq dead show orders 05-000000000001-83ca4e58174f03bb
    """
    db = home.opened()
    queue = home.queue(name)

    def look() -> listings.Fields:
        letter = queue.dead.show(db, message_id)
        if letter is None:
            raise terminal.Refused(f"queue {name!r} has no dead letter {message_id}", 1)
        state = fdbqueue.MessageState(letter.message, fdbqueue.State.DEAD, death=letter.death)
        return replace(messages.stated(state), value=json_schema.dead_json(letter))

    listings.show(look, as_json, watch)


@app.command()
def redrive(
    name: QueueName,
    message_ids: Ids = None,
    selector: Selecting = None,
    reason: Reason = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    every: All = False,
    others: Others = None,
    rate: Annotated[
        float | None, Option(metavar="N", min=0.001, help="At most so many letters a second.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Deliver dead letters again: behind all others of their level, with no attempts made.

    Name them by ID, say which by --selector, --reason, --error, --since and --until, or say --all.
    One whose unique key another message has by now stays. Ends with 1 if there are none.

    \b
    Examples:
      fdbq dead redrive orders 05-000000000001-83ca4e58174f03bb
      fdbq dead redrive orders --error timeout --since 2h --rate 50 --yes
      fdbq dead redrive orders --queue mail --selector "region = 'eu'" --dry-run
      fdbq dead redrive orders --all --yes
    """
    work = _Work("redriven", "Deliver {} again?", dry_run, yes, as_json, rate)
    _do(work, [name, *(others or [])], message_ids, every,
        Chosen(selector, reason, error, since, until))  # fmt: skip


@app.command()
def purge(
    name: QueueName,
    message_ids: Ids = None,
    selector: Selecting = None,
    reason: Reason = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    every: All = False,
    others: Others = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove dead letters for good.

    Name them by ID, say which by --selector, --reason, --error, --since and --until, or say --all.
    Ends with 1 if there are none.

    \b
    Examples:
      fdbq dead purge orders 05-000000000001-83ca4e58174f03bb --yes
      fdbq dead purge orders --until 30d --yes
      fdbq dead purge orders --all --dry-run
    """
    work = _Work("purged", "Remove {} for good?", dry_run, yes, as_json)
    _do(work, [name, *(others or [])], message_ids, every,
        Chosen(selector, reason, error, since, until))  # fmt: skip


@record
class _Work:
    """What is done with dead letters, and how it is asked for and told."""

    done: str
    question: str
    dry_run: bool
    yes: bool
    as_json: bool
    rate: float | None = None

    def by_id(self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: Sequence[str]) -> int:
        """Do it with letters that are named."""
        by_id = queue.dead.redrive_ids if self.done == "redriven" else queue.dead.purge_ids
        chunks = [ids[n : n + AT_ONCE] for n in range(0, len(ids), AT_ONCE)]
        return sum(by_id(db, chunk) for chunk in chunks)

    def through(
        self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, chosen: Chosen
    ) -> Iterator[int]:
        """Do it with all that are chosen, at the pace that is asked for."""
        if self.done != "redriven":
            yield from queue.dead.purging(db, chosen.predicate())
            return
        at_once = AT_ONCE if self.rate is None else max(1, min(AT_ONCE, int(self.rate / 10)))
        began = time.monotonic()
        for taken in queue.dead.redriving(db, chosen.predicate(), at_once=at_once):
            yield taken
            if self.rate is not None:
                terminal.pause(began + taken / self.rate - time.monotonic())


def _do(
    work: _Work, names: Sequence[str], ids: Sequence[str] | None, every: bool, chosen: Chosen
) -> None:
    """Find out which letters, ask whether really, do it, and tell how many."""
    if sum((bool(ids), not chosen.every, every)) != 1:
        raise terminal.Refused(
            "name the dead letters: by ID, by what they are (--selector, --reason, --error, "
            "--since, --until), or with --all"
        )
    if ids and len(names) > 1:
        raise terminal.Refused("an ID is of one queue: leave --queue out")
    db = home.opened()
    wanted = [*dict.fromkeys(ids or [])]
    queues = [home.queue(name) for name in dict.fromkeys(names)]
    found = {queue.name: _count(db, queue, wanted, chosen) for queue in queues}
    total = sum(found.values())
    told = [{"queue": name, work.done: 0, f"would_be_{work.done}": n} for name, n in found.items()]
    if work.dry_run:
        if not work.as_json:
            print(f"would be {work.done}: {terminal.count(total, 'dead letter')}")
    elif total:
        of = f"{terminal.count(total, 'dead letter')} of {bulk.named(found)}"
        if not wanted or work.done == "purged":
            terminal.confirm(work.question.format(of), work.yes)
        told = []
        with terminal.progress(f"dead letters {work.done}", total) as bar:
            before = 0
            for queue in queues:
                taken = work.by_id(db, queue, wanted) if wanted else 0
                for taken in () if wanted else work.through(db, queue, chosen):
                    bar.update(bar.task_ids[0], completed=before + taken, done=before + taken)
                told.append({"queue": queue.name, work.done: taken})
                before += taken
        if not work.as_json:
            of = bulk.named(found, shown=True)
            print(f"{work.done} {terminal.count(before, 'dead letter')} of {of}")
    else:
        told = [{"queue": name, work.done: 0} for name in found]
        if not work.as_json:
            print(f"{work.done} 0 dead letters of {bulk.named(found, shown=True)}")
    if work.as_json:
        bulk.print_told(told)
    taken = sum(int(str(each[work.done])) for each in told)
    if wanted and not work.dry_run and taken < len(wanted):
        raise terminal.Refused("some ids have no dead letter, or one that stays", 1)
    if not total and not every:
        raise terminal.Refused(f"no dead letter of {bulk.named(found)} matches", 1)


def _count(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: Sequence[str], chosen: Chosen
) -> int:
    if ids:
        return sum(queue.dead.show(db, each) is not None for each in ids)
    if chosen.every:
        return queue.depth(db).dead
    return sum(1 for _ in chosen.letters(db, queue))
