"""Redelivery policy: what happens to a message after a failed delivery.

The decision is a function of plain values; ``carry_out`` executes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from ...schema.envelope import Envelope
from ...schema.scope import Scope, StoredMessage
from ...store import world
from ...store.binding import fdb, transactional
from ...values import backoff
from ...values.options import QueueOptions
from ...values.states import CANCEL, REPLACE_LEASED, State, Transition
from .. import dead_letters, delayed, run, time_to_live, transitions
from ..enqueue import last_values


class Disposition(Enum):
    """Where a message goes."""

    REQUEUE = "to its place"
    DEFER = "to its place, after a delay"
    REJECT = "to the dead letters"
    EXPIRE = "to the end of its time to live"
    CANCEL = "to the end that was asked for"


FREE_RELEASES = 3
"""How often a message may be released without an error before releases cause a delay."""
FIRST_DELAY = 0.1
MAX_DELAY = 10.0
"""The delays of further releases, in seconds."""


def release_delay(released: int) -> float:
    """How long to delay a message released ``released`` times before without an error.

    Otherwise a consumer that keeps releasing the first message would receive it again and again.
    """
    if released < FREE_RELEASES:
        return 0.0
    return min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(released - FREE_RELEASES, 10))


class Verdict(Struct, frozen=True):
    """Where a message goes, with its new envelope; ``due_ms`` for DEFER, ``reason`` for REJECT."""

    disposition: Disposition
    envelope: Envelope
    due_ms: int = 0
    reason: str = ""


def decide(
    options: QueueOptions,
    envelope: Envelope,
    now_ms: int,
    *,
    failure: str | None,
    error: str | None = None,
    delay: float | None = None,
) -> Verdict:
    """Decide what happens to a message: one that was cancelled ends.

    failure: how the attempt failed, as the reason of a dead letter; None if it does not count.
    error: the text to keep. delay: in seconds; None for the backoff of the message or the queue,
    and without a failure for ``release_delay``.
    """
    if envelope.cancelled:
        return Verdict(Disposition.CANCEL, envelope)
    if failure is None and delay is None:
        delay = release_delay(envelope.released)
        envelope = replace(envelope, released=envelope.released + 1)
    if failure is not None:
        envelope = envelope.failed(error)
        limit = envelope.max_attempts or options.max_attempts
        if limit is not None and envelope.attempts >= limit:
            return Verdict(Disposition.REJECT, envelope, reason=failure)
        if delay is None:
            delay = backoff.seconds(
                envelope.backoff or options.backoff, envelope.attempts, world.random.uniform
            )
    if envelope.expired(now_ms):
        return Verdict(Disposition.EXPIRE, envelope)
    if delay:
        return Verdict(Disposition.DEFER, envelope, due_ms=now_ms + int(delay * 1000))
    return Verdict(Disposition.REQUEUE, envelope)


def after_expiry(options: QueueOptions, envelope: Envelope, now_ms: int, *, begun: bool) -> Verdict:
    """Decide what happens to a message whose lease has expired.

    begun: whether its handling, and that of no other message, had begun; otherwise this is not a
        failed attempt. The delay of the backoff began with the lease.
    """
    envelope = envelope.after_expiry(begun=begun)
    if not begun:
        return decide(options, envelope, now_ms, failure=None, delay=0.0)
    delay = backoff.seconds(
        envelope.backoff or options.backoff, envelope.attempts + 1, world.random.uniform
    )
    return decide(
        options,
        envelope,
        now_ms,
        failure="its lease expired at the last attempt",
        delay=max(0.0, delay - options.lease),
    )


@transactional
def carry_out(
    tr: fdb.Transaction,
    scope: Scope,
    returned: Transition,
    verdicts: Iterable[tuple[StoredMessage, Verdict]],
) -> int:
    """Send messages, whose leases have ended, where they go; returns how many became ready.

    returned: the transition of those that return to their places. One that a newer message of its
    last value has replaced ends instead. Writes blindly, except dead letters for another queue, and
    where the queue keeps last values.
    """
    ready: list[StoredMessage] = []
    expired: list[StoredMessage] = []
    cancelled: list[StoredMessage] = []
    died: list[tuple[StoredMessage, str]] = []
    for held, verdict in verdicts:
        message = StoredMessage(held.position, verdict.envelope, held.consumer)
        match verdict.disposition:
            case Disposition.REQUEUE:
                ready.append(message)
            case Disposition.DEFER:
                delayed.defer(tr, scope, verdict.due_ms, message)
            case Disposition.REJECT:
                died.append((message, verdict.reason))
            case Disposition.EXPIRE:
                expired.append(message)
            case Disposition.CANCEL:
                cancelled.append(message)
    ready = last_values.remaining(tr, scope, REPLACE_LEASED, ready)
    run.put_back(tr, scope, ready)
    transitions.record(tr, scope, returned, ready)
    let_out = dead_letters.add(tr, scope, State.LEASED, died)
    let_out += time_to_live.expire(tr, scope, State.LEASED, expired)
    return len(ready) + let_out + transitions.record(tr, scope, CANCEL, cancelled)
