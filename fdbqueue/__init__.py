"""fdbqueue: a transactional priority queue layer on FoundationDB.

``open`` a store, ``Queue.open`` a queue, and use both inside your own FoundationDB transactions.
What is needed every day is here; the errors are in ``fdbqueue.errors``, and what belongs to the
pipeline on Spark is in ``fdbqueue.spark``.

Everything is imported when it is first named. So ``import fdbqueue`` costs nothing, and
``FDBQUEUE_STORE`` can be set until a name is used that stands on the FoundationDB bindings: that
import decides which store the bindings load. ``from fdbqueue import fdb`` gives the bindings
themselves, with types, and ``transactional`` is their decorator, which keeps the types of what it
decorates.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _moved, errors

if TYPE_CHECKING:
    from . import consumers as consumers
    from . import metrics as metrics
    from . import spark as spark
    from .consumers.credit import Credit
    from .consumers.line import Ticket
    from .queue.bulk.imports import Import
    from .queue.bulk.sinks import Sink
    from .queue.overview import list_queues, survey
    from .queue.queue import Queue
    from .queue.subscription import Subscription
    from .queue.verification import verify
    from .store.binding import describe, fdb, open, transactional
    from .store.clocks import Clock
    from .store.connection import Connection
    from .values.model import (
        DeadMessage,
        Delivery,
        Depth,
        Enqueued,
        Event,
        Headers,
        LeasedMessage,
        Message,
        MessageState,
        NewMessage,
        Progress,
    )
    from .values.options import QueueOptions
    from .values.selector import Selector
    from .values.serializers import Serializer
    from .values.states import State
    from .worker import Reject, Retry, Snooze, Worker

__version__ = "0.1.0"

__all__ = [
    "Clock",
    "Connection",
    "Credit",
    "DeadMessage",
    "Delivery",
    "Depth",
    "Enqueued",
    "Event",
    "Headers",
    "Import",
    "LeasedMessage",
    "Message",
    "MessageState",
    "NewMessage",
    "Progress",
    "Queue",
    "QueueOptions",
    "Reject",
    "Retry",
    "Selector",
    "Serializer",
    "Sink",
    "Snooze",
    "State",
    "Subscription",
    "Ticket",
    "Worker",
    "describe",
    "errors",
    "fdb",
    "list_queues",
    "open",
    "survey",
    "transactional",
    "verify",
]

_LAZY = {
    "Clock": "store.clocks",
    "Connection": "store.connection",
    "Credit": "consumers.credit",
    "DeadMessage": "values.model",
    "Delivery": "values.model",
    "Depth": "values.model",
    "Enqueued": "values.model",
    "Event": "values.model",
    "Headers": "values.model",
    "Import": "queue.bulk.imports",
    "LeasedMessage": "values.model",
    "Message": "values.model",
    "MessageState": "values.model",
    "NewMessage": "values.model",
    "Progress": "values.model",
    "Queue": "queue.queue",
    "QueueOptions": "values.options",
    "Reject": "worker",
    "Retry": "worker",
    "Selector": "values.selector",
    "Serializer": "values.serializers",
    "Sink": "queue.bulk.sinks",
    "Snooze": "worker",
    "State": "values.states",
    "Subscription": "queue.subscription",
    "Ticket": "consumers.line",
    "Worker": "worker",
    "describe": "store.binding",
    "fdb": "store.binding",
    "list_queues": "queue.overview",
    "open": "store.binding",
    "survey": "queue.overview",
    "transactional": "store.binding",
    "verify": "queue.verification",
}

_MODULES = {"consumers", "metrics", "spark"}
"""Modules with the rest of what is public. Of ``testing`` no: it is for those who have pytest."""

_MOVED = {
    "ConnectionState": "store.connection",
    "Consumer": "consumers",
    "Death": "values.model",
    "Deviation": "values.model",
    "Engine": "store.binding",
    "HeaderValue": "values.model",
    "Plan": "spark",
    "PlanConsumer": "spark",
    "Position": "values.model",
    "Store": "store.binding",
    "Surveyed": "queue.overview",
    "Swept": "values.model",
    "Verification": "values.model",
    "rebuild_counters": "queue.verification",
}
"""Names that were here once, beside those of the errors, and the modules that have them now."""

_moved.install()

if not TYPE_CHECKING:  # else a misspelt name would have the type Any

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
            globals()[name] = value
            return value
        if name in _MODULES or name in _moved.MOVED:
            return import_module(f"{__name__}.{name}")
        place = "errors" if hasattr(errors, name) else _MOVED.get(name)
        if name.startswith("_") or place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = f"{__name__}.{place}"
        warnings.warn(f"import {name} from {found}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(found), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
