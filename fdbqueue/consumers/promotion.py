"""Promotion: every consumer that looks for messages first makes ready what has become due."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ExpiredBacklog
from ..messages import agenda
from ..messages.delivery import lease_expiry, limits
from ..messages.transaction_budget import SIDE_BYTES
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from . import wakeups


class Reads(NamedTuple):
    """The reads of what may be due, issued and not awaited."""

    expired: lease_expiry.Reads
    agenda: agenda.Reads


class Promoted(NamedTuple):
    """What a promotion did.

    ready: messages that became ready. moved: messages that changed state at all; some become dead
    letters, rest or expire, and groups that have ended count as well. tidied: what was done beside
    that. expired: messages whose time to live was over. size: about how many bytes that took.
    """

    ready: int = 0
    moved: int = 0
    tidied: int = 0
    expired: int = 0
    size: int = 0

    @property
    def fits(self) -> bool:
        """Whether there is room for more."""
        return self.size <= SIDE_BYTES

    @property
    def changed(self) -> bool:
        """Whether other messages are ready than before."""
        return self.ready + self.expired > 0

    def plus(self, **more: int) -> Promoted:
        """With more of some of it."""
        return self._replace(**{name: getattr(self, name) + n for name, n in more.items()})

    @property
    def excess(self) -> int:
        """Bytes that a receiver in the same transaction must save."""
        return max(0, self.size - SIDE_BYTES)


MAX_STEPS = 10
"""How often one transaction promotes what is due, before it leaves the rest to others."""


def reads(tr: fdb.Transaction, scope: Scope) -> Reads:
    """Issue snapshot reads of what may be due. Awaits the read version: issue other reads first."""
    return Reads(
        lease_expiry.reads(tr, scope),
        agenda.Reads(tr, scope),
    )


@transactional
def promote(tr: fdb.Transaction, scope: Scope, reads: Reads) -> Promoted:
    """Make ready what is due, and wake consumers for it. A second round trip if anything is due.

    Callbacks of groups that were blocked are tried again, and those of this queue made ready.
    """
    returned, ended, size = lease_expiry.return_expired(tr, scope, reads.expired)
    done = Promoted(returned, ended, size=size)
    if done.fits:  # Otherwise another large message would not fit; the next one takes it.
        done = done.plus(**agenda.step(tr, scope, reads.agenda)._asdict())
    if done.ready:
        wakeups.wake(tr, scope.keys, wakeups.reads(tr, scope.keys, done.ready))
    return done


def promote_all(
    tr: fdb.Transaction, scope: Scope, issued: Reads, *, every: bool = False
) -> Promoted:
    """As ``promote``, again and again until a message became ready or nothing more is due: so who
    finds none then may say that there is none. every: go on until nothing more is due, for whom the
    first ready message may not do. So does who may take none until leases end: some may be over.

    Raises ``ExpiredBacklog`` if that is more than one transaction does.
    """
    done = Promoted()
    for _ in range(MAX_STEPS):
        step = promote(tr, scope, issued)
        done = done.plus(**step._asdict())
        if not step.moved or (done.ready and not every and not limits.crowded(tr, scope)):
            return done
        if not done.fits:
            break
        issued = reads(tr, scope)
    raise ExpiredBacklog(name=scope.name, count=done.moved)
