"""The backlog of a key, or of a limit: the messages that wait for a slot, in order.

An enqueue adds behind the last, by a snapshot read, as it does in a level of the queue. BACKLOG
exists while messages wait. Who relies on that reads it with a conflict, and only the first message
that waits, and whoever takes the last one, write it. Who takes messages and leaves others relies on
one that stays, and reads that with a conflict.

In the backlog of a limit, the rows that stand in order only name the messages, which lie under the
same elements in their queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...schema.codec import pack_counters
from ...schema.keys import SlotKeys
from ...schema.records import Backlog, BacklogPlace, Delayed, Limited
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.limits import Allowed, Gate
from ...values.model import Position
from .. import lookup
from . import gates


def last(tr: fdb.Transaction, keys: SlotKeys, gate: Gate) -> fdb.FDBRange:
    """Issue a snapshot read of the last message that waits.

    A range, since a selector would go on to other kinds of keys where none waits: to lines of the
    history that the transaction has written, which cannot be read.
    """
    every = keys.waiting.under(gate)
    return tr.snapshot.get_range(every.start, every.stop, 1, True, fdb.StreamingMode.exact)


def first(tr: fdb.Transaction, keys: SlotKeys, gate: Gate, limit: int) -> fdb.FDBRange:
    """Issue a snapshot read of the first messages that wait."""
    every = keys.waiting.under(gate)
    mode = fdb.StreamingMode.iterator  # Where one is too many, the others are not read.
    # At snapshot isolation: whoever takes some adds conflicts on these, and enqueues at the other
    # end stay free.
    return tr.snapshot.get_range(every.start, every.stop, limit=limit, streaming_mode=mode)


def number(keys: SlotKeys, read: fdb.FDBRange) -> int:
    """The number of the last message that waits; 0 if none does."""
    return next((keys.waiting.parse(kv.key)[1] for kv in read), 0)


def begin(
    tr: fdb.Transaction, keys: SlotKeys, gate: Gate, now_ms: int, settled: Allowed | None
) -> None:
    """Note that messages wait from now on."""
    tr[keys.backlog(gate)] = Backlog(now_ms, settled).pack()


def put(
    tr: fdb.Transaction, scope: Scope, gate: Gate, message: StoredMessage, n: int
) -> StoredMessage:
    """Let a message wait under a number, with what it holds of the gates before; returns it with
    its place."""
    turn = BacklogPlace(gate, n, message.position.random)
    envelope = replace(message.envelope, id=message.id)
    write(tr, scope, turn, message.id, message.position, envelope.pack())
    return StoredMessage(message.position, envelope, message.consumer, turn)


def write(
    tr: fdb.Transaction,
    scope: Scope,
    turn: BacklogPlace,
    message_id: str,
    position: Position,
    packed: bytes,
) -> None:
    """Write a message that waits, given its stored envelope. Blindly."""
    tr.set(scope.keys.waiting(*turn), Delayed(position, packed).pack())
    tr.set(scope.keys.moved(message_id), lookup.pointer(scope.keys, turn))
    if not isinstance(turn.gate, str):
        # The line of the limit names the message only: its envelope stays in its own queue, with
        # all else that is deleted with that.
        tr.set(scope.root.limits.waiting(*turn), Limited(scope.name, message_id).pack())
    count(tr, gates.keys(scope, turn.gate), turn.gate, 1)


def take_out(tr: fdb.Transaction, scope: Scope, turn: BacklogPlace) -> None:
    """Remove a message that waits, from its queue and from the line of its limit at once: whoever
    lets out the next would take one without a row for one whose queue is gone, and count it out.
    The caller counts it. Blindly."""
    tr.clear(scope.keys.waiting(*turn))
    if not isinstance(turn.gate, str):
        tr.clear(scope.root.limits.waiting(*turn))


def put_first(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Let messages wait again, before all others of their keys and in their order; returns them
    with their places.

    One round trip. Conflicts with whoever takes the first of the same keys, and if they have no
    backlog with enqueues.
    """
    keys = scope.keys
    wanted = dict.fromkeys(message.envelope.key or "" for message in messages)
    firsts = {key: first(tr, keys, key, 1) for key in wanted}
    backlogs = {key: tr.get(keys.backlog(key)) for key in wanted}
    following = {}
    for key, rows in firsts.items():
        ahead = rows.to_list()
        # Numbers may go below 1: there is always room ahead of the first.
        following[key] = keys.waiting.parse(ahead[0].key)[1] if ahead else 1
        if not backlogs[key].present():
            begin(tr, keys, key, scope.now_ms(tr), None)
        elif ahead:
            # Whoever takes the first one meanwhile would otherwise be followed by messages that
            # came before it.
            tr.add_read_conflict_key(ahead[0].key)
    placed = []
    for message in reversed(messages):
        key = message.envelope.key or ""
        following[key] -= 1
        outside = replace(message, envelope=message.envelope.outside())
        placed.append(put(tr, scope, key, outside, following[key]))
    return placed


def shrink(
    tr: fdb.Transaction, keys: SlotKeys, gate: Gate, taken: int, rest: Sequence[fdb.KeyValue]
) -> None:
    """Note that ``taken`` messages wait no more, already removed.

    rest: the first ones that were left, at least one if there are any.
    """
    if rest:
        # Proof that the backlog goes on: if another takes this one as the last, one of the two must
        # fail and remove BACKLOG.
        tr.add_read_conflict_key(rest[0].key)
        count(tr, keys, gate, -taken)
        return
    every = keys.waiting.under(gate)
    # The backlog ends here: an enqueue that joins it at this moment would wait for a hand-over that
    # never comes.
    tr.add_read_conflict_range(every.start, every.stop)
    del tr[keys.backlog(gate)]
    del tr[keys.backlog_count(gate, 0)]


def leave(tr: fdb.Transaction, keys: SlotKeys, taken: Mapping[Gate, int]) -> None:
    """``shrink`` several backlogs. One round trip."""
    rests = {gate: first(tr, keys, gate, 1) for gate in taken}
    for gate, rest in rests.items():
        shrink(tr, keys, gate, taken[gate], rest.to_list())


def count(tr: fdb.Transaction, keys: SlotKeys, gate: Gate, change: int) -> None:
    """Count messages that wait from now on, or no more. Blindly."""
    # Separate from BACKLOG, which enqueues read with a conflict: a count there would make them
    # abort each other.
    tr.add(keys.backlog_count(gate, 0), pack_counters((change,)))
