"""``fdbq message cancel``, ``edit``, ``retry``, ``move``, ``copy`` and ``purge``: one selection."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace
from typer import Argument

import fdbqueue
from fdbqueue.values.states import State

from .. import context, durations, terminal
from ..output import Done, Result
from ..parameters import (
    HEADER_COLUMNS,
    SCHEMA,
    ChangeOptions,
    QueueName,
    complete_queue,
    flag,
    option,
    queue_option,
    typed,
)
from .filters import Filters, Wanted

COMING = ("ready", "waiting")
LATER = ("retrying", "scheduled")
WHOLE = (*COMING, *LATER, "dead")
"""States of messages that nobody holds."""
BATCH = 100
"""Dead letters in a transaction of a redrive."""


@dataclass
class Choice(Filters):
    """Which messages a command changes, unless it names them by id."""

    state: list[str] | None = option(
        "STATE", "Those in this state. Repeatable. The default is above."
    )
    every: bool = flag("All in these states.", "--all")
    others: list[str] | None = queue_option("Also those of this queue. Repeatable.")


Ids = Annotated[list[str] | None, Argument(metavar="ID…", help="Ids of messages.")]
Target = Annotated[
    str,
    Argument(metavar="TARGET", help="The queue that gets them.", autocompletion=complete_queue),
]


@dataclass
class QueuePart:
    """The messages of one queue that a command changes.

    ids: their states, by id; empty if they are those that are ``wanted`` in ``states``. told: is
    called with how many are done.
    """

    db: fdbqueue.fdb.Database
    queue: fdbqueue.Queue
    ids: dict[str, str]
    wanted: Wanted
    states: Sequence[str]
    told: Callable[[int], object] = bool

    def change(
        self, verb: Callable[..., fdbqueue.Progress], states: Sequence[str] | None = None
    ) -> int:
        """Change them by a verb of the queue, or those in some states; returns how many."""

        which: dict[str, Any] = {"ids": self.ids, "states": states}
        if not self.ids:
            which = {"match": self.wanted, "states": states or self.states}
        return verb(self.db, **which, progress=lambda progress: self.told(progress.taken)).taken


class Command(Struct, frozen=True):
    """What a command does. states: those it may take; usual: those it takes unless told otherwise.

    asks: whether it asks for confirmation also where messages are given by id. told: what it has to
    tell beside the number, by the name in JSON.
    """

    name: str
    done: str
    states: Sequence[str]
    usual: Sequence[str]
    run: Callable[[QueuePart], int]
    asks: bool = True
    target: str | None = None
    told: Mapping[str, list[str]] = {}

    def __str__(self) -> str:
        return "" if self.target is None else f" to queue {self.target}"


def cancel(name: QueueName, ids: Ids = None, *, choice: Choice, change: ChangeOptions) -> Done:
    """Remove messages before they are delivered, and cancel those that are being handled.

    A message that is being handled is never delivered again, and its handler can see that; it ends
    as its handler does. Dead letters, and messages in a batch of a stream, stay. Choose by ID, with
    filters, or with --all; --state is any but dead, by default all of these. The exit code is 1 if
    any message was not cancelled, or none matches.

    Examples:
      fdbq message cancel orders 05-000000000001-83ca4e58174f03bb --yes
      fdbq message cancel orders --match "customer = 17" --dry-run
    """
    from fdbqueue.queue.admin import finding

    running: list[str] = []

    def run(part: QueuePart) -> int:
        queue, db = part.queue, part.db
        leased = [each for each, state in part.ids.items() if state == "leased"]
        if not part.ids and "leased" in part.states:
            held = (each.delivery for each in finding.leases(db, queue) if not each.planned)
            leased = [each.id for each in held if part.wanted(each.message)]
        # Those that are handled first: of what waits, some may be taken meanwhile, and then be
        # missed.
        part.change(queue.cancel, ["leased"])
        running.extend(each for each in leased if (now := queue.get(db, each)) and now.cancelled)
        waiting = [each for each in part.states if each != "leased"]
        return len(running) + (part.change(queue.cancel, waiting) if waiting else 0)

    states = (*COMING, *LATER, "leased")
    verb = Command("cancel", "cancelled", states, states, run, told={"running": running})
    ends = (
        "what runs ends as its handler does, which sees context.cancelled; to end it at once, "
        "stop the process that fdbq message show names"
    )
    done = _change(verb, name, ids, choice, change)
    return replace(done, note=ends) if running else done


def edit(
    name: QueueName,
    ids: Ids = None,
    priority: int | None = option("N", "The new priority, 0 to 9; 9 is the most urgent."),
    delay: float | None = durations.option("Deliver them after this delay; 0 delivers them now."),
    at: str | None = option("TIME", "When to deliver them: 2030-01-31T08:00+01:00."),
    payload: str | None = option("PAYLOAD", "The new payload: JSON, or text that is none."),
    *,
    choice: Choice,
    change: ChangeOptions,
) -> Done:
    """Change the priority or time of waiting messages, or what they say.

    A message that changes its level goes to the end of the new level. Leased messages do not
    change, and dead ones only what they say. Choose by ID, with filters, or with --all; --payload
    needs an ID. --state is ready, waiting, retrying or scheduled, by default all of these. The exit
    code is 1 if any message was not changed, or none matches.

    Examples:
      fdbq message edit orders 05-000000000001-83ca4e58174f03bb --priority 9
      fdbq message edit orders --match "region = 'eu'" --delay 2h --yes
      fdbq message edit orders 05-000000000001-83ca4e58174f03bb --payload '{"number": 17}'
    """
    later = not (priority is None and delay is None and at is None)
    if not later and payload is None:
        raise terminal.CommandError(
            "nothing to change: give --priority, --delay, --at or --payload"
        )
    if payload is not None and not ids:
        raise terminal.CommandError("--payload is for messages that you name: give an ID")
    moment = None if at is None else durations.instant(at)

    def run(part: QueuePart) -> int:
        said: Any = ...
        if payload is not None:
            _, part.queue = context.open_producing(name)
            said = typed(part.queue, payload)
        edit = partial(part.queue.edit, priority=priority, delay=delay, at=moment, payload=said)
        return part.change(edit)

    states = (*COMING, *LATER) if later else (*COMING, *LATER, "dead")
    verb = Command("edit", "edited", states, states, run, asks=False)
    return _change(verb, name, ids, choice, change)


def retry(
    name: QueueName,
    ids: Ids = None,
    *,
    choice: Choice,
    rate: float | None = option("N", "Retry at most N per second.", min=0.001),
    where: str | None = option("SQL", "A condition on columns, instead; needs fdbqueue[spark]."),
    schema: str | None = SCHEMA,
    header_columns: str | None = HEADER_COLUMNS,
    change: ChangeOptions,
) -> Done:
    """Deliver dead letters again, or those at once that come later.

    Dead letters go to the end of their level and start with no attempts; others keep theirs.
    A dead letter stays if another message now holds its unique key. Choose by ID, with filters, or
    with --all; --state is dead, retrying or scheduled, by default dead. The exit code is 1 if any
    message is not retried, or none matches.

    Where a selector is not enough, --where takes a condition in SQL, which Spark evaluates. The
    columns are those of the table of dead letters: id, payload (as text), headers, priority, level,
    attempts, enqueued_at, last_error, reason, died_at and others. With --schema, it may use fields
    of JSON payloads.

    Examples:
      fdbq message retry orders 05-000000000001-83ca4e58174f03bb
      fdbq message retry orders --error timeout --since 2h --rate 50 --yes
      fdbq message retry orders --state dead --state retrying --all --rate 50 --yes
      fdbq message retry orders --queue mail --match "region = 'eu'" --dry-run
      fdbq message retry orders --all --yes
      fdbq message retry orders --where "reason LIKE '%timeout%' AND died_at > '2026-05-01'"
      fdbq message retry flights --schema 'delay INT' --where 'payload.delay > 60' --dry-run
    """
    if where is not None:
        if ids or choice.given or choice.every or choice.others or choice.state or rate:
            raise terminal.CommandError(
                "--where chooses alone: omit ID, --all, --state, --queue, --rate and filters"
            )
        from ..streams.replay import replay

        return replay(name, where, schema, header_columns, change)
    if schema is not None or header_columns is not None:
        raise terminal.CommandError("--schema and --header-columns are for --where")
    began = time.monotonic()

    def run(part: QueuePart) -> int:
        told = part.told

        def paced(retried: int) -> None:
            told(retried)
            if rate is not None:
                terminal.sleep(began + retried / rate - time.monotonic())

        part.told = paced
        # A tenth of a second's worth, so that the rate is even, and not one burst a second.
        at_once = None if rate is None else max(1, min(BATCH, int(rate / 10)))
        return part.change(partial(part.queue.retry, at_once=at_once))

    verb = Command("retry", "retried", ("dead", *LATER), ("dead",), run, asks=False)
    return _change(verb, name, ids, choice, change)


def purge(name: QueueName, ids: Ids = None, *, choice: Choice, change: ChangeOptions) -> Done:
    """Remove messages for good; they are not delivered. Leased messages stay with their consumers.

    Choose by ID, with filters, or with --all; --state is any but leased, by default ready and
    waiting, or dead with --reason, --since or --until.
    The exit code is 1 if any message was not removed, or none matches.

    Examples:
      fdbq message purge orders --all --dry-run
      fdbq message purge orders --queue mail --match "region = 'test'" --yes
      fdbq message purge orders --until 30d --yes
      fdbq message purge orders 05-000000000001-83ca4e58174f03bb --yes
    """

    def run(part: QueuePart) -> int:
        return context.removing(lambda: part.change(part.queue.purge))

    return _change(Command("purge", "purged", WHOLE, COMING, run), name, ids, choice, change)


def move(
    name: QueueName, target: Target, ids: Ids = None, *, choice: Choice, change: ChangeOptions
) -> Done:
    """Move messages to another queue.

    One transaction removes a message here and adds it there. There it has a new id and no attempts;
    a dead letter is ready there, and remembers how it died. To continue after an interruption, run
    the same command again. Choose by ID, with filters, or with --all; --state is any but leased,
    by default ready and waiting. The exit code is 1 if any message was not moved, or none matches.

    Examples:
      fdbq message move orders orders-eu --match "region = 'eu'"
      fdbq message move orders parked --reason declined --yes
      fdbq message move orders parked 05-000000000001-83ca4e58174f03bb --yes
    """

    def run(part: QueuePart) -> int:
        return part.change(partial(part.queue.move, target=target))

    verb = Command("move", "moved", WHOLE, COMING, run, target=target)
    return _change(verb, name, ids, choice, change)


def copy(
    name: QueueName, target: Target, ids: Ids = None, *, choice: Choice, change: ChangeOptions
) -> Done:
    """Copy messages to another queue. The originals stay as they are.

    Choose by ID, with filters, or with --all; --state is any but leased, by default ready and
    waiting, or dead with --reason, --since or --until.
    The exit code is 1 if any message was not copied, or none matches.

    Example:
      fdbq message copy orders orders-test --match "priority > 6" --yes
    """

    def run(part: QueuePart) -> int:
        return part.change(partial(part.queue.copy, target=target))

    verb = Command("copy", "copied", WHOLE, COMING, run, asks=False, target=target)
    return _change(verb, name, ids, choice, change)


def _change(
    verb: Command, name: str, given: Sequence[str] | None, choice: Choice, change: ChangeOptions
) -> Result:
    """Find the messages, ask the user, change them, and tell how many."""
    ids = [*dict.fromkeys(given or [])]
    states = _chosen(verb, ids, choice)
    search = choice.search()
    # Its functions run in transactions, over envelopes; large payloads are not among them.
    if search is not None and search.payloads:
        raise terminal.CommandError(
            "a change sees no payloads: give the ids that fdbq message find prints"
        )
    wanted = choice.wanted(search)
    db = context.removing(context.connect) if verb.name == "purge" else context.connect()
    queues = [context.queue(each) for each in dict.fromkeys([name, *(choice.others or [])])]
    for queue in queues:
        choice.check(db, queue)
    if verb.target is not None:
        context.queue(verb.target).options(db)  # raises QueueNotFound
    known = _states(db, queues[0], ids, verb.states)
    parts = [QueuePart(db, queue, known, wanted, states) for queue in queues]
    found = {each.queue.name: len(known) if ids else _count(each, choice) for each in parts}
    total, of = sum(found.values()), terminal.queues(found, quoted=True)
    changed = found
    if not change.dry_run and (known or not ids):
        if verb.asks or not ids:
            messages = terminal.count(total, "message")
            change.confirm(f"{verb.name.capitalize()} {messages} of {of}{verb}?")
        changed = _run(verb, parts, total)
    missed = [each for each in ids if each not in known]
    done = _result(verb, change, changed, missed if ids else None)
    context.changed = sum(changed.values())
    failed = None
    if missed:
        problem = f"no such {' or '.join(verb.states)} message: {', '.join(missed)}"
        failed = terminal.CommandError(problem, 1)
    elif total > context.changed and not change.dry_run:
        stayed = (
            f"{terminal.count(total - context.changed, 'message')} not {verb.done}: another "
            "message holds the unique key, it cannot be read, or somebody else was faster"
        )
        if ids:
            failed = terminal.CommandError(stayed, 1)
        else:
            terminal.note(stayed)
    elif not total and not choice.every:
        if search is not None and search.unknown:
            failed = terminal.CommandError(f"queue {name}: {search.unknown}")
        else:
            failed = terminal.CommandError(f"no {' or '.join(states)} message of {of} matches", 1)
    return replace(done, failed=failed)


def _run(verb: Command, parts: Sequence[QueuePart], total: int) -> dict[str, int]:
    """Change the messages of each queue; returns how many."""
    changed: dict[str, int] = {}
    with terminal.progress(f"messages {verb.done}", total) as update:
        for part in parts:

            def told(count: int, before: int = sum(changed.values())) -> None:
                # As it goes on: the audit log counts them, even where the command is interrupted.
                context.changed = before + count
                update(context.changed)

            part.told = told
            changed[part.queue.name] = verb.run(part)
    return changed


def _chosen(verb: Command, ids: Sequence[str], choice: Choice) -> Sequence[str]:
    """The states in which messages are chosen; raises ``CommandError`` unless it is clear which."""
    if sum((bool(ids), choice.given, choice.every)) != 1:
        raise terminal.CommandError(
            "choose messages by ID, with filters (--match, --level, --reason, --error, --since, "
            "--until), or with --all"
        )
    if ids and (choice.others or choice.state):
        raise terminal.CommandError("an ID says which message it is: omit --queue and --state")
    usual = ("dead",) if choice.of_death and "dead" in verb.states else verb.usual
    states = [*dict.fromkeys(choice.state or usual)]
    for state in states:
        if state not in verb.states:
            raise terminal.CommandError(
                f"--state {state}: fdbq message {verb.name} takes {' or '.join(verb.states)}"
            )
    return states


def _result(
    verb: Command, change: ChangeOptions, changed: Mapping[str, int], missed: Sequence[str] | None
) -> Result:
    """How many messages of each queue are done. missed: ids that are none of theirs, if they were
    given by id."""
    told = {what: those for what, those in verb.told.items() if those}
    more: dict[str, Any] = {} if verb.target is None else {"target": verb.target}
    more |= {**({} if missed is None else {"missed": missed}), **told}
    messages = terminal.count(sum(changed.values()), "message")
    done = change.verb(verb.name, verb.done)
    return Result(
        [{"queue": each, **change.counted(verb.done, n), **more} for each, n in changed.items()],
        [
            f"{done} {messages} of {terminal.queues(changed)}{verb}",
            *(f"{what}: {', '.join(those)}" for what, those in told.items()),
        ],
    )


def _states(
    db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, ids: Sequence[str], states: Sequence[str]
) -> dict[str, str]:
    """The states of messages that are in one of these states, and in no plan of a stream."""
    found = {each: queue.get(db, each) for each in ids}
    return {
        each: now.state.value
        for each, now in found.items()
        if now is not None
        and now.state.value in states
        and (now.state is not State.LEASED or now.lease_expires_at_ms is not None)
    }


def _count(part: QueuePart, choice: Choice) -> int:
    """How many messages are chosen; a filter has to test each of them."""
    if not choice.given:
        depth = part.queue.depth(part.db)
        return sum(int(getattr(depth, state)) for state in part.states)
    with terminal.progress("messages matched") as update:
        part.told = update
        return part.change(part.queue.count)
