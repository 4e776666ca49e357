"""What becomes ready by itself: whoever looks for messages returns it to the queue first."""

from __future__ import annotations

from ..binding import fdb
from ..queue import lapse
from ..queue.scope import Scope
from . import wakeups


def look(tr: fdb.Transaction, scope: Scope) -> fdb.FDBRange:
    """Issue the snapshot reads of what may have become ready.

    Awaits the read version: issue other reads before.
    """
    return lapse.look(tr, scope)


@fdb.transactional
def promote(tr: fdb.Transaction, scope: Scope, looked: fdb.FDBRange) -> int:
    """Return to the queue what has become ready, and wake consumers for it.

    Returns how many messages became ready. A second round trip if there are any.
    """
    ready = lapse.return_lapsed(tr, scope, looked)
    if ready:
        wakeups.wake(tr, scope.keys, wakeups.look(tr, scope.keys, ready))
    return ready
