"""Receiving messages: the methods of ``Queue`` that take them, at once, by waiting, in a loop, or
by a selector."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, TypedDict, TypeVar, Unpack, overload

from ..consumers import promotion, receiving
from ..consumers.receiving import Access
from ..errors import LeaseLost, QueueError
from ..messages.delivery import head
from ..messages.run import Held
from ..schema.consumers import Request
from ..store import world
from ..store.binding import FAILURES, fdb
from ..subscriptions import acquire
from ..values.content import check_flag
from ..values.durations import Seconds, seconds
from ..values.model import Delivery, Message
from ..values.selector import Selector
from . import matching
from .admin.housekeeping import past_backlog
from .batch import Batch
from .enqueue import Enqueuing
from .queue_base import (
    Handle,
    Transactor,
    check_leaseless,
    check_transaction,
    checked,
    patience_of,
)
from .settlement import Deliveries, carry_out, extend, release
from .validation import check_terms

R = TypeVar("R")
T = TypeVar("T")


class Leasing(TypedDict, total=False):
    """How messages are received.

    lease: seconds until they are delivered again unless they are settled; None for the
        queue's own lease time.
    wait: seconds to wait for a first message, first come first served (but not among those that
        wait for a match); needs a database.
    consumer: a name to show in listings.
    ack: deliveries to acknowledge in the same transaction, which saves a consumer in a loop
        one of two commits. Raises ``LeaseLost``, and writes nothing, if a lease is gone.
    """

    lease: Seconds | None
    wait: Seconds
    consumer: str
    ack: Deliveries


class Receiving(Leasing, total=False):
    """How messages of a queue are received: as ``Leasing``, and which.

    match: a selector, in the syntax of JMS: only messages that it matches. The call looks through
        the queue from the front: a thousand messages, or 2 MB, in a transaction. With a database it
        goes on in the next one, to the end. Use a subscription for more than a message now and
        then: that remembers what it has skipped.
    """

    match: Selector | str | None


@overload
def receive(
    queue: Handle,
    tr: Transactor,
    *,
    at_most_once: Literal[False] = False,
    **terms: Unpack[Receiving],
) -> Delivery | None: ...
@overload
def receive(
    queue: Handle, tr: Transactor, *, at_most_once: Literal[True], **terms: Unpack[Receiving]
) -> Message | None: ...
def receive(
    queue: Handle, tr: Transactor, *, at_most_once: bool = False, **terms: Unpack[Receiving]
) -> Delivery | Message | None:
    """Lease the first message to the caller; None if there is none within ``wait`` seconds.

    As ``receive_many`` for one message.
    """
    take = _remove if check_flag("at_most_once", at_most_once) else _lease
    several = take(queue, tr, 1, **terms)
    return several[0] if several else None


@overload
def receive_many(
    queue: Handle,
    tr: Transactor,
    max_messages: int,
    *,
    at_most_once: Literal[False] = False,
    **terms: Unpack[Receiving],
) -> list[Delivery]: ...
@overload
def receive_many(
    queue: Handle,
    tr: Transactor,
    max_messages: int,
    *,
    at_most_once: Literal[True],
    **terms: Unpack[Receiving],
) -> list[Message]: ...
def receive_many(
    queue: Handle,
    tr: Transactor,
    max_messages: int,
    *,
    at_most_once: bool = False,
    **terms: Unpack[Receiving],
) -> list[Delivery] | list[Message]:
    """Lease up to ``max_messages`` first messages to the caller; none if the queue is empty.

    terms: which and how, see ``Receiving``.
    at_most_once: A crash loses them. Removes the messages, without a lease, and returns
        ``Message``s: with a database they are gone before the call returns; in a transaction of
        yours, with its commit. ``lease`` and ``ack`` mean nothing then.

    Returns expired leases to the queue first. One round trip (two if there are any, one more for
    payloads in chunks, and more for what is larger than some 80 kB; with ``match`` two, and one
    more for each hundred messages that do not match). Stops at 8 MB, in line at 1
    MB, but always returns at least one message if the queue has any. A message whose lease has
    expired before comes alone, so that the message that kills its consumers is found: an expired
    lease counts as a death only of a message that was handed over by itself. With a transaction,
    conflicts as ``dequeue``. With a database it stands in line after a conflict: then its request
    conflicts only with a change of the leader, and its answer with nothing. With ``match``,
    conflicts as ``Subscription.receive``. Raises ``QueueNotFound``, ``InvalidArgument``,
    ``InvalidOptions``, ``InvalidSelector``, and ``TransactionTooLarge`` for a
    selector in a transaction that does not come to the end.
    """
    if check_flag("at_most_once", at_most_once):
        return _remove(queue, tr, max_messages, **terms)
    return list(_lease(queue, tr, max_messages, **terms))


def asked(
    tr: Transactor, max_messages: int, terms: Leasing, known: type = Receiving
) -> tuple[Request, float, Sequence[Held]]:
    """What is wanted, for how many seconds to wait, and what to acknowledge: as ``Leasing`` says.
    Raises ``InvalidArgument``, ``InvalidOptions``, and ``TypeError`` for one that there is not."""
    check_terms(terms, known)
    seconds, done = patience_of(tr, terms.get("wait", 0.0)), checked(terms.get("ack", ()))
    lease, consumer = terms.get("lease"), terms.get("consumer", "")
    return receiving.checked_request(max_messages, lease, consumer, seconds), seconds, done


def _lease(
    queue: Handle,
    tr: Transactor,
    max_messages: int,
    *,
    match: Selector | str | None = None,
    **terms: Unpack[Leasing],
) -> Sequence[Delivery]:
    request, wait, done = asked(tr, max_messages, terms)
    if match is not None:
        grant = partial(acquire.grant, request=request)
        return matching.first(queue, tr, match, max_messages, grant, wait=wait, ack=done)
    return leased(queue, tr, queue._access, request, wait, done)


def leased(
    queue: Handle,
    tr: Transactor,
    access: Access,
    request: Request,
    wait: float,
    done: Sequence[Held],
) -> Sequence[Delivery]:
    """Lease the first messages of a queue, or of a subscription of it: those of ``access``."""
    if isinstance(tr, fdb.Transaction):
        return receiving.receive_in(tr, access, request, done)
    return past_backlog(queue, tr, partial(receiving.receive, tr, access, request, wait, done))


@overload
def receive_batch(
    queue: Enqueuing[T],
    tr: Transactor,
    max_messages: int,
    *,
    at_most_once: Literal[False] = False,
    **terms: Unpack[Receiving],
) -> Batch[T]: ...
@overload
def receive_batch(
    queue: Enqueuing[T],
    tr: Transactor,
    max_messages: int,
    *,
    at_most_once: Literal[True],
    **terms: Unpack[Receiving],
) -> list[Message]: ...
def receive_batch(
    queue: Enqueuing[T],
    tr: Transactor,
    max_messages: int,
    *,
    at_most_once: bool = False,
    **terms: Unpack[Receiving],
) -> Batch[T] | list[Message]:
    """Lease up to ``max_messages`` first messages to the caller, to be settled together.

    The batch is empty, and false, if the queue is. Messages that were enqueued together cost next
    to nothing each, until they are looked at. Arguments, round trips, conflicts and errors as
    ``receive_many``; with ``at_most_once`` so is the answer, since there is nothing to settle.
    """
    if check_flag("at_most_once", at_most_once):
        return _remove(queue, tr, max_messages, **terms)
    found = _lease(queue, tr, max_messages, **terms)
    db = None if isinstance(tr, fdb.Transaction) else tr
    return Batch(queue, db, found, queue._serializer)


def consume(
    queue: Handle,
    db: fdb.Database,
    *,
    max_messages: int = 1,
    lease: Seconds | None = None,
    wait: Seconds = 0.0,
    consumer: str = "",
) -> Iterator[Delivery]:
    """Yield deliveries until the queue stays empty for ``wait`` seconds.

    Acknowledges a delivery when the loop comes back for the next one (a batch, when it comes
    back for the next batch), in the same transaction as the next request. Between two messages
    of a batch it extends the leases of the batch once a third of their time is over. It does
    not acknowledge the delivery in hand when the loop is left: settle that, or let its lease
    expire. What it has taken and not yielded then goes back to its place. Arguments and errors as
    ``receive_many``; ``LeaseLost`` if one message took longer than its lease.
    """
    held: Sequence[Delivery] = ()
    yielded = 0
    try:
        take = partial(_lease, queue, db, max_messages, lease=lease, wait=wait, consumer=consumer)
        while held := take(ack=held):
            yielded, lasts = 0, seconds(lease)
            if lasts is None and len(held) > 1:
                lasts = queue._read(db, lambda tr: queue._scope(tr).options.lease)
            renewed = queue._clock.monotonic()
            for n in range(len(held)):
                # Between two messages only: a loop body that hangs must lose its leases, and not
                # keep them for ever.
                if n and lasts and queue._clock.monotonic() > renewed + lasts / 3:
                    renewed, held = queue._clock.monotonic(), extend(queue, db, held, lease)
                yielded = n + 1
                yield held[n]
    except Exception:
        raise
    except BaseException:  # The loop is left, or its task cancelled.
        with contextlib.suppress(*FAILURES, QueueError):  # Else their leases expire.
            if yielded < len(held):
                release(queue, db, held[yielded:], delay=0)
        raise


def dequeue(queue: Handle, tr: fdb.Transaction) -> Message | None:
    """Remove and return the first message, in the transaction that writes its effect; None if
    the queue is empty.

    With the commit both happen, or neither. Strict priority, serializable: conflicts with
    whoever takes or adds a message before or at the one taken, and, where the queue is empty,
    with any enqueue. Raises ``QueueNotFound``, and ``InvalidArgument`` for a database: see
    ``receive``.
    """
    check_transaction(tr, "dequeue")
    found = _pop(queue, tr, 1)
    return found[0] if found else None


def _pop(queue: Handle, tr: fdb.Transaction, limit: int) -> list[Message]:
    scope = queue._scope(tr)
    if scope.options.paused:
        return []
    promotion.promote_all(tr, scope, promotion.reads(tr, scope))
    popped = head.pop(tr, scope, limit)
    return [message.opened for message in popped]


def _remove(
    queue: Handle,
    tr: Transactor,
    max_messages: int,
    *,
    match: Selector | str | None = None,
    **terms: Unpack[Leasing],
) -> list[Message]:
    """Remove messages, without a lease."""
    request, wait, done = asked(tr, max_messages, terms)
    check_leaseless(request.seconds, done)
    if match is not None:
        return list(matching.first(queue, tr, match, max_messages, acquire.remove, wait=wait))
    if isinstance(tr, fdb.Transaction):
        return _pop(queue, tr, max_messages)
    deadline = world.monotonic() + wait
    pop = partial(_pop, queue, limit=max_messages)
    found = past_backlog(queue, tr, lambda: queue._run(tr, pop, wrote=bool))
    while not found and (left := deadline - world.monotonic()) > 0:
        # Only leases can wait in line; the messages are acknowledged before they are returned, and
        # a crash in between delivers them again.
        held = receive_many(queue, tr, max_messages, wait=left)
        while held and not found:
            try:
                carry_out(queue, tr, held, {})
                found = [each.message for each in held]
            except LeaseLost as error:
                held = [each for each in held if each.id not in error.lost]
    return found
