"""How many messages of each level are in which state, kept by atomic additions.

One key per level holds all counters of the level, so an operation adds to them with one mutation,
reads nothing and conflicts with nobody.
"""

from __future__ import annotations

from ..store.binding import fdb, transactional
from ..values.model import Depth
from ..values.states import State, Transition
from .codec.atomic import pack_counters, unpack_counters
from .keys import Kind, QueueKeys

_COUNTERS = tuple(Depth.__match_args__)
_ENQUEUED = _COUNTERS.index("enqueued")
_BYTES = _COUNTERS.index("ready_bytes")
_INDEX = {state: _COUNTERS.index(state.value) for state in State}


_WIDTH = 64
OPERAND_BYTES = _WIDTH // 8 * len(_COUNTERS)
MODULUS = 1 << 8 * OPERAND_BYTES


def unit(transition: Transition) -> int:
    """What one message that makes a transition adds to the counters, but for its bytes."""
    gone = 1 << _WIDTH * (_ENQUEUED if transition.source is None else _INDEX[transition.source])
    return (gone if transition.source is None else -gone) + (
        1 << _WIDTH * _INDEX[transition.target]
    )


BYTE = 1 << _WIDTH * _BYTES
"""What one byte of a payload adds that becomes ready."""


def operand(total: int) -> bytes:
    """The operand of ADD of a sum of ``unit`` and ``BYTE``; see ``pack_counters``."""
    return (total % MODULUS).to_bytes(OPERAND_BYTES, "little")


def record(
    tr: fdb.Transaction,
    keys: QueueKeys,
    transition: Transition,
    level: int,
    count: int = 1,
    size: int = 0,
) -> None:
    """Count ``count`` messages of ``level``, with payloads of ``size`` bytes in all, as moved.

    Writes blindly: no reads, no conflicts.
    """
    ready = (transition.target is State.READY) - (transition.source is State.READY)
    tr.add(keys.count(level), operand(count * unit(transition) + ready * size * BYTE))


def shift(
    tr: fdb.Transaction, keys: QueueKeys, state: State, old: int, new: int, size: int
) -> None:
    """Count a message of a state, with a payload of ``size`` bytes, in another level.

    Writes blindly: no reads, no conflicts.
    """
    for level, sign in ((old, -1), (new, 1)) if old != new else ():
        deltas = [0] * len(_COUNTERS)
        deltas[_ENQUEUED] = deltas[_INDEX[state]] = sign
        if state is State.READY:
            deltas[_BYTES] = sign * size
        tr.add(keys.count(level), pack_counters(tuple(deltas)))


@transactional
def depths(tr: fdb.Transaction, keys: QueueKeys) -> dict[int, Depth]:
    """The counters of every level that ever had a message. One snapshot read, no conflicts."""
    return parse(keys, reads(tr, keys))


def reads(tr: fdb.Transaction, keys: QueueKeys) -> fdb.FDBRange:
    """Issue a snapshot read of the counters."""
    counts = keys.kind(Kind.COUNT)
    return tr.snapshot.get_range(counts.start, counts.stop)


def parse(keys: QueueKeys, found: fdb.FDBRange) -> dict[int, Depth]:
    """The counters that ``reads`` found, by level."""
    return {
        keys.parse_count(kv.key): Depth(*unpack_counters(kv.value, len(_COUNTERS))) for kv in found
    }
