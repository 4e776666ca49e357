"""``fdbq cancel`` and ``edit``: cancel messages, or change those that wait."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from fdbqueue.values.model import MessageState
from fdbqueue.values.states import State

from .. import context, durations, terminal
from ..parameters import AsJson, Change, MessageIds, QueueName, grouped

_WAITING = (State.READY, State.DELAYED)


@grouped
def cancel(name: QueueName, message_ids: MessageIds, *, change: Change) -> None:
    """Remove ready or delayed messages before they are delivered.

    A message that is being handled is never delivered again, and its handler can see that; it ends
    as its handler does. Dead letters, and messages in a batch of a stream, stay. The exit code is 1
    if any message was not cancelled.

    \b
    Example:
      fdbq cancel orders 05-000000000001-83ca4e58174f03bb --yes
    """
    db, queue = context.open_queue(name)
    ids = [*dict.fromkeys(message_ids)]
    found = {each: queue.get(db, each) for each in ids}
    waiting = [each for each, state in found.items() if state and state.state in _WAITING]
    running = [each for each, state in found.items() if _runs(state)]
    if (waiting or running) and not change.dry_run:
        question = f"Remove {terminal.count(len(waiting), 'message')} of queue {name!r}"
        if running:
            question += f", and cancel {len(running)} being handled"
        change.confirm(f"{question}?")
        removed = [each for each in waiting + running if queue.cancel(db, each)]
        running = [each for each in waiting + running if each not in removed]
        running = [each for each in running if (state := queue.get(db, each)) and state.cancelled]
        waiting = removed
    missed = [each for each in ids if each not in waiting + running]
    told = f", and {len(running)} being handled" if running else ""
    change.print_result(
        {
            "queue": name,
            **change.counted("cancelled", len(waiting)),
            **({"running": running} if running else {}),
            "missed": missed,
        },
        f"{change.verb('cancel', 'cancelled')} {terminal.count(len(waiting), 'message')}{told}",
    )
    if missed:
        problem = "neither waiting nor being handled"
        raise terminal.CommandError(f"{problem}: {', '.join(missed)}", 1)


def _runs(state: MessageState | None) -> bool:
    """Whether a message is leased, and not in a batch of a stream."""
    return state is not None and state.lease_expires_at_ms is not None


def edit(
    name: QueueName,
    message_ids: MessageIds,
    priority: Annotated[
        int | None,
        Option(metavar="N", help="The new priority, 0 to 9; 9 is the most urgent."),
    ] = None,
    delay: Annotated[
        float | None, durations.option("Deliver them after this delay; 0 delivers them now.")
    ] = None,
    at: Annotated[
        str | None,
        Option(metavar="TIME", help="When to deliver them: 2030-01-31T08:00+01:00."),
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
