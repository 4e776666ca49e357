"""Creating and removing subscriptions, and setting their cursors."""

from __future__ import annotations

from ..errors import InvalidArgument
from ..messages import auto_delete
from ..messages.enqueue import index_allocation
from ..schema import catalogue, subscription_definitions
from ..schema.keys import LOWEST, QueueKeys
from ..schema.scope import Scope
from ..schema.subscription_definitions import Definition
from ..store.binding import fdb, transactional
from ..values.model import Position
from . import cursors as cursor


@transactional
def store(tr: fdb.Transaction, scope: Scope, definition: Definition) -> None:
    """Create or replace a subscription. Conflicts with every operation on the queue."""
    tr[scope.keys.subscription(definition.name)] = subscription_definitions.pack(definition)
    catalogue.resubscribe(tr, scope.keys)


@transactional
def remove(tr: fdb.Transaction, scope: Scope, name: str) -> None:
    """Remove a subscription and its cursors.

    Conflicts with every operation on the queue, so that none that requeues a message can move a
    removed cursor.
    """
    keys = scope.keys
    del tr[keys.subscription(name)]
    del tr[keys.holder(name)]
    cursors = keys.cursors(name)
    tr.clear_range(cursors.start, cursors.stop)
    catalogue.resubscribe(tr, keys)


@transactional
def drop(tr: fdb.Transaction, scope: Scope, name: str) -> None:
    """Remove a subscription, and with it an auto-delete queue that is otherwise unused."""
    remove(tr, scope, name)
    if scope.options.auto_delete and auto_delete.drained(tr, scope):
        catalogue.delete(tr, scope.root, scope.name)


@transactional
def rewind(tr: fdb.Transaction, scope: Scope, name: str) -> None:
    """Set all cursors to the lowest place. Writes blindly."""
    for level in range(scope.options.levels):
        tr[scope.keys.cursor(name, level)] = LOWEST


@transactional
def forward(tr: fdb.Transaction, scope: Scope, name: str) -> None:
    """Set all cursors behind every message that exists now.

    One round trip, snapshot reads: a message that commits before the move is skipped like the
    others; one that commits later takes a higher index, if need be after a retry.
    """
    ends = {
        level: index_allocation.reads(tr, scope.keys, level)
        for level in range(scope.options.levels)
    }
    for level, end in ends.items():
        _put_behind(tr, scope.keys, name, level, index_allocation.next_index(scope.keys, *end))


@transactional
def seek(tr: fdb.Transaction, scope: Scope, name: str, position: Position) -> None:
    """Set the cursor of one level to a position; the others stay. As ``forward``."""
    keys, level = scope.keys, position.level
    if not 0 <= level < scope.options.levels:
        raise InvalidArgument(
            argument="to", value=position.to_id(), problem="the queue has no such level"
        )
    following = index_allocation.next_index(keys, *index_allocation.reads(tr, keys, level))
    if position.index < following:
        cursor.put(tr, keys, name, level, keys.place(position), position.index)
    else:
        # Indexes that were never used must stay usable.
        _put_behind(tr, keys, name, level, following)


def _put_behind(tr: fdb.Transaction, keys: QueueKeys, name: str, level: int, index: int) -> None:
    """Set a cursor before the first message that has ``index``."""
    cursor.put(tr, keys, name, level, keys.place(Position(level, index, b"")), index - 1)
