"""``fdbq cancel`` and ``edit``: remove or change messages that wait."""

from __future__ import annotations

from typing import Annotated

from fdbqueue.values.states import State

from .. import context, durations, terminal
from ..declarations import Option
from ..parameters import AsJson, Change, MessageIds, QueueName


def cancel(name: QueueName, message_ids: MessageIds, *, change: Change) -> None:
    """Remove ready or delayed messages before they are delivered.

    Leased and dead messages stay. The exit code is 1 if any message was not removed.

    \b
    Example:
      fdbq cancel orders 05-000000000001-83ca4e58174f03bb --yes
    """
    db, queue = context.open_queue(name)
    ids = [*dict.fromkeys(message_ids)]
    found = {each: queue.get(db, each) for each in ids}
    cancelled = [
        each
        for each, state in found.items()
        if state and state.state in (State.READY, State.DELAYED)
    ]
    if cancelled and not change.dry_run:
        change.confirm(f"Remove {terminal.count(len(cancelled), 'message')} of queue {name!r}?")
        cancelled = [each for each in cancelled if queue.cancel(db, each)]
    missed = [each for each in ids if each not in cancelled]
    change.print_result(
        {"queue": name, **change.counted("cancelled", len(cancelled)), "missed": missed},
        f"{change.verb('cancel', 'cancelled')} {terminal.count(len(cancelled), 'message')}",
    )
    if missed:
        raise terminal.CommandError(f"not ready or delayed: {', '.join(missed)}", 1)


def edit(
    name: QueueName,
    message_ids: MessageIds,
    priority: Annotated[
        int | None, Option(help="The new priority, 0 to 9; 9 is the most urgent.")
    ] = None,
    delay: Annotated[
        float | None, durations.option("Deliver them after this delay; 0 delivers them now.")
    ] = None,
    at: Annotated[
        str | None, Option(metavar="TIME", help="When to deliver them: 2030-01-31T08:00+01:00.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the priority or time of waiting messages.

    A message that changes its level goes to the end of the new level. Leased and dead messages do
    not change. The exit code is 1 if any message was not changed.

    \b
    Examples:
      fdbq edit orders 05-000000000001-83ca4e58174f03bb --priority 9
      fdbq edit orders 05-000000000001-83ca4e58174f03bb --delay 2h
    """
    if priority is None and delay is None and at is None:
        raise terminal.CommandError("nothing to change: give --priority, --delay or --at")
    moment = None if at is None else durations.instant(at)
    db, queue = context.open_queue(name)
    ids = [*dict.fromkeys(message_ids)]
    edited = [
        each for each in ids if queue.edit(db, each, priority=priority, delay=delay, at=moment)
    ]
    missed = [each for each in ids if each not in edited]
    terminal.print_result(
        as_json,
        {"queue": name, "edited": len(edited), "missed": missed},
        f"edited {terminal.count(len(edited), 'message')}",
    )
    if missed:
        raise terminal.CommandError(f"not waiting: {', '.join(missed)}", 1)
