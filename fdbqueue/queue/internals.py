"""What workers, pages, commands, metrics and Spark need of a queue or a subscription beside its
methods. Not for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from ..consumers.receiving import Access
from ..schema.catalogue import CachedScope
from ..schema.consumers import Definition, Request
from ..schema.keys import OnceKeys, QueueKeys, RootKeys
from ..schema.scope import Scope
from ..store.binding import fdb
from ..store.clocks import Clock
from ..subscriptions import acquire
from ..subscriptions.acquire import ScanResult
from ..values.model import Delivery
from ..values.serializers import Serializer
from .enqueue import Enqueuing
from .queue_base import Handle, Transactor
from .subscription import Subscription

R = TypeVar("R")


class Internals:
    """The inside of a queue.

    root, root_keys, keys: where it is. entry: its options, as they were read last. access: through
    which the calling thread receives.
    """

    __slots__ = ("_queue", "clock", "entry", "keys", "root", "root_keys")

    def __init__(self, queue: Handle) -> None:
        self._queue = queue
        self.root: fdb.Subspace = queue._root
        self.root_keys: RootKeys = queue._root_keys
        self.keys: QueueKeys = queue._keys
        self.entry: CachedScope = queue._entry
        self.clock: Clock = queue._clock

    @property
    def access(self) -> Access:
        return self._queue._access

    def scope(self, tr: fdb.Transaction) -> Scope:
        """See ``CachedScope.scope``."""
        return self.entry.scope(tr)

    def read(self, tr: Transactor, body: Callable[[fdb.Transaction], R]) -> R:
        """What ``body`` reads, in the caller's transaction or in one of its own."""
        return self._queue._read(tr, body)


def serializer(queue: Enqueuing[Any]) -> Serializer[Any] | None:
    """What makes bytes of the payloads of a queue."""
    return queue._serializer


def jobs(queue: Enqueuing[Any]) -> Mapping[str, Any]:
    """The jobs of a queue, by name."""
    return queue._jobs


class SubscriptionInternals:
    """The inside of a subscription.

    consumer: the id of the handle as a consumer. once: where its transactions are recorded. access:
    as of ``Internals``.
    """

    __slots__ = ("_subscription", "consumer", "once")

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.consumer: bytes = subscription._consumer
        self.once: OnceKeys = subscription._once

    @property
    def access(self) -> Access:
        return self._subscription._access

    def known(self, tr: fdb.Transaction, scope: Scope) -> Definition:
        """Its definition; raises ``NotFound``."""
        return self._subscription._supply.known(tr, scope)

    def drop(self, tr: fdb.Transaction, scope: Scope) -> None:
        """Remove it, and tell its sleeping consumers."""
        self._subscription._supply.drop(tr, scope)

    def take(
        self,
        tr: fdb.Transaction,
        request: Request,
        *,
        strict: bool,
        resume: Mapping[int, bytes],
    ) -> tuple[Sequence[Delivery], ScanResult, bool]:
        """Lease what a registered consumer asks for, and look for the match behind that. Returns
        also whether the subscription has closed itself."""
        return self._subscription._take(tr, request, strict, resume)

    def levels(self, tr: fdb.Transaction, scope: Scope, most: int) -> Iterator[int]:
        """The levels of the first messages that match, in order. Moves nothing."""
        return islice(acquire.levels(tr, scope, self.known(tr, scope)), most)
