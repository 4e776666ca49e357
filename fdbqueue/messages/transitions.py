"""Recording transitions: an operation moves a message, and then records the transition here.

Each feature has its step: what a transition means for it. A message without side records has none
but to be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ..schema import change_counters, counters, due, once
from ..schema.keys import What
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.states import SCHEDULE, State, Transition
from . import history, payloads
from .delivery import failures, queue_limits, results
from .groups import members as groups
from .slots import hand_over

NONE: Mapping[int, int] = MappingProxyType({})


def record(
    tr: fdb.Transaction,
    scope: Scope,
    transition: Transition,
    messages: Sequence[StoredMessage] = (),
    numbers: Mapping[int, int] = NONE,
    sizes: Mapping[int, int] = NONE,
) -> int:
    """Record a transition of messages: count it, and do the step of each feature; returns how many
    others became ready, which had waited for slots of their keys.

    numbers, sizes: of bare messages, by level, and of their payloads if these come to or from
    READY. Bare are those that have no side records, neither wait nor go to wait for a time, in a
    queue without a history: no feature has a step for them. Who makes them ready announces them.

    Writes blindly. Only the end of a message with a key reads, and its delivery if the key has a
    window: what it holds of the key, and the backlog (see ``hand_over``); and so does the end of a
    member of a group (see ``groups.members``).
    """
    totals = counters.total(transition, messages, numbers, sizes)
    if not totals:
        return 0
    # The second change in a caller's transaction relies on the first: this refuses one whose
    # options hide its own writes.
    once.change(tr, scope.keys)
    counters.add(tr, scope.keys, totals)
    # A lease ended, whatever became of its message: consumers that found the queue at its limit may
    # go on.
    if scope.options.max_in_flight is not None and transition.source is State.LEASED:
        queue_limits.freed(tr, scope)
    if not messages:
        return 0
    return sum([step(tr, scope, transition, messages) or 0 for step in STEPS.values()])


Step = Callable[[fdb.Transaction, Scope, Transition, Sequence[StoredMessage]], int | None]


def announce(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Tell sleeping consumers what becomes ready. One that waits for a slot is nothing to wake
    for."""
    ready = [each for each in messages if each.turn is None]
    # In the transaction that makes them ready: no consumer can go to sleep between the message and
    # its announcement.
    if ready and transition.target is State.READY:
        change_counters.announce(tr, scope, ready)


def remove_chunks(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Remove the payloads of those that end."""
    for message in messages if transition.ends else ():
        payloads.remove(tr, scope.keys, message.envelope)


def give_up_names(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Remove the unique keys and the last values of those that leave: dead letters have none, and
    others may have theirs by now; and what leads from the ids of those that end."""
    keys, lives = scope.keys, transition.source is not State.DEAD
    for message in messages if transition.leaves else ():
        envelope = message.envelope
        # A dead letter gave its key up when it died; by now it may be another message's.
        if envelope.unique and lives:
            del tr[keys.unique(envelope.unique)]
        if envelope.last_value is not None:
            # Only if it is the newest; a producer that replaces it meanwhile conflicts.
            tr.compare_and_clear(keys.latest(envelope.last_value), message.id.encode())
            # A message that was replaced while leased is marked so; the mark goes with it.
            del tr[keys.replaced(envelope.last_value, message.id)]
        moved = envelope.id or transition.source in (State.SCHEDULED, State.DEAD)
        if moved and transition.ends:
            del tr[keys.moved(message.id)]


def stop_clocks(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Remove the times to live of those that leave. That of one that returns may have been over
    while it was leased."""
    keys, returns = scope.keys, transition.source is State.LEASED
    for message in messages if transition.leaves or returns else ():
        until_ms = message.envelope.expires_at_ms
        if until_ms is not None and transition.leaves:
            del tr[keys.tidying(until_ms, What.EXPIRED, message.id)]
        elif until_ms is not None:
            # The entry may have been done, and removed, during the lease: without a new one an
            # expired message that returns would stay.
            due.tidy(tr, keys, until_ms, What.EXPIRED, message.id)


def free_slots(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> int:
    """Hand over what those that leave hold of keys and limits, and those that are taken of the
    windows of their keys."""
    if transition.leaves or transition.source is State.READY:
        return hand_over.freed(tr, scope, messages, transition)
    return 0


def call_back(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Count the ends of members of groups, and enqueue the callbacks of those that are complete."""
    members = [each for each in messages if each.envelope.group is not None]
    for other, callback in groups.count_ends(tr, scope, transition, members) if members else ():
        # In the transaction of the last member's end: a crash between the two could lose the
        # callback.
        record(tr, other, SCHEDULE, [callback])


STEPS: dict[str, Step] = {
    "announcements": announce,
    "payloads": remove_chunks,
    "failures": failures.forget_ended,
    "names": give_up_names,
    "times_to_live": stop_clocks,
    "results": results.keep_ends,
    "gates": free_slots,
    "history": history.record,
    "groups": call_back,
}
"""In their order. Which of them do something follows from the transition, the messages and the
options of the queue."""
