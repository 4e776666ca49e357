"""Settlement: the methods of ``Queue`` that end one delivery, or several in one transaction.

Every operation takes one round trip, and conflicts only with another settlement of the same
lease, or with its expiry: exactly one of them commits. An extension makes no settlement fail.
Messages that were enqueued and received together share a row until the first of them is settled
without the others; that one settlement conflicts with others of the row.
Each takes one delivery, several, or a batch, and settles all or none. All raise ``InvalidArgument``
for anything else, such as a message, and ``LeaseLost``, which names all that are lost, if a lease
is gone: then nothing is written, and the effects of the deliveries must not be committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from ..consumers import wakeups
from ..errors import InvalidArgument
from ..messages import settle as settling
from ..messages.delivery import lease_extension
from ..messages.delivery.batch import Together
from ..messages.delivery.lease_extension import Extended
from ..messages.settle import Refuse, Return, Verdict
from ..store.binding import fdb
from ..store.enclosing import check_apart
from ..values.backoff import check_delay
from ..values.content import check_flag
from ..values.durations import Seconds
from ..values.model import Delivery
from ..values.options import check_lease
from ..values.verdicts import Reject, Retry, Snooze, text, trace
from .continuations import results
from .enqueue import Enqueuing
from .queue_base import Handle, Transactor, checked, composed

B = TypeVar("B", bound=Together)

MAX_REASON_CHARACTERS = 500


Deliveries: TypeAlias = Delivery | Sequence[Delivery]
"""One delivery, several, or a ``Batch``."""


def ack(
    queue: Enqueuing[Any],
    tr: Transactor,
    deliveries: Deliveries,
    *,
    result: object = None,
) -> None:
    """Acknowledge one delivery, several, or a batch: the messages are done. Commit it together
    with their effects.

    result: what came of one delivery, for ``Queue.result``, if the message was enqueued with
        ``keep_result``; else it is ignored. Whatever the serializer takes; at most 10 kB then, else
        raises ``PayloadTooLarge``, or ``InvalidPayload``, before anything is written.
    """
    _check_together(tr)
    if result is None:
        held = (deliveries,) if type(deliveries) is Delivery else checked(deliveries)
        composed(tr, queue._keys.once, settling.ack, queue._entry, held)
        mark_settled(deliveries)
        return
    if not isinstance(deliveries, Delivery):
        checked(deliveries)
        raise InvalidArgument(
            argument="result", value=result, problem="belongs to one delivery: settle that alone"
        )
    kept = results.encoded(queue, deliveries.message, result)
    if kept is None:
        ack(queue, tr, deliveries)
    else:
        queue._run(tr, results.ack, queue, deliveries, kept)


@overload
def extend(
    queue: Handle, tr: Transactor, deliveries: Delivery, lease: Seconds | None = None
) -> Delivery: ...
@overload
def extend(  # type: ignore[overload-overlap]  # a batch is a sequence, too
    queue: Handle, tr: Transactor, deliveries: B, lease: Seconds | None = None
) -> B: ...
@overload
def extend(
    queue: Handle, tr: Transactor, deliveries: Sequence[Delivery], lease: Seconds | None = None
) -> list[Delivery]: ...
def extend(
    queue: Handle, tr: Transactor, deliveries: Deliveries, lease: Seconds | None = None
) -> Deliveries:
    """Let leases end ``lease`` seconds from now (None: the queue's own lease time).

    Returns what was given, with its new expiry, and whether each was cancelled. What was given can
    still be settled. Raises ``InvalidOptions``.
    """
    checked(deliveries)
    each = [deliveries] if isinstance(deliveries, Delivery) else list(deliveries)
    wanted = None if lease is None else check_lease("lease", lease)

    def extend(tr: fdb.Transaction) -> Extended:
        scope = queue._scope(tr)
        seconds = scope.options.lease if wanted is None else wanted
        return lease_extension.extend(tr, scope, each, seconds)

    extended = queue._run(tr, extend)
    if isinstance(deliveries, Together):
        return deliveries._extended(extended)
    again = [extended.of(one) for one in each]
    return again[0] if isinstance(deliveries, Delivery) else again


def release(
    queue: Handle,
    tr: Transactor,
    deliveries: Deliveries,
    *,
    delay: Seconds | None = None,
    error: str | None = None,
) -> None:
    """Give one delivery, several, or a batch back, each to its old position.

    delay: seconds until then, 0 to ten years. None takes the backoff for a failed attempt.
        Without an error, None means at once for the first three times that a message is given
        back; after that it rests for a tenth of a second, twice as long each time, up to ten
        seconds, so a consumer that cannot handle a message does not get it in a loop.
    error: why the attempt failed: then it counts, the text is kept with the message (up to
        500 characters), and at the maximum of attempts it becomes a dead letter. Without one
        the attempt does not count: after an exception, give its text.

    Raises ``InvalidArgument``.
    """
    rest = None if delay is None else check_delay("delay", delay)
    verdict = Return(rest, None if error is None else _text("error", error))
    carry_out(queue, tr, deliveries, {}, verdict)


def reject(
    queue: Handle,
    tr: Transactor,
    deliveries: Deliveries,
    reason: str,
    *,
    drop: bool = False,
) -> None:
    """Refuse one delivery, several, or a batch for good: each becomes a dead letter with a reason,
    or ends if ``drop``.

    reason: up to 500 characters are kept. Raises ``InvalidArgument``.
    """
    verdict = Refuse(_text("reason", reason), check_flag("drop", drop))
    carry_out(queue, tr, deliveries, {}, verdict)


def settle(
    queue: Handle,
    tr: Transactor,
    deliveries: Sequence[Delivery],
    verdicts: Mapping[str, BaseException],
) -> None:
    """Settle several deliveries, or a batch, each by its verdict; acknowledge those that have none.

    verdicts: by message id, what a handler of a worker would raise: ``Reject``, ``Retry``,
        ``Snooze``, or any other exception, which fails the attempt.

    Raises ``InvalidArgument`` for an id that is not among them.
    """
    _check_together(tr)
    check_verdicts(verdicts, deliveries)
    meant = {each: judged(error) for each, error in verdicts.items()}
    carry_out(queue, tr, deliveries, meant)


def _check_together(tr: Transactor) -> None:
    """Raise ``InvalidArgument`` where a caller in a transaction would acknowledge apart from it."""
    if not isinstance(tr, fdb.Transaction):
        check_apart(tr)


def check_verdicts(verdicts: Mapping[Any, object], deliveries: Sequence[Delivery]) -> None:
    """Raise ``InvalidArgument`` for what is no verdicts by id, or one of another message."""
    if not isinstance(verdicts, Mapping):
        problem = "give a mapping of message ids to exceptions, such as {delivery.id: Reject()}"
        raise InvalidArgument(argument="verdicts", value=verdicts, problem=problem)
    unknown = verdicts.keys() - {each.id for each in deliveries} if verdicts else set()
    if unknown:
        raise InvalidArgument(
            argument="verdicts",
            value=unknown.pop(),
            problem="is the id of no message of the batch",
        )


def judged(
    error: BaseException, delay: float | None = None, seconds: float | None = None
) -> Verdict:
    """What becomes of a message, given its verdict. delay: after a failure, where that says none.
    seconds: how long the attempt took, if that is known.

    Raises ``InvalidArgument`` for anything but an exception.
    """
    match error:
        case Snooze():
            return Return(error.seconds)
        case Reject():
            return Refuse(_text("reason", text(error)), error.drop, seconds, trace(error))
        case Retry() if error.seconds is not None:
            return Return(error.seconds, _text("error", text(error)), seconds, trace(error))
        case BaseException():
            return Return(delay, _text("error", text(error)), seconds, trace(error))
    raise InvalidArgument(
        argument="verdicts", value=error, problem="a verdict is an exception, such as Reject"
    )


def carry_out(
    queue: Handle,
    tr: Transactor,
    deliveries: Deliveries,
    verdicts: Mapping[str, Verdict],
    others: Verdict | None = None,
) -> None:
    """Settle deliveries by their verdicts, given by message id.

    others: the verdict of all others; None if they are done.
    """
    if not verdicts and others is None:
        composed(tr, queue._keys.once, settling.ack, queue._entry, checked(deliveries))
        mark_settled(deliveries)
        return
    held = checked(deliveries)
    count = 1 if isinstance(deliveries, Delivery) else len(deliveries)
    returned = count if isinstance(others, Return) else len(verdicts)

    def settle(tr: fdb.Transaction) -> None:
        scope = queue._scope(tr)
        # Also for what rests: who waits must learn when to look again.
        ending = settling.Ending(tr, queue._keys, held)
        # Issued with the reads of the leases: to wake somebody costs no round trip of its own.
        waiting = wakeups.reads(tr, queue._keys, returned) if returned else None
        settling.settle(tr, scope, ending, verdicts, others)
        if waiting is not None:
            wakeups.wake(tr, queue._keys, waiting)

    queue._run(tr, settle)
    mark_settled(deliveries)


def mark_settled(deliveries: Deliveries) -> None:
    """Tell a batch that it is settled as a whole."""
    if isinstance(deliveries, Together):
        deliveries._ended()


def _text(argument: str, text: object) -> str:
    if not isinstance(text, str):
        raise InvalidArgument(argument=argument, value=text, problem="must be a str")
    # A lone surrogate, as in a file name, cannot be stored and must not lose the rest.
    return text[:MAX_REASON_CHARACTERS].encode(errors="replace").decode()
