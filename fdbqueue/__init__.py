"""fdbqueue: a transactional priority queue layer on FoundationDB.

``open`` a store, ``Queue.open`` a queue, and use both inside your own FoundationDB transactions.
The everyday names are here; errors are in ``fdbqueue.errors``, and the Spark pipeline is in
``fdbqueue.spark``.

Each name is imported when it is first used, so ``import fdbqueue`` costs next to nothing. The first
use of a name that needs the FoundationDB bindings loads them, with the store that
``FDBQUEUE_STORE`` names at that moment. ``from fdbqueue import fdb`` gives the bindings themselves,
with types, and ``transactional`` is their decorator that keeps the types of what it decorates.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from . import errors

__version__ = "0.1.0"

_NAMES = {
    "consumers.credit": "Credit",
    "consumers.line": "Ticket",
    "queue.batch": "Batch",
    "queue.bulk.producer": "Producer",
    "queue.overview": "list_queues survey",
    "queue.queue": "Queue",
    "queue.subscription": "Subscription",
    "store.binding": "describe fdb open transactional",
    "store.clocks": "Clock",
    "store.connection": "Connection",
    "values.groups": "Then",
    "values.limits": "Bounds KeyLimits",
    "values.model": "DeadMessage Delivery Depth Enqueued Event Failure Headers LeasedMessage "
    "Message MessageState NewMessage Progress",
    "values.options": "QueueOptions",
    "values.selector": "Selector",
    "values.serializers": "Serializer",
    "values.states": "State",
    "values.verdicts": "Reject Retry Snooze",
    "worker": "Channel Worker",
    "worker.terms": "Fail Run Take",
    "queue.continuations.successors": "context",
}
"""The public names, by the module that defines them."""
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_WHERE, "errors"]  # noqa: PLE0604 - strings, all of them
_MODULES = {"consumers", "metrics", "spark"}
"""Modules with more public names. ``testing`` is not among them: it needs pytest."""


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
