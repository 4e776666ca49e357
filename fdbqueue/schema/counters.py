"""Counters: how many messages of each level are in each state, kept by atomic additions.

One key holds all counters of a level, so an operation needs one blind mutation to change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial

from ..store.binding import fdb
from ..values.model import Depth
from ..values.states import TRANSITIONS, State, Transition, exactly
from .codec import COUNTER_BYTES, unpack_counters
from .keys import QueueKeys
from .scope import StoredMessage

_COUNTERS = tuple(Depth.__struct_fields__)
_ENQUEUED = _COUNTERS.index("enqueued")
_BYTES = _COUNTERS.index("ready_bytes")
_INDEX = {state: _COUNTERS.index(state.value) for state in State}


_WIDTH = 8 * COUNTER_BYTES
OPERAND_BYTES = COUNTER_BYTES * len(_COUNTERS)
OPERANDS = 1_000
"""How many operands a process keeps: most changes are of a message or two."""
MODULUS = 1 << 8 * OPERAND_BYTES


def _unit(transition: Transition, exact: Callable[[State], State]) -> int:
    one = 1 << _WIDTH * _INDEX[exact(transition.target)]
    if transition.source is None:
        return one + (1 << _WIDTH * _ENQUEUED)
    # Both sides in one operand: the sum over all states never changes in between, whatever readers
    # see.
    return one - (1 << _WIDTH * _INDEX[exact(transition.source)])


_UNITS = {
    (edge.name, waits, failed): _unit(edge, partial(exactly, waits=waits, failed=failed))
    for edge in TRANSITIONS
    for waits in (False, True)
    for failed in (False, True)
}
"""What a transition of one message adds to the counters, its bytes excepted, by whether the message
waits and has failed: see ``exactly``."""
_PASSED = (1 << _WIDTH * _INDEX[State.READY]) - (1 << _WIDTH * _INDEX[State.WAITING])


BYTE = 1 << _WIDTH * _BYTES
"""What a byte of a payload adds when its message becomes ready."""


@lru_cache(OPERANDS)
def operand(total: int) -> bytes:
    """The operand of ADD for a sum of ``_UNITS`` and ``BYTE``; see ``pack_counters``."""
    # ADD wraps around, so a negative delta is its complement.
    return (total % MODULUS).to_bytes(OPERAND_BYTES, "little")


def total(
    transition: Transition,
    messages: Iterable[StoredMessage],
    numbers: Mapping[int, int],
    sizes: Mapping[int, int],
) -> dict[int, int]:
    """What a transition of messages adds to the counters of each level. numbers, sizes: of others,
    by level, and of their payloads, which have neither failed nor wait."""
    ready = (transition.target is State.READY) - (transition.source is State.READY)
    name, size = transition.name, ready * BYTE
    each = _UNITS[name, False, False]
    totals: dict[int, int] = {}
    for level, number in numbers.items():
        totals[level] = number * each + size * sizes.get(level, 0)
    for message in messages:
        envelope, level = message.envelope, message.position.level
        added = _UNITS[name, message.turn is not None, envelope.has_failed]
        totals[level] = totals.get(level, 0) + added + size * envelope.size
    return totals


def add(tr: fdb.Transaction, keys: QueueKeys, totals: Mapping[int, int]) -> None:
    """Add to the counters of levels. Writes blindly: no reads, no conflicts."""
    for level, total in totals.items():
        tr.add(keys.levels[level].count, operand(total))


def passed(tr: fdb.Transaction, keys: QueueKeys, level: int, number: int) -> None:
    """Count messages of a level that wait no more, and are ready. Writes blindly."""
    tr.add(keys.levels[level].count, operand(number * _PASSED))


def shift(
    tr: fdb.Transaction, keys: QueueKeys, state: State, old: StoredMessage, new: StoredMessage
) -> None:
    """Count a message, as it has become another in the same state, as that.

    state: READY or SCHEDULED, as a transition names it. Writes blindly: no reads, no conflicts.
    """
    totals: dict[int, int] = {}
    for message, sign in (old, -1), (new, 1):
        envelope, level = message.envelope, message.position.level
        waits = message.turn is not None
        each = 1 << _WIDTH * _INDEX[exactly(state, waits=waits, failed=envelope.has_failed)]
        each += (1 << _WIDTH * _ENQUEUED) + (state is State.READY) * envelope.size * BYTE
        totals[level] = totals.get(level, 0) + sign * each
    add(tr, keys, {level: total for level, total in totals.items() if total})


def depths(tr: fdb.Transaction, keys: QueueKeys) -> dict[int, Depth]:
    """The counters of every level that ever had a message. One snapshot read, no conflicts."""
    return parse(keys, reads(tr, keys))


def reads(tr: fdb.Transaction, keys: QueueKeys) -> fdb.FDBRange:
    """Issue a snapshot read of the counters."""
    counts = keys.count.rows
    # At snapshot isolation: every operation adds to these keys, and a reader with conflicts would
    # always fail.
    return tr.snapshot.get_range(counts.start, counts.stop)


def parse(keys: QueueKeys, found: Iterable[fdb.KeyValue]) -> dict[int, Depth]:
    """The counters that were read, by level."""
    return {
        keys.count.parse(kv.key)[0]: Depth(*unpack_counters(kv.value, len(_COUNTERS)))
        for kv in found
    }
