"""How a worker handles a queue: what it takes, how the handler runs, and what follows a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from ..consumers.credit import Credit
from ..values import backoff as backoffs
from ..values.durations import Seconds

TIMEOUT_SECONDS = 3600.0
RefreshAfter: TypeAlias = int | Literal["auto"] | None


class Subscribed(Protocol):
    """A ``Subscription``; for a worker of asyncio, one of ``fdbqueue.aio``."""

    @property
    def set_selector(self) -> Callable[..., Any]:
        """Change what it covers."""


class Granting(Protocol):
    """A ``Channel``; for a worker of asyncio, one of ``fdbqueue.aio``."""

    @property
    def credit(self) -> Credit:
        """The credit as it is now."""


class Take(Struct, frozen=True):
    """Which messages of a queue a worker takes, and when.

    subscription: a subscription of the queue, to handle only what its selector matches. Priority,
        credit and ``refresh_after`` of an acquiring one work as for the queue, among the consumers
        of the subscription. A browsing one hands each message to the handler once, in order, in a
        thread of its own, and leaves it in the queue; its cursor moves after the handler, or in its
        transaction. If the handler fails, it gets the same message again after the backoff, and
        ``Reject`` passes it. It has no other terms but ``transactional``, ``batch`` and
        ``backoff``. The worker ends once all its subscriptions have closed themselves, or are
        removed.
    lease: seconds; the queue's own where None. Extended as long as the handler runs.
    credit: how many messages and bytes are held at most, prefetched and running;
        ``concurrency`` + ``prefetch`` messages where None. Or a ``Channel``, through which more is
        granted, or which several queues and subscriptions share.
    refresh_after: a message that is more urgent than prefetched ones is next: as many of those,
        which no handler has begun, are given back for it. "auto": the worker looks for such a
        message before it begins with another one, unless it has done so within 50 milliseconds; not
        for batches. A number: after so many messages have been handled. None: never.
    weight: how many runs of ten messages in a row the queue has while other queues wait.
    at_most_once: a crash loses messages: one is acknowledged before the handler is called, and gone
        if the handler fails, or the process dies.
    """

    subscription: Subscribed | None = None
    lease: Seconds | None = None
    credit: Credit | Granting | None = None
    refresh_after: RefreshAfter = "auto"
    weight: int = 1
    at_most_once: bool = False


class Run(Struct, frozen=True):
    """How a worker calls a handler.

    transactional: whether the handler takes a transaction, if its parameters do not tell.
    batch: the handler takes a list of up to so many messages. If it fails, they are handled again
        one by one, so that the one at fault is found.
    timeout: seconds that the handler may take; no limit where None. After that the attempt has
        failed, and another thread replaces the handler's own, which ends when it returns; a
        coroutine is cancelled.
    """

    transactional: bool | None = None
    batch: int | None = None
    timeout: Seconds | None = TIMEOUT_SECONDS


class Fail(Struct, frozen=True):
    """What follows when a handler fails.

    max_attempts, backoff: override the queue's own; None: as the queue has them.
    """

    max_attempts: int | None = None
    backoff: backoffs.Given = None


FIELDS = {
    name: f"{group.__name__.lower()}={group.__name__}({name}=…)"
    for group in (Take, Run, Fail)
    for name in group.__struct_fields__
}
"""How to write each of them, for who gives it to ``Worker.add`` itself."""
TAKE, RUN, FAIL = Take(), Run(), Fail()
"""What is usual."""
