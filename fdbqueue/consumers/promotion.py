"""What becomes ready by itself: whoever looks for messages returns it to the queue first."""

from __future__ import annotations

from typing import NamedTuple

from ..messages import delayed
from ..messages.delivery import lease_expiry
from ..messages.transaction_budget import SIDE_BYTES
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from . import wakeups


class Reads(NamedTuple):
    """The reads of what may have become ready, issued and not awaited."""

    expired: lease_expiry.Reads
    due: fdb.FDBRange


def reads(tr: fdb.Transaction, scope: Scope) -> Reads:
    """Issue the snapshot reads of what may have become ready.

    Awaits the read version: issue other reads before.
    """
    return Reads(lease_expiry.reads(tr, scope), delayed.due(tr, scope))


class Promoted(NamedTuple):
    """How many messages became ready, how many moved at all (some die, rest or expire), and how
    many bytes more that was than a receiver has room for beside what it takes."""

    ready: int
    moved: int
    excess: int


@transactional
def promote(tr: fdb.Transaction, scope: Scope, reads: Reads) -> int:
    """Return to the queue what has become ready, and wake consumers for it.

    Returns how many messages became ready. A second round trip if there are any.
    """
    return promote_all(tr, scope, reads).ready


@transactional
def promote_all(tr: fdb.Transaction, scope: Scope, reads: Reads) -> Promoted:
    """As ``promote``; tells also whether there was anything to do."""
    returned, expired, size = lease_expiry.return_expired(tr, scope, reads.expired)
    ready = due = 0
    if size <= SIDE_BYTES:  # else there is no room for another large one: it is for the next
        ready, due, more = delayed.promote(tr, scope, reads.due)
        size += more
    promoted = Promoted(returned + ready, expired + due, max(0, size - SIDE_BYTES))
    if promoted.ready:
        wakeups.wake(tr, scope.keys, wakeups.reads(tr, scope.keys, promoted.ready))
    return promoted
