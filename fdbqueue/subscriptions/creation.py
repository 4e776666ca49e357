"""Creating and removing subscriptions."""

from __future__ import annotations

from ..messages import auto_delete
from ..schema import catalogue, change_counters
from ..schema.consumers import Definition
from ..schema.keys import LOWEST
from ..schema.scope import Scope
from ..store.binding import fdb


def store(tr: fdb.Transaction, scope: Scope, definition: Definition) -> None:
    """Create or replace a subscription. Conflicts with every operation on the queue."""
    tr[scope.keys.subscription(definition.name)] = definition.pack()
    # A consumer that sleeps may want what it did not want before.
    tr.add(scope.keys.changes_of(definition.name), change_counters.ONE)
    catalogue.resubscribe(tr, scope.keys)


def remove(tr: fdb.Transaction, scope: Scope, name: str) -> None:
    """Remove a subscription, its cursors, and its line, which wakes those in it.

    Conflicts with every operation on the queue, so that none that requeues a message can move a
    removed cursor.
    """
    keys = scope.keys
    del tr[keys.subscription(name)]
    del tr[keys.holder(name)]
    for within in (keys.cursor.under(name), keys.line_of(name).all):
        tr.clear_range(within.start, within.stop)
    catalogue.resubscribe(tr, keys)


def drop(tr: fdb.Transaction, scope: Scope, name: str) -> None:
    """Remove a subscription, and with it an auto-delete queue that is otherwise unused."""
    remove(tr, scope, name)
    if scope.options.auto_delete is not None and auto_delete.drained(tr, scope):
        catalogue.delete(tr, scope.root, scope.name)


def rewind(tr: fdb.Transaction, scope: Scope, name: str) -> None:
    """Set all cursors to the lowest place. Writes blindly."""
    for level in range(scope.options.levels):
        tr[scope.keys.cursor(name, level)] = LOWEST
