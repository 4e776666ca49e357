"""The limits of a key: its own where it has some, else those of the queue.

A limit that queues share has but its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from ...errors import CorruptData
from ...schema.codec import pack
from ...schema.records import unpack_limits
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.limits import Gate, KeyLimits, OwnLimits
from ...values.options import check_weight


def effective(scope: Scope, gate: Gate, stored: bytes | None) -> KeyLimits:
    """The limits of a key, or of a limit, given its LIMITS row."""
    return shared(stored) if not isinstance(gate, str) else _merged(scope, unpack_limits(stored))


def shared(stored: bytes | None) -> KeyLimits:
    """The limits of a limit that queues share, given its LIMITS row; none where it has none."""
    own = unpack_limits(stored)
    return KeyLimits(
        own.get("concurrency"),
        paused=own.get("paused", False),
        rate=own.get("rate"),
    )


def one_at_a_time(scope: Scope, stored: bytes | None) -> bool:
    """Whether it is an ordering key: its messages follow each other, at no rate."""
    allowed = _merged(scope, unpack_limits(stored))
    return allowed.concurrency == 1 and allowed.rate is None


def change(
    tr: fdb.Transaction, scope: Scope, key: str, changes: OwnLimits, dropped: Iterable[str] = ()
) -> KeyLimits:
    """Change a key's own limits, and drop some; returns its limits. One round trip.

    Conflicts with ends of the key, and with its enqueues but those to a backlog.
    Raises ``InvalidOptions``.
    """
    row = scope.keys.limits(key)
    own = _changed(tr.get(row).value, changes, dropped)
    limits = _merged(scope, own)
    if changes.keys() & {"weight", "window"} and "weight" in own:
        check_weight("weight", limits.weight, limits.window)
    if own:
        tr[row] = pack(own)
    else:
        del tr[row]
    return limits


def change_shared(
    tr: fdb.Transaction, row: bytes, changes: OwnLimits, dropped: Iterable[str] = ()
) -> None:
    """Change what a limit that queues share may do, given the key of its LIMITS row. Conflicts as
    ``change``. Raises ``InvalidOptions``."""
    own = _changed(tr.get(row).value, changes, dropped)
    if own:
        tr[row] = pack(own)
    else:
        del tr[row]


def _changed(stored: bytes | None, changes: OwnLimits, dropped: Iterable[str]) -> OwnLimits:
    """Own limits after a change, which replaces what cannot be read."""
    own: OwnLimits = {}
    with suppress(CorruptData):
        own = unpack_limits(stored)
    own.update(changes)
    for name in dropped:
        own.pop(name, None)  # type: ignore[misc]
    return own


def _merged(scope: Scope, own: OwnLimits) -> KeyLimits:
    return replace(scope.options.keys, **own) if own else scope.options.keys
