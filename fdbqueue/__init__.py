"""fdbqueue: a transactional priority queue layer on FoundationDB.

``open`` a store, ``Queue.open`` a queue, and use both inside your own FoundationDB transactions.

Everything is imported when it is first named. So ``import fdbqueue`` costs nothing, and
``FDBQUEUE_STORE`` can be set until a name is used that stands on the FoundationDB bindings: that
import decides which store the bindings load. ``from fdbqueue import fdb`` gives the bindings
themselves, ready for ``@fdb.transactional`` at the top of a module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Queue, list_queues
    from .binding import Engine, Store, describe, fdb, open
    from .clock import Clock
    from .connection import ConnectionState
    from .consumers.credit import Credit
    from .consumers.registry import Consumer
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
        InvalidSelector,
        LeaseLost,
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
        StoreError,
        StoreMismatch,
        StoreNotFound,
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
    from .importing import Import
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
    from .queue.line import Ticket
    from .selector import Selector
    from .serializers import Serializer
    from .states import State
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
    "InvalidSelector",
    "LeaseLost",
    "LeasedMessage",
    "Message",
    "MessageState",
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
    "State",
    "Store",
    "StoreError",
    "StoreMismatch",
    "StoreNotFound",
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
    "CatalogueError": "errors",
    "Clock": "clock",
    "ConnectionState": "connection",
    "Consumer": "consumers.registry",
    "CorruptData": "errors",
    "Credit": "consumers.credit",
    "DeadMessage": "model",
    "Death": "model",
    "Delivery": "model",
    "Depth": "model",
    "Deviation": "model",
    "Engine": "binding",
    "Event": "model",
    "ExpiredBacklog": "errors",
    "FormatTooNew": "errors",
    "HandlerTooSlow": "errors",
    "HeaderValue": "model",
    "Headers": "model",
    "Import": "importing",
    "ImportMoved": "errors",
    "InvalidArgument": "errors",
    "InvalidHeaders": "errors",
    "InvalidInput": "errors",
    "InvalidName": "errors",
    "InvalidOptions": "errors",
    "InvalidPayload": "errors",
    "InvalidPriority": "errors",
    "InvalidSelector": "errors",
    "LeaseLost": "errors",
    "LeasedMessage": "model",
    "Message": "model",
    "MessageState": "model",
    "MissingPackage": "errors",
    "NewMessage": "model",
    "NoSuchWorker": "errors",
    "NotAStore": "errors",
    "OptionsMismatch": "errors",
    "OutcomeUnknown": "errors",
    "PayloadTooLarge": "errors",
    "Position": "model",
    "Progress": "model",
    "Queue": "api",
    "QueueError": "errors",
    "QueueExists": "errors",
    "QueueFull": "errors",
    "QueueNotFound": "errors",
    "QueueOptions": "options",
    "Reject": "worker",
    "Retry": "worker",
    "Selector": "selector",
    "Serializer": "serializers",
    "State": "states",
    "Store": "binding",
    "StoreError": "errors",
    "StoreMismatch": "errors",
    "StoreNotFound": "errors",
    "StoreNotWritable": "errors",
    "StoreUnreachable": "errors",
    "Subscription": "subscribing",
    "SubscriptionError": "errors",
    "SubscriptionHeld": "errors",
    "SubscriptionMismatch": "errors",
    "SubscriptionNotFound": "errors",
    "Surveyed": "surveying",
    "Swept": "model",
    "Ticket": "queue.line",
    "TransactionTooLarge": "errors",
    "UnknownContentType": "errors",
    "UnsupportedVersion": "errors",
    "Verification": "model",
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
