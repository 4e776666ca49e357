"""The agenda of a queue: what has fallen due is done, the most urgent first, within one budget.

``schema.due`` tells how it is found. Every consumer that looks for messages does first what is due,
so nothing depends on a sweep, or on whoever left it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..schema import due
from ..schema.keys import SlotKeys
from ..schema.leases import unpack_expiry
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND
from . import place
from .delivery import limits, promotion
from .slots import gates
from .transaction_budget import SIDE_BYTES

MAX_ENTRIES = 100
"""The most entries that one step does."""
MAX_RANKS = 8
"""The most ranks that one step looks at, the most urgent ones."""


class Done(NamedTuple):
    """What a step did.

    ready: messages that became ready. moved: entries that are used up, and ranks that nothing was
    due in; 0 only if nothing is due. size: about how many bytes that took.
    """

    ready: int
    moved: int
    size: int


NOTHING = Done(0, 0, 0)


class _Issued(NamedTuple):
    """The reads of a rank, issued and not awaited: what is due, what follows, and where messages
    of its level go."""

    seen: due.Rank
    over: fdb.FDBRange
    later: fdb.FDBRange
    end: place.Reads


def reads(tr: fdb.Transaction, scope: Scope) -> fdb.FDBRange:
    """Issue a snapshot read of when to look at what."""
    return due.reads(tr, scope.keys)


@transactional
def step(tr: fdb.Transaction, scope: Scope, issued: fdb.FDBRange) -> Done:
    """Do what is due, as far as one transaction does. Two round trips if there may be any.

    Conflicts with others that do the same, or change it, and with what is added meanwhile and is
    due before all that stays.
    """
    keys, now_ms = scope.keys, scope.now_ms(tr)
    seen = [each for each in due.ranks(keys, issued) if each.from_ms <= now_ms][:MAX_RANKS]
    share = max(1, MAX_ENTRIES // max(1, len(seen)))
    found = [_issue(tr, scope, each, now_ms, share) for each in seen]
    picked: list[promotion.Row] = []
    room, looked = SIDE_BYTES, 0
    for each in found:
        taken: list[promotion.Row] = []
        following = None
        for row in promotion.opened(scope, each.over):
            if room - row.size < 0 and (picked or taken):
                room, following = 0, row.key
                break
            room -= row.size
            taken.append(row)
        if following is None and len(taken) == share:
            following = taken[-1].key  # Perhaps others are due then.
        if following is None:
            following = next((bytes(kv.key) for kv in each.later), None)
        due.rise(tr, keys, each.seen, following)
        looked += not taken
        picked += taken
        if not room:
            break
    if not picked:
        return Done(0, looked, 0)
    ends = {each.seen.rank: each.end for each in found}
    ready = promotion.promote(tr, scope, picked, ends)
    return Done(ready, looked + len(picked), sum(row.size for row in picked))


def _issue(tr: fdb.Transaction, scope: Scope, seen: due.Rank, now_ms: int, limit: int) -> _Issued:
    over, later = (
        scope.keys.due(seen.rank, now_ms),
        scope.keys.due_later(seen.rank, now_ms),
    )
    mode = fdb.StreamingMode
    return _Issued(
        seen,
        tr.snapshot.get_range(over.start, over.stop, limit=limit, streaming_mode=mode.want_all),
        tr.snapshot.get_range(later.start, later.stop, limit=1, streaming_mode=mode.exact),
        place.reads(tr, scope.keys, seen.rank),
    )


class Coming(NamedTuple):
    """The reads of what happens next, issued and not awaited."""

    earliest: fdb.FDBRange
    expiry: fdb.FDBRange
    timers: list[tuple[SlotKeys, fdb.FDBRange]]
    group: fdb.FDBRange | None


def coming(tr: fdb.Transaction, scope: Scope) -> Coming:
    """Issue snapshot reads of when delayed messages are due, of the first lease to expire and the
    first timer of a rate, and of the first group to look at if the queue has groups."""

    def first(keys: slice) -> fdb.FDBRange:
        return tr.snapshot.get_range(
            keys.start, keys.stop, limit=1, streaming_mode=fdb.StreamingMode.exact
        )

    timers = [(keys, first(keys.timer.under(0))) for keys in gates.timed(scope)]
    expiry = scope.keys.expiry.rows
    group = first(scope.keys.groups_due()) if "groups" in scope.noted else None
    return Coming(due.reads(tr, scope.keys), first(expiry), timers, group)


def next_seconds(tr: fdb.Transaction, scope: Scope, reads: Coming) -> float | None:
    """Seconds until the next delayed message, timer or group is due, the next lease may expire, or
    the queue's rate lets somebody take the next message; None if none.

    One round trip if the queue has a rate: it sees what the transaction takes.

    Until then a waiting consumer needs to look only if it is woken.
    """
    now_ms = scope.now_ms(tr)
    ranks = due.ranks(scope.keys, reads.earliest)
    times = [(each.from_ms - now_ms) / 1000 for each in ranks]
    for keys, timer in reads.timers:
        times += [(keys.timer.parse(kv.key)[1] - now_ms) / 1000 for kv in timer]
    for kv in reads.group or ():
        times.append((scope.keys.group_due.parse(kv.key)[0] - now_ms) / 1000)
    for kv in reads.expiry:
        version, _ = scope.keys.expiry.parse(kv.key)
        by_version = (version - scope.version(tr)) / VERSIONS_PER_SECOND
        times.append(max(by_version, (unpack_expiry(kv.value)[0] - now_ms) / 1000))
    paced = limits.next_seconds(tr, scope)
    if paced is not None:
        times.append(paced)
    return max(0.0, min(times)) if times else None
