"""One attempt to handle a message, or a batch: the call, and the settlement that follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from ..errors import HandlerTooSlow, LeaseLost
from ..messages.delivery.settle import Refuse
from ..queue import settlement
from ..queue.queue import Queue
from ..schema import once
from ..store.binding import fdb
from ..values import backoff
from ..values.model import Delivery
from ..values.states import Outcome
from ..values.verdicts import Retry, Snooze, text
from . import tracing
from .handlers import Handler
from .prefetch import Policy

log = logging.getLogger("fdbqueue.worker")

TRANSACTION_SECONDS = 4.5
"""A transaction may last five seconds; a handler that took longer than this was too slow for it."""
MAX_SLOW = 3
"""How often a transactional handler may be too slow before its attempt counts as failed."""


Ended = list[tuple[Delivery, Outcome]]


def attempt(
    db: fdb.Database,
    queue: Queue,
    policy: Policy,
    deliveries: Sequence[Delivery],
    later: Callable[[], bool] = lambda: False,
) -> Ended | None:
    """Handle messages and settle them; returns the outcome of each.

    later: called when a plain handler has returned; if it returns true, another thread
        acknowledges the messages, and the result is empty.

    Anything that the handler raises fails the attempt. None after a failed batch: nothing of it is
    settled, and its messages must be handled one by one, so that the one at fault is found. Errors
    of the store during a settlement pass through: the leases expire.
    """
    handler = policy.handler
    messages = [delivery.message for delivery in deliveries]
    try:
        with tracing.handling(queue.name, messages):
            if handler.transactional:
                body = partial(_with_ack, queue=queue, handler=handler)
                return _settle(deliveries, Outcome.DONE, partial(_commit, db, queue, body))
            handler.call(messages)
    except Snooze as asked:
        rest = partial(queue.release_many, db, delay=asked.seconds)
        return _settle(deliveries, Outcome.SNOOZED, rest)
    except BaseException as error:  # also one that ends threads or tasks: it must not end this one
        if len(deliveries) > 1:
            log.warning(
                "handling %d messages of %s failed, so each is handled by itself: %s",
                len(deliveries),
                queue.name,
                text(error),
            )
            return None
        return failed(db, queue, policy, deliveries, error)
    return [] if later() else acknowledge(db, queue, deliveries)


def handle_settled(queue: Queue, policy: Policy, deliveries: Sequence[Delivery]) -> Ended:
    """Handle messages that are acknowledged already: if the handler fails, they are lost."""
    messages = [delivery.message for delivery in deliveries]
    try:
        with tracing.handling(queue.name, messages):
            policy.handler.call(messages)
    except BaseException as error:  # also one that ends threads or tasks: it must not end this one
        log.error(
            "handling %d messages of %s failed, and they are gone: %s",
            len(deliveries),
            queue.name,
            text(error),
            exc_info=error,
        )
        return [(delivery, Outcome.FAILED) for delivery in deliveries]
    return [(delivery, Outcome.DONE) for delivery in deliveries]


def acknowledge(db: fdb.Database, queue: Queue, deliveries: Sequence[Delivery]) -> Ended:
    """Acknowledge all whose lease still holds, in one transaction."""
    return _settle(deliveries, Outcome.DONE, partial(queue.ack_many, db))


def failed(
    db: fdb.Database,
    queue: Queue,
    policy: Policy,
    deliveries: Sequence[Delivery],
    error: BaseException,
) -> Ended:
    """Give messages back for another attempt, or reject them."""
    reason = text(error)
    ended: Ended = []
    for delivery in deliveries:
        delay = backoff.seconds(policy.backoff, delivery.attempt) if policy.backoff else None
        verdict = settlement.judged(error, delay)
        if policy.max_attempts is not None and delivery.attempt >= policy.max_attempts:
            verdict = Refuse(reason)
        about = {"queue": queue.name, "message_id": delivery.id, "attempt": delivery.attempt}
        if isinstance(verdict, Refuse):
            log.error("message %s is rejected: %s", delivery.id, reason, extra=about)
            outcome = Outcome.REJECTED
        else:
            traced = None if isinstance(error, Retry) else error
            log.warning("handling %s failed: %s", delivery.id, reason, extra=about, exc_info=traced)
            outcome = Outcome.FAILED
        settle = partial(settlement.carry_out, queue, db, verdicts={}, others=verdict)
        ended += _settle([delivery], outcome, settle)
    return ended


def _with_ack(
    tr: fdb.Transaction, deliveries: Sequence[Delivery], queue: Queue, handler: Handler
) -> float:
    """Acknowledge and handle in one transaction; returns how many seconds it took."""
    started = time.monotonic()
    # The acknowledgement first, so that a lost lease is known before the handler runs.
    queue.ack_many(tr, deliveries)
    handler.call([delivery.message for delivery in deliveries], tr)
    return time.monotonic() - started


def _commit(
    db: fdb.Database,
    queue: Queue,
    body: Callable[[fdb.Transaction, Sequence[Delivery]], float],
    deliveries: Sequence[Delivery],
) -> None:
    """Commit handling and acknowledgement exactly once; give up on a handler that is too slow."""
    slow = 0

    def limited(tr: fdb.Transaction) -> None:
        nonlocal slow
        seconds = body(tr, deliveries)
        slow += seconds > TRANSACTION_SECONDS
        if slow >= MAX_SLOW:
            raise HandlerTooSlow(seconds=seconds)

    once.run(db, queue._keys.once, limited, brief=False)


def _settle(
    deliveries: Sequence[Delivery], outcome: Outcome, settle: Callable[[Sequence[Delivery]], object]
) -> Ended:
    """Settle all whose lease still holds, in one transaction."""
    ended: Ended = []
    left = deliveries
    while left:
        try:
            settle(left)
            break
        except LeaseLost as error:
            gone = {*error.lost} & {each.id for each in left}
            if not gone:
                raise
            ended += [(each, Outcome.LOST) for each in left if each.id in gone]
            left = [each for each in left if each.id not in gone]
    return ended + [(delivery, outcome) for delivery in left]
