"""The one place that every transition of a message goes through.

An operation moves the message itself and then says so here; what follows from a transition,
whatever the operation, is done here once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..binding import fdb
from ..codec import pack_index
from ..states import ENDS, State, Transition
from . import counters, payloads
from .scope import Scope, Standing


@fdb.transactional
def moved(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Iterable[Standing]
) -> None:
    """Record that messages have made a transition. Writes blindly: no reads, no conflicts."""
    counts: defaultdict[int, int] = defaultdict(int)
    sizes: defaultdict[int, int] = defaultdict(int)
    for message in messages:
        if transition.target in ENDS:
            payloads.remove(tr, scope.keys, message.envelope)
        counts[message.position.level] += 1
        sizes[message.position.level] += message.envelope.size
    for level, count in counts.items():
        counters.record(tr, scope.keys, transition, level, count, sizes[level])
    if counts and transition.target is State.READY:
        # Whoever watches it sees every message become ready, also one whose transaction began
        # before there was anybody to wake (consumers/wakeups.py).
        tr.add(scope.keys.change, pack_index(1))
