"""fdbqueue: a transactional priority queue layer on FoundationDB.

``open`` a store, ``Queue.open`` a queue, and use both inside your own FoundationDB transactions.

What stands on the FoundationDB bindings is imported when it is first named, since that import
decides which store the bindings load: until then ``FDBQUEUE_STORE`` can be set, and nothing heavy
is loaded. ``from fdbqueue import fdb`` gives the bindings themselves, ready for
``@fdb.transactional`` at the top of a module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    CatalogueError,
    CorruptData,
    ExpiredBacklog,
    FormatTooNew,
    HandlerTooSlow,
    ImportMoved,
    InvalidArgument,
    InvalidHeaders,
    InvalidInput,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    InvalidPriority,
    InvalidSchema,
    InvalidSelector,
    LeaseLost,
    MissingJava,
    MissingPackage,
    NoSuchWorker,
    NotAStore,
    OptionsMismatch,
    OutcomeUnknown,
    PayloadTooLarge,
    QueueError,
    QueueExists,
    QueueFull,
    QueueNotFound,
    SinkBehind,
    SinkError,
    SinkUnfinished,
    StoreError,
    StoreMismatch,
    StoreNotFound,
    StoreNotShared,
    StoreNotWritable,
    StoreUnreachable,
    SubscriptionError,
    SubscriptionHeld,
    SubscriptionMismatch,
    SubscriptionNotFound,
    TransactionTooLarge,
    UnknownContentType,
    UnsupportedVersion,
)
from .model import (
    DeadMessage,
    Death,
    Delivery,
    Depth,
    Deviation,
    Event,
    Headers,
    HeaderValue,
    LeasedMessage,
    Message,
    MessageState,
    NewMessage,
    Position,
    Progress,
    Swept,
    Verification,
)
from .options import QueueOptions
from .states import State

if TYPE_CHECKING:
    from .api import Queue, list_queues
    from .binding import Engine, Store, describe, fdb, open
    from .clock import Clock
    from .connection import ConnectionState
    from .consumers.credit import Credit
    from .consumers.registry import Consumer
    from .importing import Import
    from .queue.line import Ticket
    from .selector import Selector
    from .serializers import Serializer
    from .sinks import Sink
    from .subscribing import Subscription
    from .surveying import Surveyed, survey
    from .verification import rebuild_counters, verify
    from .worker import Reject, Retry, Worker

__version__ = "0.1.0"

__all__ = [
    "CatalogueError",
    "Clock",
    "ConnectionState",
    "Consumer",
    "CorruptData",
    "Credit",
    "DeadMessage",
    "Death",
    "Delivery",
    "Depth",
    "Deviation",
    "Engine",
    "Event",
    "ExpiredBacklog",
    "FormatTooNew",
    "HandlerTooSlow",
    "HeaderValue",
    "Headers",
    "Import",
    "ImportMoved",
    "InvalidArgument",
    "InvalidHeaders",
    "InvalidInput",
    "InvalidName",
    "InvalidOptions",
    "InvalidPayload",
    "InvalidPriority",
    "InvalidSchema",
    "InvalidSelector",
    "LeaseLost",
    "LeasedMessage",
    "Message",
    "MessageState",
    "MissingJava",
    "MissingPackage",
    "NewMessage",
    "NoSuchWorker",
    "NotAStore",
    "OptionsMismatch",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "Position",
    "Progress",
    "Queue",
    "QueueError",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "QueueOptions",
    "Reject",
    "Retry",
    "Selector",
    "Serializer",
    "Sink",
    "SinkBehind",
    "SinkError",
    "SinkUnfinished",
    "State",
    "Store",
    "StoreError",
    "StoreMismatch",
    "StoreNotFound",
    "StoreNotShared",
    "StoreNotWritable",
    "StoreUnreachable",
    "Subscription",
    "SubscriptionError",
    "SubscriptionHeld",
    "SubscriptionMismatch",
    "SubscriptionNotFound",
    "Surveyed",
    "Swept",
    "Ticket",
    "TransactionTooLarge",
    "UnknownContentType",
    "UnsupportedVersion",
    "Verification",
    "Worker",
    "describe",
    "fdb",
    "list_queues",
    "open",
    "rebuild_counters",
    "survey",
    "verify",
]

_LAZY = {
    "Clock": "clock",
    "ConnectionState": "connection",
    "Consumer": "consumers.registry",
    "Credit": "consumers.credit",
    "Engine": "binding",
    "Import": "importing",
    "Queue": "api",
    "Reject": "worker",
    "Retry": "worker",
    "Selector": "selector",
    "Serializer": "serializers",
    "Sink": "sinks",
    "Store": "binding",
    "Subscription": "subscribing",
    "Surveyed": "surveying",
    "Ticket": "queue.line",
    "Worker": "worker",
    "describe": "binding",
    "fdb": "binding",
    "list_queues": "api",
    "open": "binding",
    "rebuild_counters": "verification",
    "survey": "surveying",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
