"""One attempt to handle a message, or a batch: the call, and the settlement that follows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ..errors import HandlerTooSlow, LeaseLost, TransactionTooLarge
from ..messages.settle import Refuse, Verdict
from ..queue import settlement
from ..queue.continuations.successors import Successors, handling
from ..queue.internals import Internals
from ..queue.queue import Queue
from ..schema import once
from ..store import world
from ..store.binding import fdb
from ..values import backoff
from ..values.model import Delivery
from ..values.states import Outcome
from ..values.verdicts import Snooze, text
from . import tracing
from .health import logs
from .policy import Policy

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
    later: Callable[[Successors], bool] = lambda successors: False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Ended | None:
    """Handle messages and settle them; returns the outcome of each.

    cancelled: tells the handler whether all of them are known to have been cancelled.
    later: called when a plain handler has returned, with what is to be enqueued; if it returns
        true, another thread acknowledges the messages, and the result is empty.

    Anything that the handler raises fails the attempt. None after a failed batch: nothing of it is
    settled, and its messages must be handled one by one, so that the one at fault is found. Errors
    of the store during a settlement pass through: the leases expire.
    """
    began = world.monotonic()
    handler, judged, successors = policy.handler, Judged(began), Successors()
    messages = [delivery.message for delivery in deliveries]
    try:
        with tracing.handling(queue.name, messages), handling(cancelled):
            if handler.transactional:
                body = partial(_with_ack, queue=queue, policy=policy, judged=judged)
                return _settle(deliveries, partial(_commit, db, queue, body), judged.outcomes)
            with successors.recorded():
                found = handler.call(queue, deliveries)
            judged.returned(queue, policy, deliveries, found)
            if handler.batch is None:
                successors.returned(queue, messages[0], found)
    except Snooze as asked:
        rest = partial(queue.release, db, delay=asked.seconds)
        return _settle(deliveries, rest, dict.fromkeys(_ids(deliveries), Outcome.SNOOZED))
    except Abandoned:
        return []
    except BaseException as error:  # also one that ends threads or tasks: it must not end this one
        if len(deliveries) > 1:
            log.warning(
                "handling %d messages of %s failed, so each is handled by itself: %s",
                len(deliveries),
                queue.name,
                text(error),
            )
            return None
        return failed(db, queue, policy, deliveries, error, began)
    # The fetcher acknowledges many jobs at once; what must commit together with its successors does
    # so by itself.
    if successors and (len(deliveries) > 1 or judged.verdicts):
        return _settle_whole(db, queue, policy, deliveries, judged, successors)
    if judged.verdicts:
        settle = partial(_carry_out, db, queue, judged.verdicts, {})
        return _settle(deliveries, settle, judged.outcomes)
    # The usual end: the fetcher shares one commit among many handlers.
    if later(successors):
        return []
    return follow(db, queue, policy, deliveries, {deliveries[0].token: successors}, began)


def handle_settled(queue: Queue, policy: Policy, deliveries: Sequence[Delivery]) -> Ended:
    """Handle messages that are acknowledged already: if the handler fails, they are lost."""
    messages = [delivery.message for delivery in deliveries]
    try:
        with tracing.handling(queue.name, messages):
            policy.handler.call(queue, deliveries)
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


def follow(
    db: fdb.Database,
    queue: Queue,
    policy: Policy,
    deliveries: Sequence[Delivery],
    successors: Mapping[bytes, Successors] | None = None,
    began: float | None = None,
) -> Ended:
    """Acknowledge all whose lease still holds, and enqueue what follows them, in one transaction.

    successors: by the token of the delivery. Where they cannot be enqueued, its attempt has failed,
        and the others are acknowledged without it. began: as of ``failed``.
    """
    following = {token: each for token, each in (successors or {}).items() if each}
    settle = partial(_carry_out, db, queue, {}, following)
    ended: Ended = []
    left = deliveries
    while left:
        try:
            return ended + _settle(left, settle, {})
        except _Refused as error:
            refused, cause = error.delivery, error.cause
        except TransactionTooLarge as error:
            if len(left) > 1 or not following:
                raise
            refused, cause = left[0], error
        ended += failed(db, queue, policy, [refused], cause, began)
        # Its successor cannot be enqueued, which is its own failure: the others of the commit are
        # done.
        left = [each for each in left if each.token != refused.token]
    return ended


class _Refused(Exception):
    """Raised where a message cannot be acknowledged, since a successor of it cannot be enqueued."""

    def __init__(self, delivery: Delivery, cause: Exception) -> None:
        super().__init__(str(cause))
        self.delivery = delivery
        self.cause = cause


def _carry_out(
    db: fdb.Database,
    queue: Queue,
    verdicts: Mapping[str, Verdict],
    following: Mapping[bytes, Successors],
    deliveries: Sequence[Delivery],
) -> None:
    """Settle messages by their verdicts, and enqueue what follows them, in one transaction."""
    if not following:
        settlement.carry_out(queue, db, deliveries, verdicts)
        return

    def body(tr: fdb.Transaction) -> None:
        settlement.carry_out(queue, tr, deliveries, verdicts)
        for delivery in deliveries:
            if delivery.token in following:
                try:
                    following[delivery.token].enqueue(tr)
                # For the retry loop: a conflict is no fault of the successor.
                except fdb.FDBError:
                    raise
                except Exception as error:
                    raise _Refused(delivery, error) from error

    once.run(db, Internals(queue).keys.once, body)


def _settle_whole(
    db: fdb.Database,
    queue: Queue,
    policy: Policy,
    deliveries: Sequence[Delivery],
    judged: Judged,
    successors: Successors,
) -> Ended | None:
    """Settle a batch and enqueue what follows it, or do neither; None where the messages must be
    handled one by one."""
    try:
        _carry_out(db, queue, judged.verdicts, {deliveries[0].token: successors}, deliveries)
    except (LeaseLost, _Refused, TransactionTooLarge) as error:
        if len(deliveries) > 1:
            log.warning("%d messages of %s go one by one: %s", len(deliveries), queue.name, error)
            return None
        if isinstance(error, LeaseLost):
            return [(deliveries[0], Outcome.LOST)]
        cause = error.cause if isinstance(error, _Refused) else error
        return failed(db, queue, policy, deliveries, cause, judged.began)
    return [(each, judged.outcomes.get(each.id, Outcome.DONE)) for each in deliveries]


def failed(
    db: fdb.Database,
    queue: Queue,
    policy: Policy,
    deliveries: Sequence[Delivery],
    error: BaseException,
    began: float | None,
) -> Ended:
    """Give messages back for another attempt, or reject them. began: when the handler was called,
    by ``world.monotonic``, if that is known."""
    ended: Ended = []
    for delivery in deliveries:
        judged = Judged(began)
        judged.add(queue, policy, delivery, error)
        settle = partial(_carry_out, db, queue, judged.verdicts, {})
        ended += _settle([delivery], settle, judged.outcomes)
    return ended


class Abandoned(BaseException):
    """Raised in a handler that does not end before its worker does: its messages are given back."""


class Judged:
    """Verdicts of messages by their ids, and the outcomes to report; the others are done.

    began: as of ``failed``.
    """

    def __init__(self, began: float | None) -> None:
        self.began = began
        self.verdicts: dict[str, Verdict] = {}
        self.outcomes: dict[str, Outcome] = {}

    def returned(
        self, queue: Queue, policy: Policy, deliveries: Sequence[Delivery], found: object
    ) -> None:
        """Take the verdicts that a handler of batches has returned, if any, for those of an earlier
        run.

        Raises ``InvalidArgument``.
        """
        # A transactional handler runs again after a conflict: verdicts of the former run no longer
        # hold.
        self.verdicts.clear()
        self.outcomes.clear()
        if policy.handler.batch is None or not isinstance(found, Mapping):
            return
        settlement.check_verdicts(found, deliveries)
        for delivery in deliveries:
            if delivery.id in found:
                self.add(queue, policy, delivery, found[delivery.id])

    def add(self, queue: Queue, policy: Policy, delivery: Delivery, error: BaseException) -> None:
        """Judge a message by the error of its handler."""
        delay = (
            backoff.delay_seconds(policy.backoff, delivery.attempt, world.random.uniform)
            if policy.backoff
            else None
        )
        seconds = None if self.began is None else world.monotonic() - self.began
        verdict, reason = settlement.judged(error, delay, seconds), text(error)
        if isinstance(error, Snooze):
            outcome = Outcome.SNOOZED
        else:
            outcome = Outcome.FAILED
            # The worker's own policy, which the queue does not know: it rejects here what the queue
            # would try again.
            if policy.max_attempts is not None and delivery.attempt >= policy.max_attempts:
                verdict = Refuse(reason, False, seconds, verdict.traceback)
            if isinstance(verdict, Refuse):
                outcome = Outcome.REJECTED
            logs.failed(queue, policy, delivery, verdict, reason, error)
        self.verdicts[delivery.id], self.outcomes[delivery.id] = verdict, outcome


def _ids(deliveries: Iterable[Delivery]) -> Iterator[str]:
    return (each.id for each in deliveries)


def _with_ack(
    tr: fdb.Transaction,
    deliveries: Sequence[Delivery],
    queue: Queue,
    policy: Policy,
    judged: Judged,
) -> float:
    """Settle and handle in one transaction; returns how many seconds it took."""
    started, successors = world.monotonic(), Successors()
    messages = [delivery.message for delivery in deliveries]
    if policy.handler.batch is None:
        # The acknowledgement first, so that a lost lease is known before the handler runs.
        queue.ack(tr, deliveries)
    with successors.recorded():
        found = policy.handler.call(queue, deliveries, tr)
    if policy.handler.batch is None:
        successors.returned(queue, messages[0], found)
    else:
        judged.returned(queue, policy, deliveries, found)
        settlement.carry_out(queue, tr, deliveries, judged.verdicts)
    successors.enqueue(tr)
    return world.monotonic() - started


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
        # Counted, not timed once: a machine that stalls for a moment must not fail the attempt.
        slow += seconds > TRANSACTION_SECONDS
        if slow >= MAX_SLOW:
            raise HandlerTooSlow(seconds=seconds)

    once.run(db, Internals(queue).keys.once, limited, brief=False)


def _settle(
    deliveries: Sequence[Delivery],
    settle: Callable[[Sequence[Delivery]], object],
    outcomes: Mapping[str, Outcome],
) -> Ended:
    """Settle all whose lease still holds, in one transaction.

    outcomes: by message id; the others are done.
    """
    ended: Ended = []
    left = deliveries
    while left:
        try:
            settle(left)
            break
        except LeaseLost as error:
            # Lost leases belong to others by now; the rest must not be handled twice for their
            # sake.
            gone = {*error.lost} & {*_ids(left)}
            if not gone:
                raise
            ended += [(each, Outcome.LOST) for each in left if each.id in gone]
            left = [each for each in left if each.id not in gone]
    return ended + [(each, outcomes.get(each.id, Outcome.DONE)) for each in left]
