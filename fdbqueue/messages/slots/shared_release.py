"""Release of what a queue holds of limits that it shares with others, before its deletion."""

from __future__ import annotations

from ...errors import TransactionTooLarge
from ...schema.envelope import Envelope
from ...schema.keys import QueueKeys
from ...schema.records import BacklogPlace, Delayed
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.limits import Gate
from ...values.model import Position
from ...values.states import PURGE_SCHEDULED
from . import backlog, hand_over

MAX_LEAVING = 1_000
"""The most messages that leave limits in one transaction."""


def holds(tr: fdb.Transaction, keys: QueueKeys) -> bool:
    """Whether messages of a queue hold slots of limits, or wait for one. One round trip; conflicts
    with whatever changes that."""
    reads = [
        tr.get_range(every.start, every.stop, limit=1)
        for every in (keys.of_limits(keys.slot), keys.of_limits(keys.waiting))
    ]
    return any(read.to_list() for read in reads)


def leave(tr: fdb.Transaction, scope: Scope) -> None:
    """Give back what messages of a queue hold of limits, and take those that wait out of line; all
    of it goes to other queues. The caller then deletes the queue.

    Conflicts with whatever changes what they hold. Raises ``TransactionTooLarge`` if they are more
    than a thousand, before anything is written.
    """
    keys = scope.keys
    slots, waiting = (
        tr.get_range(every.start, every.stop, limit=MAX_LEAVING + 1).to_list()
        for every in (keys.of_limits(keys.slot), keys.of_limits(keys.waiting))
    )
    if len(slots) + len(waiting) > MAX_LEAVING:
        # Slots that stay with a deleted queue would be lost to all others: either all go, or the
        # queue stays.
        raise TransactionTooLarge(
            problem=f"more than {MAX_LEAVING:,} messages hold slots of limits or wait for them: "
            "purge the queue first, and settle what is leased"
        )
    messages = []
    for kv in waiting:
        turn = BacklogPlace(*keys.waiting.parse(kv.key))
        message_id = Delayed.unpack(kv.value).envelope.id or ""
        messages.append(_at(turn.gate, message_id, None, turn))
        backlog.take_out(tr, scope, turn)
    for kv in slots:
        gate, n = keys.slot.parse(kv.key)
        messages.append(_at(gate, kv.value.decode(errors="replace"), n))
    # As if they had ended: others that wait for these limits go on in the same transaction.
    hand_over.freed(tr, scope, messages, PURGE_SCHEDULED)


def _at(
    gate: Gate, message_id: str, slot: int | None, turn: BacklogPlace | None = None
) -> StoredMessage:
    """A message as it is at one limit: whatever else it has goes with the queue."""
    assert not isinstance(gate, str), "a limit"
    envelope = Envelope(b"", 0, 0, id=message_id, limits=dict([gate]), slot=slot)
    return StoredMessage(Position(0, 0, b""), envelope, turn=turn)
