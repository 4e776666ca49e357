"""What tests take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fdbqueue import Delivery, Message, Queue, Subscription
from fdbqueue.store.binding import fdb


def take(
    db: fdb.Database | fdb.Transaction, queue: Queue[Any] | Subscription, **terms: Any
) -> Delivery:
    """The next message, which must be there."""
    found: Delivery | None = queue.receive(db, **terms)
    assert found is not None
    return found


def payloads(found: Iterable[Delivery | Message]) -> list[bytes]:
    return [each.payload for each in found]


def ready(db: fdb.Database, queue: Queue[Any]) -> list[bytes]:
    """The payloads of what can be taken, in order; it stays."""
    return payloads(queue.browse(db))
