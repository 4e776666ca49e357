"""Promotion: every consumer that looks for messages first makes ready what has become due."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ExpiredBacklog
from ..messages import agenda
from ..messages.delivery import lease_expiry, queue_limits
from ..messages.transaction_budget import Done
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from . import wakeups


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
    every: bool = False,
    shared: bool = True,
) -> Done:
    """``promote`` until a message became ready or nothing more is due: whoever finds none then may
    say that there is none. every: go on until nothing more is due, for whom the
    first ready message may not do. So does who may take none until leases end: some may be over.

    Raises ``ExpiredBacklog`` if that is more than one transaction does.
    """
    done = Done()
    for _ in range(MAX_STEPS):
        step = promote(tr, scope, issued, shared=shared)
        done = done.plus(step)
        if not step.moved or (done.ready and not every and not queue_limits.crowded(tr, scope)):
            return done
        if not done.fits:
            break
        # Fresh reads of the same transaction: they see what this step has removed.
        issued = reads(tr, scope)
    # "Nothing is ready" would be wrong while something is due: the caller asks again in a next
    # transaction.
    raise ExpiredBacklog(name=scope.name, count=done.moved)
