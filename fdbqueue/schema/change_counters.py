"""CHANGE: counters of what becomes ready, one for the queue and one for each subscription.

That of a subscription counts only what the subscription wants. Sleeping consumers watch them (see
``consumers.wakeups``), and all that makes messages ready adds to them blindly. So it conflicts with
no consumer, and does not depend on whom it saw asleep. The scope's read conflict on META covers
which subscriptions there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..store.binding import fdb
from ..values.model import Message
from .codec import pack_index
from .scope import Scope, StoredMessage

ONE = pack_index(1)
SOON_MS = 10_000
"""Sleepers look at least as often: of what happens sooner they have to be told."""


def announce(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Tell sleeping consumers of messages that become ready. Writes blindly."""
    # ADD, not a set: two that announce at once must both change the value, and a watch compares
    # values.
    tr.add(scope.keys.change, ONE)
    if scope.index is not None:
        ready = (each for each in messages if each.turn is None)
        announce_to_subscriptions(
            tr, scope, (each.envelope.properties(each.position) for each in ready)
        )


def announce_to_subscriptions(
    tr: fdb.Transaction, scope: Scope, messages: Iterable[Message]
) -> None:
    """Tell the sleeping consumers of subscriptions, if the queue has any. Writes blindly."""
    assert scope.index is not None
    now_ms = scope.now_ms(tr)
    for name in scope.index.wanting(messages, now_ms):
        tr.add(scope.keys.changes_of(name), ONE)


def ring(tr: fdb.Transaction, scope: Scope) -> None:
    """Let every guard look, for another reason than a message. Writes blindly."""
    for name in ("", *(definition.name for definition in scope.subscriptions)):
        tr.add(scope.keys.changes_of(name), ONE)
