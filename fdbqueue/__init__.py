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

from . import errors

if TYPE_CHECKING:
    from . import (
        backoff as backoff,
    )
    from . import (
        binding as binding,
    )
    from . import (
        clock as clock,
    )
    from . import (
        connection as connection,
    )
    from . import (
        consumers as consumers,
    )
    from . import (
        importing as importing,
    )
    from . import (
        metrics as metrics,
    )
    from . import (
        model as model,
    )
    from . import (
        sinks as sinks,
    )
    from . import (
        spark as spark,
    )
    from . import (
        surveying as surveying,
    )
    from . import (
        verification as verification,
    )
    from .api import Queue
    from .binding import describe, fdb, open, transactional
    from .consumers.credit import Credit
    from .model import (
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
    from .options import QueueOptions
    from .queue.line import Ticket
    from .selector import Selector
    from .serializers import Serializer
    from .states import State
    from .subscribing import Subscription
    from .surveying import list_queues, survey
    from .verification import verify
    from .worker import Reject, Retry, Snooze, Worker

__version__ = "0.1.0"

__all__ = [
    "Credit",
    "DeadMessage",
    "Delivery",
    "Depth",
    "Enqueued",
    "Event",
    "Headers",
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
    "Credit": "consumers.credit",
    "DeadMessage": "model",
    "Delivery": "model",
    "Depth": "model",
    "Enqueued": "model",
    "Event": "model",
    "Headers": "model",
    "LeasedMessage": "model",
    "Message": "model",
    "MessageState": "model",
    "NewMessage": "model",
    "Progress": "model",
    "Queue": "api",
    "QueueOptions": "options",
    "Reject": "worker",
    "Retry": "worker",
    "Snooze": "worker",
    "Selector": "selector",
    "Serializer": "serializers",
    "State": "states",
    "Subscription": "subscribing",
    "Ticket": "queue.line",
    "Worker": "worker",
    "describe": "binding",
    "fdb": "binding",
    "list_queues": "surveying",
    "open": "binding",
    "survey": "surveying",
    "transactional": "binding",
    "verify": "verification",
}

_MODULES = {
    "backoff",
    "binding",
    "clock",
    "connection",
    "consumers",
    "importing",
    "metrics",
    "model",
    "sinks",
    "spark",
    "surveying",
    "verification",
}
"""Modules with the rest of what is public. Of ``testing`` no: it is for those who have pytest."""

_MOVED = {
    "Clock": "clock",
    "ConnectionState": "connection",
    "Consumer": "consumers",
    "Death": "model",
    "Deviation": "verification",
    "Engine": "binding",
    "HeaderValue": "model",
    "Import": "importing",
    "Plan": "spark",
    "PlanConsumer": "spark",
    "Position": "model",
    "Sink": "spark",
    "Store": "binding",
    "Surveyed": "surveying",
    "Swept": "model",
    "Verification": "verification",
    "rebuild_counters": "verification",
}
"""Names that were here once, beside those of the errors, and the modules that have them now."""

if not TYPE_CHECKING:  # else a misspelt name would have the type Any

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
            globals()[name] = value
            return value
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        place = "errors" if hasattr(errors, name) else _MOVED.get(name)
        if name.startswith("_") or place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = f"{__name__}.{place}"
        warnings.warn(f"import {name} from {found}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(found), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
