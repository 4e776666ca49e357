"""Recording transitions: counters, history, and the removal of side records.

An operation moves a message and then records the transition here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ..schema import changes, counters, due, once
from ..schema.keys import What
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.states import ENDS, SCHEDULE, State, Transition
from . import history, payloads
from .delivery import limits, results
from .groups import members as groups
from .slots import hand_over

_NO_SIZES: Mapping[int, int] = MappingProxyType({})


def record(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> int:
    """Record a transition of messages, and remove the side records of those that end; returns how
    many others became ready, which had waited for slots of their keys.

    Writes blindly. Only the end of a message with a key reads, and its delivery if the key has a
    window: what it holds of the key, and the backlog (see ``hand_over``); and so does the end of a
    member of a group (see ``groups.members``).
    """
    count(tr, scope, transition, *_tally(messages))
    if transition.target is State.READY:
        # One that waits for a slot of its key is nothing to wake for.
        ready = [each for each in messages if each.turn is None]
        if ready:
            changes.announce(tr, scope, ready)
    for message in messages:
        _tidy(tr, scope, transition, message)
        results.note(tr, scope, transition, message)
    let_out = 0
    if transition.target in ENDS or transition.target is State.DEAD:
        let_out = hand_over.ended(tr, scope, messages, ready=transition.source is State.READY)
    elif transition.source is State.READY:
        let_out = hand_over.taken(tr, scope, messages)
    if scope.options.history_seconds is not None:
        history.record(tr, scope, transition, messages)
    members = [each for each in messages if each.envelope.group is not None]
    for other, callback in groups.note(tr, scope, transition, members) if members else ():
        record(tr, other, SCHEDULE, [callback])
    return let_out


def count(
    tr: fdb.Transaction,
    scope: Scope,
    transition: Transition,
    numbers: Mapping[int, int],
    sizes: Mapping[int, int] = _NO_SIZES,
) -> None:
    """Count a transition of messages, by their levels: how many, and how many bytes of payloads if
    it comes to or from READY. That is all for those that have no side records, in a queue without a
    history. Writes blindly.
    """
    if not numbers:
        return
    once.change(tr, scope.keys)
    for level, number in numbers.items():
        counters.record(tr, scope.keys, transition, level, number, sizes.get(level, 0))
    if scope.options.max_in_flight is not None and transition.source is State.LEASED:
        limits.freed(tr, scope)


def _tally(messages: Iterable[StoredMessage]) -> tuple[dict[int, int], dict[int, int]]:
    numbers: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for message in messages:
        level = message.position.level
        numbers[level] = numbers.get(level, 0) + 1
        sizes[level] = sizes.get(level, 0) + message.envelope.size
    return numbers, sizes


def _tidy(
    tr: fdb.Transaction, scope: Scope, transition: Transition, message: StoredMessage
) -> None:
    keys, envelope = scope.keys, message.envelope
    ends = transition.target in ENDS
    if ends:
        payloads.remove(tr, keys, envelope)
    # A dead letter has lost its unique key: another message may have it by now.
    lives = transition.source is not State.DEAD
    if envelope.unique and lives and (ends or transition.target is State.DEAD):
        del tr[keys.unique(envelope.unique)]
    if envelope.expires_at_ms is not None:
        if ends or transition.target is State.DEAD:
            del tr[keys.tidying(envelope.expires_at_ms, What.EXPIRED, message.id)]
        elif transition.source is State.LEASED:  # It may have fallen due meanwhile.
            due.tidy(tr, keys, envelope.expires_at_ms, What.EXPIRED, message.id)
    if envelope.last_value is not None and (ends or transition.target is State.DEAD):
        # Only if it is the newest; a producer that replaces it meanwhile conflicts.
        tr.compare_and_clear(keys.latest(envelope.last_value), message.id.encode())
        del tr[keys.replaced(envelope.last_value, message.id)]
    if ends and (envelope.id or transition.source in (State.DELAYED, State.DEAD)):
        del tr[keys.moved(message.id)]
