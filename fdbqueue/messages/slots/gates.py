"""Where slots are: those of a key in its queue, those of a limit below the root.

A limit is shared by the queues of its root. Its rows of SLOT and WAITING name the messages, and
each of these has a row with the same elements in its own queue, so that whatever is done with a
queue finds what is the queue's. Both rows are always written together, so either tells the other.
"""

from __future__ import annotations

from ...schema import due
from ...schema.keys import TIDYING, SlotKeys, What
from ...schema.records import Limited
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.limits import Gate


def keys(scope: Scope, gate: Gate) -> SlotKeys:
    """The keys below which a key or a limit has its slots, its backlog and its own limits."""
    return scope.keys if isinstance(gate, str) else scope.root.limits


def entry(scope: Scope, gate: Gate, rank: int, due_ms: int) -> bytes:
    """The entry of the agenda with which somebody looks at a key or a limit."""
    return keys(scope, gate).entry(rank, due_ms, What.REST if rank == TIDYING else What.GATE, gate)


def look_later(tr: fdb.Transaction, scope: Scope, gate: Gate, rank: int, due_ms: int) -> None:
    """Have somebody look at a key or a limit. Blindly."""
    due.add(tr, keys(scope, gate), entry(scope, gate, rank, due_ms))


def hold(tr: fdb.Transaction, scope: Scope, gate: Gate, n: int, message_id: str) -> None:
    """Write that a message of a queue holds a slot. Blindly."""
    tr[scope.keys.slot(gate, n)] = message_id.encode()
    if not isinstance(gate, str):
        tr[scope.root.limits.slot(gate, n)] = Limited(scope.name, message_id).pack()


def free(tr: fdb.Transaction, scope: Scope, gate: Gate, n: int) -> None:
    """Write that no message holds a slot, which one of the queue held. Blindly."""
    tr.clear(scope.keys.slot(gate, n))
    if not isinstance(gate, str):
        tr.clear(scope.root.limits.slot(gate, n))
