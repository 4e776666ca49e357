"""Promotion: every consumer that looks for messages first makes ready what has become due."""

from __future__ import annotations

from typing import NamedTuple

from ..messages.delivery import lease_expiry
from ..messages.delivery import promotion as due_messages
from ..messages.slots import hand_over, rates
from ..messages.transaction_budget import SIDE_BYTES
from ..schema.keys import SlotKeys
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from . import wakeups


class Reads(NamedTuple):
    """The reads of what may be due, issued and not awaited.

    timers: of rates, by where these are.
    """

    expired: lease_expiry.Reads
    due: fdb.FDBRange
    timers: list[tuple[SlotKeys, rates.Due]]


class Promoted(NamedTuple):
    """What a promotion did.

    ready: messages that became ready. moved: messages that changed state at all; some become dead
    letters, rest or expire. excess: bytes that a receiver in the same transaction must save.
    """

    ready: int
    moved: int
    excess: int


def reads(tr: fdb.Transaction, scope: Scope) -> Reads:
    """Issue snapshot reads of what may be due. Awaits the read version: issue other reads first."""
    return Reads(
        lease_expiry.reads(tr, scope),
        due_messages.due(tr, scope),
        rates.due(tr, scope),
    )


@transactional
def promote(tr: fdb.Transaction, scope: Scope, reads: Reads) -> Promoted:
    """Make ready what is due, and wake consumers for it. A second round trip if anything is due."""
    returned, expired, size = lease_expiry.return_expired(tr, scope, reads.expired)
    ready = due = 0
    if size <= SIDE_BYTES:  # Otherwise another large message would not fit; the next one takes it.
        ready, due, more = due_messages.promote(tr, scope, reads.due)
        size += more
    for keys, timers in reads.timers:
        if size > SIDE_BYTES:
            break
        let_out, fired, more = hand_over.fire(tr, scope, keys, timers.waited)
        fired += rates.tidy(tr, scope, keys, timers.rested)
        ready, due, size = ready + let_out, due + fired, size + more
    promoted = Promoted(returned + ready, expired + due, max(0, size - SIDE_BYTES))
    if promoted.ready:
        wakeups.wake(tr, scope.keys, wakeups.reads(tr, scope.keys, promoted.ready))
    return promoted
