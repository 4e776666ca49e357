"""What becomes of a message whose delivery has ended without success.

The decision is a function of plain values; carrying it out is apart from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from ...schema.codec.envelopes import Envelope
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values import backoff
from ...values.options import QueueOptions
from ...values.records import record
from ...values.states import State, Transition
from .. import dead_letters, delayed, time_to_live, transitions
from . import requeue


class Disposition(Enum):
    """Where a message goes."""

    REQUEUE = "to its place"
    DEFER = "to its place, after a delay"
    REJECT = "among the dead letters"
    EXPIRE = "where messages go whose time to live is over"


FREE_RELEASES = 3
"""How often a message is given back at once, without an error."""
FIRST_REST = 0.1
MAX_REST = 10.0
"""Seconds that it rests before it is delivered again, if it is given back yet again."""


def rest(released: int) -> float:
    """Seconds that a message rests that was given back ``released`` times before, without an error.

    Else a consumer that cannot do anything with the first message, and gives it back, would be
    handed the same again at once, for ever.
    """
    if released < FREE_RELEASES:
        return 0.0
    return min(MAX_REST, FIRST_REST * 2.0 ** min(released - FREE_RELEASES, 10))


@record
class Verdict:
    """Where a message goes, with what envelope; ``due_ms`` for a rest, ``reason`` for a death."""

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
    """What becomes of a message.

    failure: how the attempt failed, for a dead letter's reason; None if it does not count.
    error: the text to keep with it. delay: seconds to rest; None for what the backoff says, of
    the message or else of the queue, and without a failure for what ``rest`` says.
    """
    if failure is None and delay is None:
        delay = rest(envelope.released)
        envelope = replace(envelope, released=envelope.released + 1)
    if failure is not None:
        envelope = envelope.failed(error)
        limit = envelope.max_attempts or options.max_attempts
        if limit is not None and envelope.attempts >= limit:
            return Verdict(Disposition.REJECT, envelope, reason=failure)
        if delay is None:
            delay = backoff.seconds(envelope.backoff or options.backoff, envelope.attempts)
    if envelope.expired(now_ms):
        return Verdict(Disposition.EXPIRE, envelope)
    if delay:
        return Verdict(Disposition.DEFER, envelope, due_ms=now_ms + int(delay * 1000))
    return Verdict(Disposition.REQUEUE, envelope)


def after_expiry(options: QueueOptions, envelope: Envelope, now_ms: int, *, begun: bool) -> Verdict:
    """What becomes of a message whose lease has lapsed.

    begun: whether its handling had begun, beside no other: else this is no failed attempt. The rest
        that the backoff asks for began with the lease.
    """
    envelope = envelope.lapsed(begun=begun)
    if not begun:
        return decide(options, envelope, now_ms, failure=None, delay=0.0)
    rest = backoff.seconds(envelope.backoff or options.backoff, envelope.attempts + 1)
    return decide(
        options,
        envelope,
        now_ms,
        failure="its lease lapsed at the last attempt",
        delay=max(0.0, rest - options.lease),
    )


@transactional
def carry_out(
    tr: fdb.Transaction,
    scope: Scope,
    returned: Transition,
    verdicts: Iterable[tuple[StoredMessage, Verdict]],
) -> int:
    """Send messages, whose leases were ended, where they go; returns how many became ready.

    returned: the transition of those that go back to their places. Writes blindly but for dead
    letters that go to another queue.
    """
    ready: list[StoredMessage] = []
    expired: list[StoredMessage] = []
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
    requeue.put_back(tr, scope, ready)
    transitions.record(tr, scope, returned, ready)
    dead_letters.add(tr, scope, State.LEASED, died)
    time_to_live.expire(tr, scope, State.LEASED, expired)
    ended = [*expired, *(message for message, _ in died)]
    # The end of one with an ordering key lets the next one become ready.
    return len(ready) + sum(message.envelope.key is not None for message in ended)
