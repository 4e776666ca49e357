"""Replacing what waits: an enqueue whose unique key a waiting message holds.

The message stays one and keeps its id, and gets what the new one says. So it keeps its place, too:
however often it is replaced, its turn comes. In a queue that sorts, keeps last values or is
browsed, and under another key, it cannot stay where it is: it ends as one of a last value does, and
the new one comes in. Attempts belong to what was attempted: they begin again.

A message that is leased is left alone, since its consumer has read it. It gives its unique key up,
and the new message comes in behind it with that: nothing that an enqueue says is lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...errors import MessagePlanned
from ...schema import due as agenda
from ...schema.consumers import Mode
from ...schema.envelope import Envelope
from ...schema.keys import What
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.model import Due, Position
from ...values.states import End, State
from .. import editing, lookup, run, settle
from ..delivery import failures
from ..lookup import FoundMessage


def waiting(tr: fdb.Transaction, scope: Scope, message_id: str) -> FoundMessage | None:
    """The message that holds a unique key, if it can be replaced. Conflicts with what moves it."""
    found = lookup.find(tr, scope, lookup.reads(tr, scope.keys, message_id))
    return found if editing.editable(found) else None


def end_expired(tr: fdb.Transaction, scope: Scope, holders: Iterable[str], now_ms: int) -> set[str]:
    """End those that hold unique keys, by their ids, and wait though they have expired: others may
    have the keys. Returns their ids. One round trip of snapshot reads, and another for those."""
    # Most have not expired: at snapshot isolation they conflict with nobody.
    snapshot, keys = tr.snapshot, scope.keys
    reads = [lookup.reads(snapshot, keys, each) for each in holders]
    there = [found for each in reads if (found := lookup.find(snapshot, scope, each))]
    over = [each.message.id for each in there if each.message.envelope.expired(now_ms)]
    ended: set[str] = set()
    for each in [lookup.reads(tr, keys, message_id) for message_id in over]:
        found = lookup.find(tr, scope, each)
        if found is not None and found.state is not State.DEAD:
            settle.end(tr, scope, [found], End.EXPIRE)
            ended.add(each.id)
    return ended


def take_over(tr: fdb.Transaction, scope: Scope, message_id: str, unique: str) -> None:
    """Take its unique key from a message that is leased. Conflicts with its settlement.

    Raises ``MessagePlanned`` if a plan has it: those are settled all together.
    """
    keys = scope.keys
    held = lookup.held(tr, scope, lookup.reads(tr, keys, message_id))
    if held is None:
        planned = lookup.current(tr, scope, message_id)
        if planned is None or planned.state is not State.LEASED:
            return  # It cannot be read.
        raise MessagePlanned(message_id=message_id, consumer=planned.consumer)
    one, message = held
    packed = replace(message.envelope, unique=None).pack()
    # The lease no longer has the key, so its end will not remove the new message's.
    run.rewrite(tr, one, replace(one.lease, envelope=packed))
    del tr[keys.unique(unique)]


def due(found: FoundMessage, asked_ms: int, max_delay_ms: int | None, now_ms: int) -> int | None:
    """When a message that is put off is due; None if its time stays as it is.

    asked_ms: when it shall be due. max_delay_ms: how long after its first enqueue at most.
    """
    place, envelope = found.place, found.message.envelope
    if max_delay_ms is not None:
        asked_ms = min(asked_ms, envelope.enqueued_at_ms + max_delay_ms)
    if not isinstance(place, Due):
        return asked_ms if asked_ms > now_ms else None
    # One that rests after an attempt rests no shorter.
    return max(asked_ms, place.due_ms) if found.message.position.index else asked_ms


def stays(scope: Scope, found: FoundMessage, envelope: Envelope) -> bool:
    """Whether a message can keep its place as it gets another envelope: nobody who browses the
    queue may have passed it as it was."""
    options = scope.options
    ready = isinstance(found.place, Position) or bool(found.message.position.index)
    browsed = any(each.mode is Mode.BROWSE for each in scope.subscriptions)
    return (
        not (ready and browsed)
        and not options.ordered
        and options.last_value is None
        and found.message.envelope.gates == envelope.gates
    )


def longer(new: Envelope, old: Envelope) -> int | None:
    """For how long to keep the result of a message that replaces another: whoever enqueued the
    other may ask for it, too."""
    return max(each.keep_result_ms or 0 for each in (new, old)) or None


def rewrite(
    tr: fdb.Transaction, scope: Scope, found: FoundMessage, envelope: Envelope, due_ms: int | None
) -> None:
    """Give a message that stays another envelope, and perhaps another time. Raises
    ``QueueFull`` and ``PayloadTooLarge``, before anything is written."""
    keys, old = scope.keys, found.message
    envelope = editing.revise(tr, scope, found, envelope)
    failures.forget(tr, keys, old)
    if old.envelope.expires_at_ms is not None:
        del tr[keys.tidying(old.envelope.expires_at_ms, What.EXPIRED, old.id)]
    if envelope.expires_at_ms is not None:
        agenda.tidy(tr, keys, envelope.expires_at_ms, What.EXPIRED, old.id)
    envelope = replace(
        envelope,
        enqueued_at_ms=old.envelope.enqueued_at_ms,
        keep_result_ms=longer(envelope, old.envelope),
        # It keeps its place in line, and so what it holds of the gates before.
        slot=old.envelope.slot,
        slots=old.envelope.slots,
        window=old.envelope.window,
    )
    editing.change(tr, scope, [(found, envelope)], due_ms)


def end(tr: fdb.Transaction, scope: Scope, found: FoundMessage) -> None:
    """End a message that another is to replace elsewhere."""
    settle.end(tr, scope, [found], End.REPLACE)
