"""fdbqueue for asyncio.

``Queue`` and its parts have the names, arguments and errors of the blocking API; what waits is a
coroutine, and listings are async iterators. ``open`` gives a database, and ``transactional`` runs a
coroutine function in a transaction, in which operations of queues compose.

Needs the package greenlet: ``pip install 'fdbqueue[aio]'``.
"""

from __future__ import annotations

from .channel import Channel
from .connection import Connection
from .overview import list_queues, survey
from .queues import (
    Batch,
    DeadLetters,
    Groups,
    Import,
    Key,
    Keys,
    Plans,
    Producer,
    Queue,
    Schedules,
    Sink,
    Stager,
    Streams,
    Subscription,
    Subscriptions,
)
from .successors import context
from .transactions import Database, Reads, Transaction, open, transactional
from .worker import Worker

__all__ = [
    "Batch",
    "Channel",
    "Connection",
    "Database",
    "DeadLetters",
    "Groups",
    "Import",
    "Key",
    "Keys",
    "Plans",
    "Producer",
    "Queue",
    "Reads",
    "Schedules",
    "Sink",
    "Stager",
    "Streams",
    "Subscription",
    "Subscriptions",
    "Transaction",
    "Worker",
    "context",
    "list_queues",
    "open",
    "survey",
    "transactional",
]
