"""Queues that receive by one scheme, whoever else wants the same messages."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from fdbqueue import Queue
from fdbqueue.schema.scope import Scheme

Q = TypeVar("Q", bound=Queue[Any])


def forced(queue: Q, scheme: str) -> Q:
    """The same handle, which receives by a scheme from now on."""
    queue._entry.force(cast("Scheme", scheme))
    return queue
