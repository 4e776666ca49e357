"""The backlog of a key: its messages that wait for a slot, in order.

An enqueue adds behind the last, by a snapshot read, as it does in a level of the queue. BACKLOG
exists while messages wait. Who relies on that reads it with a conflict, and only the first message
that waits, and whoever takes the last one, write it. Who takes messages and leaves others relies on
one that stays, and reads that with a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ...schema.codec.atomic import pack_counters
from ...schema.codec.delayed import pack_message
from ...schema.codec.envelopes import pack_envelope
from ...schema.codec.lookup import Turn, pack_place
from ...schema.codec.slots import Backlog, pack_backlog
from ...schema.keys import QueueKeys, SlotKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...store.client import pack_int, parse_int
from ...values.limits import Allowed
from ...values.model import Position

N = TypeVar("N")
"""What has slots."""


def last(tr: fdb.Transaction, keys: SlotKeys[N], key: N) -> fdb.FDBRange:
    """Issue a snapshot read of the last message that waits.

    A range, since a selector would go on to other kinds of keys where none waits: to lines of the
    history that the transaction has written, which cannot be read.
    """
    every = keys.waiting.under(key)
    return tr.snapshot.get_range(every.start, every.stop, 1, True, fdb.StreamingMode.exact)


def first(tr: fdb.Transaction, keys: SlotKeys[N], key: N, limit: int) -> fdb.FDBRange:
    """Issue a snapshot read of the first messages that wait."""
    every = keys.waiting.under(key)
    mode = fdb.StreamingMode.want_all
    return tr.snapshot.get_range(every.start, every.stop, limit=limit, streaming_mode=mode)


def number(keys: SlotKeys[N], key: N, read: fdb.FDBRange) -> int:
    """The number of the last message that waits; 0 if none does."""
    begin = keys.waiting.begin(key)
    for kv in read:
        if kv.key[len(begin) :] < pack_int(0):
            return keys.waiting.parse(kv.key)[1]
        return parse_int(kv.key, len(begin))[0]
    return 0


def begin(
    tr: fdb.Transaction, keys: SlotKeys[N], key: N, now_ms: int, settled: Allowed | None
) -> None:
    """Note that messages of a key wait from now on."""
    tr[keys.backlog(key)] = pack_backlog(Backlog(now_ms, settled))


def put(tr: fdb.Transaction, keys: QueueKeys, message: StoredMessage, n: int) -> StoredMessage:
    """Let a message wait under a number; returns it with its place."""
    turn = Turn(message.envelope.key or "", n, message.position.random)
    envelope = replace(message.envelope, id=message.id, slot=None, window=None)
    write(tr, keys, turn, message.id, message.position, pack_envelope(envelope))
    return StoredMessage(message.position, envelope, message.consumer, turn)


def write(
    tr: fdb.Transaction,
    keys: QueueKeys,
    turn: Turn,
    message_id: str,
    position: Position,
    packed: bytes,
) -> None:
    """Write a message that waits, given its stored envelope. Blindly."""
    tr.set(keys.waiting(*turn), pack_message(position, packed))
    tr.set(keys.moved(message_id), pack_place(turn))
    _count(tr, keys, turn.key, 1)


def put_first(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Let messages wait again, before all others of their keys and in their order; returns them
    with their places.

    One round trip. Conflicts with whoever takes the first of the same keys, and if they have no
    backlog with enqueues.
    """
    keys = scope.keys
    wanted = {message.envelope.key or "" for message in messages}
    firsts = {key: first(tr, keys, key, 1) for key in wanted}
    backlogs = {key: tr.get(keys.backlog(key)) for key in wanted}
    following = {}
    for key, rows in firsts.items():
        ahead = rows.to_list()
        following[key] = keys.waiting.parse(ahead[0].key)[1] if ahead else 1
        if not backlogs[key].present():
            begin(tr, keys, key, scope.now_ms(tr), None)
        elif ahead:
            tr.add_read_conflict_key(ahead[0].key)
    placed = []
    for message in reversed(messages):
        key = message.envelope.key or ""
        following[key] -= 1
        placed.append(put(tr, keys, message, following[key]))
    return placed


def shrink(
    tr: fdb.Transaction, keys: SlotKeys[N], key: N, taken: int, rest: Sequence[fdb.KeyValue]
) -> None:
    """Note that ``taken`` messages of a key wait no more, already removed.

    rest: the first ones that were left, at least one if there are any.
    """
    if rest:
        tr.add_read_conflict_key(rest[0].key)
        _count(tr, keys, key, -taken)
        return
    every = keys.waiting.under(key)
    tr.add_read_conflict_range(every.start, every.stop)
    del tr[keys.backlog(key)]
    del tr[keys.backlog_count(key, 0)]


def leave(tr: fdb.Transaction, keys: SlotKeys[N], taken: Mapping[N, int]) -> None:
    """As ``shrink``, for several keys. One round trip."""
    rests = {key: first(tr, keys, key, 1) for key in taken}
    for key, rest in rests.items():
        shrink(tr, keys, key, taken[key], rest.to_list())


def _count(tr: fdb.Transaction, keys: SlotKeys[N], key: N, change: int) -> None:
    tr.add(keys.backlog_count(key, 0), pack_counters((change,)))
