"""Taking the first messages, in strict order of priority and arrival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..binding import fdb
from ..codec import pack_index, unpack_envelope
from ..keys import QueueKeys
from ..states import DEQUEUE
from . import life
from .scope import Scope, Standing


def first(tr: fdb.TransactionRead, keys: QueueKeys, limit: int) -> fdb.FDBRange:
    """Issue a read of the first ready messages.

    On a transaction it conflicts with whatever changes the keys up to the last one returned, and
    with any arrival at all where fewer than ``limit`` are there; on its snapshot with nothing.
    """
    ready = keys.ready_range()
    return tr.get_range(
        ready.start, ready.stop, limit=limit, streaming_mode=fdb.StreamingMode.exact
    )


def standing(keys: QueueKeys, found: fdb.FDBRange) -> list[Standing]:
    """The messages of READY keys."""
    return [Standing(keys.parse_ready(kv.key), unpack_envelope(kv.value)) for kv in found]


def remove(tr: fdb.Transaction, keys: QueueKeys, messages: Iterable[Standing]) -> None:
    """Remove ready messages. Blind: MAX on TAIL keeps their indexes from being used again."""
    passed: dict[int, int] = {}
    for message in messages:
        position = message.position
        del tr[keys.ready(position)]
        passed[position.level] = max(position.index, passed.get(position.level, 0))
    for level, index in passed.items():
        tr.max(keys.tail(level), pack_index(index))


@fdb.transactional
def finish(tr: fdb.Transaction, scope: Scope, messages: Sequence[Standing]) -> None:
    """Remove ready messages for good: they are done. Writes blindly; the caller has read them."""
    remove(tr, scope.keys, messages)
    life.moved(tr, scope, DEQUEUE, messages)


@fdb.transactional
def peek(tr: fdb.Transaction, scope: Scope, limit: int) -> list[Standing]:
    """The first ``limit`` ready messages, left where they are. One snapshot read, no conflicts."""
    return standing(scope.keys, first(tr.snapshot, scope.keys, limit))
