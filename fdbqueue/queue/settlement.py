"""Settlement: the methods of ``Queue`` that end one delivery, or several in one transaction.

Every operation takes one round trip, and conflicts only with another settlement of the same
lease, or with its expiry: exactly one of them commits. An extension makes no settlement fail.
Messages that were enqueued and received together share a row until the first of them is settled
without the others; that one settlement conflicts with others of the row.
All raise ``InvalidArgument`` for anything but a delivery, such as a message, and ``LeaseLost``
if a lease is gone: then nothing is written, and the effect of the delivery must not be
committed. The ``_many`` operations settle all deliveries or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..consumers import wakeups
from ..errors import InvalidArgument
from ..messages.delivery import lease as leases
from ..messages.delivery import lease_extension
from ..messages.delivery import settle as settling
from ..messages.delivery.lease_extension import Extended
from ..messages.delivery.settle import Refuse, Return, Verdict
from ..store.binding import fdb
from ..values.backoff import check_delay
from ..values.durations import Seconds
from ..values.model import Delivery
from ..values.options import check_lease
from ..values.verdicts import Reject, Retry, Snooze, text
from .continuations import results
from .enqueue import Enqueuing
from .handle import Handle, Transactor, checked, composed

MAX_REASON_CHARACTERS = 500


def delivery(queue: Handle, tr: Transactor, token: bytes) -> Delivery | None:
    """The delivery that a token names, so that the holder of the token can settle it.

    None if the lease is gone: it expired, or was settled. One round trip,
    and one more for a payload in chunks. Snapshot reads: no conflicts.
    """

    def read(tr: fdb.Transaction) -> Delivery | None:
        found = leases.named(tr, queue._scope(tr).keys, token)
        return found[0] if found else None

    return queue._read(tr, read)


def ack(
    queue: Enqueuing[Any],
    tr: Transactor,
    delivery: Delivery,
    *,
    result: object = None,
) -> None:
    """Acknowledge a delivery: the message is done. Commit it together with its effect.

    result: what came of it, for ``Queue.result``, if the message was enqueued with
        ``keep_result``; else it is ignored. Whatever the serializer takes; at most 10 kB then, else
        raises ``ResultTooLarge``, or ``InvalidPayload``, before anything is written.
    """
    if type(delivery) is not Delivery:
        checked([delivery])
    if result is not None:
        kept = results.encoded(queue, delivery.message, result)
        if kept is not None:
            queue._run(tr, results.ack, queue, delivery, kept)
            return
    composed(tr, queue._keys.once, settling.ack, queue._entry, (delivery,))


def ack_many(queue: Handle, tr: Transactor, deliveries: Sequence[Delivery]) -> None:
    """Acknowledge several deliveries. As ``ack``."""
    queue._run(tr, settling.ack, queue._entry, checked(deliveries))


def extend(
    queue: Handle,
    tr: Transactor,
    delivery: Delivery,
    lease: Seconds | None = None,
) -> Delivery:
    """Let a lease end ``lease`` seconds from now (None: the queue's own lease time).

    Returns the delivery with its new expiry, and whether it was cancelled. Raises
    ``InvalidOptions``.
    """
    return extend_many(queue, tr, [delivery], lease)[0]


def extend_many(
    queue: Handle,
    tr: Transactor,
    deliveries: Sequence[Delivery],
    lease: Seconds | None = None,
) -> list[Delivery]:
    """Let several leases end later. As ``extend``."""
    extended = extended_until(queue, tr, deliveries, lease)
    return [extended.of(delivery) for delivery in deliveries]


def extended_until(
    queue: Handle,
    tr: Transactor,
    deliveries: Sequence[Delivery],
    lease: Seconds | None,
) -> Extended:
    """Let several leases end later."""
    checked(deliveries)
    each = list(deliveries)
    wanted = None if lease is None else check_lease("lease", lease)

    def extend(tr: fdb.Transaction) -> Extended:
        scope = queue._scope(tr)
        seconds = scope.options.lease if wanted is None else wanted
        return lease_extension.extend(tr, scope, each, seconds)

    return queue._run(tr, extend)


def release(
    queue: Handle,
    tr: Transactor,
    delivery: Delivery,
    *,
    delay: Seconds | None = None,
    error: str | None = None,
) -> None:
    """Give a message back, to its old position.

    delay: seconds until then, 0 to ten years. None takes the backoff for a failed attempt.
        Without an error, None means at once for the first three times that a message is given
        back; after that it rests for a tenth of a second, twice as long each time, up to ten
        seconds, so a consumer that cannot handle a message does not get it in a loop.
    error: why the attempt failed: then it counts, the text is kept with the message (up to
        500 characters), and at the maximum of attempts it becomes a dead letter. Without one
        the attempt does not count: after an exception, give its text.

    Raises ``InvalidArgument``.
    """
    release_many(queue, tr, [delivery], delay=delay, error=error)


def release_many(
    queue: Handle,
    tr: Transactor,
    deliveries: Sequence[Delivery],
    *,
    delay: Seconds | None = None,
    error: str | None = None,
) -> None:
    """Give several messages back. As ``release``."""
    rest = None if delay is None else check_delay("delay", delay)
    verdict = Return(rest, None if error is None else _text("error", error))
    carry_out(queue, tr, deliveries, {}, verdict)


def reject(
    queue: Handle,
    tr: Transactor,
    delivery: Delivery,
    reason: str,
    *,
    drop: bool = False,
) -> None:
    """Refuse a message for good: it becomes a dead letter with a reason, or ends if ``drop``.

    reason: up to 500 characters are kept. Raises ``InvalidArgument``.
    """
    reject_many(queue, tr, [delivery], reason, drop=drop)


def reject_many(
    queue: Handle,
    tr: Transactor,
    deliveries: Sequence[Delivery],
    reason: str,
    *,
    drop: bool = False,
) -> None:
    """Refuse several messages for good. As ``reject``."""
    verdict = Refuse(_text("reason", reason), drop)
    carry_out(queue, tr, deliveries, {}, verdict)


def settle(
    queue: Handle,
    tr: Transactor,
    deliveries: Sequence[Delivery],
    verdicts: Mapping[str, BaseException],
) -> None:
    """Settle several deliveries, each by its verdict; acknowledge those that have none.

    verdicts: by message id, what a handler of a worker would raise.
    """
    check_verdicts(verdicts, deliveries)
    meant = {each: judged(error) for each, error in verdicts.items()}
    carry_out(queue, tr, deliveries, meant)


def check_verdicts(verdicts: Mapping[Any, object], deliveries: Sequence[Delivery]) -> None:
    """Raise ``InvalidArgument`` for a verdict of another message."""
    unknown = verdicts.keys() - {each.id for each in deliveries} if verdicts else set()
    if unknown:
        raise InvalidArgument(
            argument="verdicts",
            value=unknown.pop(),
            problem="is the id of no message of the batch",
        )


def judged(error: BaseException, delay: float | None = None) -> Verdict:
    """What becomes of a message, given its verdict. delay: after a failure, where that says none.

    Raises ``InvalidArgument`` for anything but an exception.
    """
    match error:
        case Snooze():
            return Return(error.seconds)
        case Reject():
            return Refuse(_text("reason", text(error)), error.drop)
        case Retry() if error.seconds is not None:
            return Return(error.seconds, _text("error", text(error)))
        case BaseException():
            return Return(delay, _text("error", text(error)))
    raise InvalidArgument(
        argument="verdicts", value=error, problem="a verdict is an exception, such as Reject"
    )


def carry_out(
    queue: Handle,
    tr: Transactor,
    deliveries: Sequence[Delivery],
    verdicts: Mapping[str, Verdict],
    others: Verdict | None = None,
) -> None:
    """Settle several deliveries by their verdicts, given by message id.

    others: the verdict of all others; None if they are done.
    """
    if not verdicts and others is None:
        ack_many(queue, tr, deliveries)
        return
    held = checked(deliveries)
    returned = len(deliveries) if isinstance(others, Return) else len(verdicts)

    def settle(tr: fdb.Transaction) -> None:
        scope = queue._scope(tr)
        # Also for what rests: who waits must learn when to look again.
        waiting = wakeups.reads(tr, queue._keys, returned) if returned else None
        settling.settle(tr, scope, held, verdicts, others)
        if waiting is not None:
            wakeups.wake(tr, queue._keys, waiting)

    queue._run(tr, settle)


def _text(argument: str, text: object) -> str:
    if not isinstance(text, str):
        raise InvalidArgument(argument=argument, value=text, problem="must be a str")
    # A lone surrogate, as in a file name, cannot be stored and must not lose the rest.
    return text[:MAX_REASON_CHARACTERS].encode(errors="replace").decode()
