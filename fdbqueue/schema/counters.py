"""Counters: how many messages of each level are in each state, kept by atomic additions.

One key holds all counters of a level, so an operation needs one blind mutation to change them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ..store.binding import fdb, transactional
from ..values.model import Depth
from ..values.states import TRANSITIONS, State, Transition
from .codec import unpack_counters
from .keys import QueueKeys

_COUNTERS = tuple(Depth.__struct_fields__)
_ENQUEUED = _COUNTERS.index("enqueued")
_BYTES = _COUNTERS.index("ready_bytes")
_INDEX = {state: _COUNTERS.index(state.value) for state in State}


_WIDTH = 64
OPERAND_BYTES = _WIDTH // 8 * len(_COUNTERS)
OPERANDS = 1_000
"""How many operands a process keeps: most changes are of a message or two."""
MODULUS = 1 << 8 * OPERAND_BYTES


def unit(transition: Transition) -> int:
    """What a transition of one message adds to the counters, its bytes excepted."""
    gone = 1 << _WIDTH * (_ENQUEUED if transition.source is None else _INDEX[transition.source])
    return (gone if transition.source is None else -gone) + (
        1 << _WIDTH * _INDEX[transition.target]
    )


_UNITS = {edge.name: unit(edge) for edge in TRANSITIONS}
BYTE = 1 << _WIDTH * _BYTES
"""What a byte of a payload adds when its message becomes ready."""


@lru_cache(OPERANDS)
def operand(total: int) -> bytes:
    """The operand of ADD for a sum of ``unit`` and ``BYTE``; see ``pack_counters``."""
    return (total % MODULUS).to_bytes(OPERAND_BYTES, "little")


def record(
    tr: fdb.Transaction,
    keys: QueueKeys,
    transition: Transition,
    level: int,
    count: int = 1,
    size: int = 0,
) -> None:
    """Count a transition of ``count`` messages of ``level``, with ``size`` bytes of payloads.

    Writes blindly: no reads, no conflicts.
    """
    ready = (transition.target is State.READY) - (transition.source is State.READY)
    total = count * _UNITS[transition.name] + ready * size * BYTE
    tr.add(keys.levels[level].count, operand(total))


def shift(
    tr: fdb.Transaction, keys: QueueKeys, state: State, old: int, new: int, size: int
) -> None:
    """Move a message, with a payload of ``size`` bytes, from one level's counters to another's.

    Writes blindly: no reads, no conflicts.
    """
    each = (1 << _WIDTH * _ENQUEUED) + (1 << _WIDTH * _INDEX[state])
    each += (state is State.READY) * size * BYTE
    for level, sign in ((old, -1), (new, 1)) if old != new else ():
        tr.add(keys.count(level), operand(sign * each))


@transactional
def resize(tr: fdb.Transaction, keys: QueueKeys, level: int, difference: int) -> None:
    """Count bytes more, or less, in the payload of a ready message of ``level``. Blind."""
    if difference:
        tr.add(keys.count(level), operand(difference * BYTE))


def depths(tr: fdb.Transaction, keys: QueueKeys) -> dict[int, Depth]:
    """The counters of every level that ever had a message. One snapshot read, no conflicts."""
    return parse(keys, reads(tr, keys))


def reads(tr: fdb.Transaction, keys: QueueKeys) -> fdb.FDBRange:
    """Issue a snapshot read of the counters."""
    counts = keys.count.rows
    return tr.snapshot.get_range(counts.start, counts.stop)


def parse(keys: QueueKeys, found: Iterable[fdb.KeyValue]) -> dict[int, Depth]:
    """The counters that were read, by level."""
    return {
        keys.count.parse(kv.key)[0]: Depth(*unpack_counters(kv.value, len(_COUNTERS)))
        for kv in found
    }
