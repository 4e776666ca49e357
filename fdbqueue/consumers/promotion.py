"""Promotion: every consumer that looks for messages first makes ready what has become due."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..errors import ExpiredBacklog
from ..messages import agenda
from ..messages.delivery import lease_expiry, queue_limits
from ..messages.transaction_budget import Done
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from . import wakeups


class Until(Enum):
    """Until when to promote."""

    READY = "a message became ready, or nothing more is due"
    DONE = "nothing more is due: for whom the first ready message may not do"


class DueReads(NamedTuple):
    """The reads of what may be due, issued and not awaited."""

    expired: lease_expiry.ExpiryReads
    agenda: agenda.AgendaReads


MAX_STEPS = 10
"""How often one transaction promotes what is due, before it leaves the rest to others."""


def reads(tr: fdb.Transaction, scope: Scope) -> DueReads:
    """Issue snapshot reads of what may be due. Awaits the read version: issue other reads first."""
    return DueReads(
        lease_expiry.reads(tr, scope),
        agenda.AgendaReads(tr, scope),
    )


@transactional
def promote(tr: fdb.Transaction, scope: Scope, reads: DueReads, *, shared: bool = True) -> Done:
    """Make ready what is due, and wake consumers for it. A second round trip if anything is due.

    Callbacks of groups that were blocked are tried again, and those of this queue made ready.
    shared: whether to do what is due below the root, too.
    """
    done = lease_expiry.return_expired(tr, scope, reads.expired)
    if done.fits:  # Otherwise another large message would not fit; the next one takes it.
        done = done.plus(agenda.step(tr, scope, reads.agenda, shared=shared))
    if done.ready:
        wakeups.wake(tr, scope.keys, wakeups.reads(tr, scope.keys, done.ready))
    return done


def promote_all(
    tr: fdb.Transaction,
    scope: Scope,
    issued: DueReads,
    *,
    until: Until = Until.READY,
    shared: bool = True,
) -> Done:
    """``promote`` again and again: whoever finds no message then may say that there is none. Who
    may take none until leases end goes on until nothing more is due, since some may be over.

    Raises ``ExpiredBacklog`` if that is more than one transaction does.
    """
    done = Done()
    for _ in range(MAX_STEPS):
        step = promote(tr, scope, issued, shared=shared)
        done = done.plus(step)
        if not step.moved or _enough(tr, scope, done, until):
            return done
        if not done.fits:
            break
        # Fresh reads of the same transaction: they see what this step has removed.
        issued = reads(tr, scope)
    # "Nothing is ready" would be wrong while something is due: the caller asks again in a next
    # transaction.
    raise ExpiredBacklog(name=scope.name, count=done.moved)


def _enough(tr: fdb.Transaction, scope: Scope, done: Done, until: Until) -> bool:
    return done.ready > 0 and until is Until.READY and not queue_limits.crowded(tr, scope)
