"""What becomes ready by itself: whoever looks for messages returns it to the queue first."""

from __future__ import annotations

from typing import NamedTuple

from ..binding import fdb
from ..queue import delayed, lapse
from ..queue.scope import Scope
from . import wakeups


class Looked(NamedTuple):
    """The reads of what may have become ready, issued and not awaited."""

    lapsed: fdb.FDBRange
    due: fdb.FDBRange


def look(tr: fdb.Transaction, scope: Scope) -> Looked:
    """Issue the snapshot reads of what may have become ready.

    Awaits the read version: issue other reads before.
    """
    return Looked(lapse.look(tr, scope), delayed.look(tr, scope))


class Promoted(NamedTuple):
    """How many messages became ready, and how many moved at all: some die, rest or expire."""

    ready: int
    moved: int


@fdb.transactional
def promote(tr: fdb.Transaction, scope: Scope, looked: Looked) -> int:
    """Return to the queue what has become ready, and wake consumers for it.

    Returns how many messages became ready. A second round trip if there are any.
    """
    return promote_all(tr, scope, looked).ready


@fdb.transactional
def promote_all(tr: fdb.Transaction, scope: Scope, looked: Looked) -> Promoted:
    """As ``promote``; tells also whether there was anything to do."""
    returned, lapsed = lapse.return_lapsed(tr, scope, looked.lapsed)
    ready, due = delayed.promote(tr, scope, looked.due)
    promoted = Promoted(returned + ready, lapsed + due)
    if promoted.ready:
        wakeups.wake(tr, scope.keys, wakeups.look(tr, scope.keys, promoted.ready))
    return promoted
