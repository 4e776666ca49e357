"""The agenda of a queue: what has fallen due is done, the most urgent first, within one budget.

``schema.due`` tells how it is found. Every consumer that looks for messages does first what is due,
so nothing depends on a sweep, or on whoever left it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from ..schema import due, once
from ..schema.keys import SHARED, TIDYING, WORK, AgendaKeys, What
from ..schema.leases import unpack_expiry
from ..schema.scope import Scope
from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND
from . import place, time_to_live
from .delivery import promotion, queue_limits, results
from .enqueue import dedup
from .groups import group_state as groups
from .slots import hand_over, rates
from .transaction_budget import SIDE_BYTES, Done

MAX_ENTRIES = 100
"""The most entries that one step does."""
MAX_RANKS = 8
"""The most ranks that one step looks at, the most urgent ones."""
TIDY_MS = 10_000
"""How long a consumer that waits lets what brings no message wait, at least."""


class _Issued(NamedTuple):
    """The reads of a rank, issued and not awaited: what is due, what follows, and where messages
    of its level go."""

    seen: due.Rank
    over: fdb.FDBRange
    later: fdb.FDBRange
    end: place.LevelEndReads | None


class AgendaReads:
    """Snapshot reads of when to look at what, in the queue and, if its messages count in limits,
    below the root: issued and not awaited. Another round trip if that is not known yet.

    own: that of the queue, if it was issued.
    """

    def __init__(self, tr: fdb.Transaction, scope: Scope, own: fdb.FDBRange | None = None) -> None:
        self._tr, self._scope = tr, scope
        self._own = due.reads(tr, scope.keys) if own is None else own
        self._shared = due.reads(tr, scope.root.limits) if scope.shared else None

    @cached_property
    def ranks(self) -> list[tuple[AgendaKeys, list[due.Rank]]]:
        """The ranks of each agenda, the most urgent first."""
        scope = self._scope
        own = due.ranks(scope.keys, self._own)
        found: list[tuple[AgendaKeys, list[due.Rank]]] = [(scope.keys, own)]
        # The queue's agenda says that its messages count in limits. A process learns that here,
        # once, for one more round trip.
        if self._shared is None and any(each.rank == SHARED for each in own):
            scope.shared = True
            self._shared = due.reads(self._tr, scope.root.limits)
        if self._shared is not None:
            found.append((scope.root.limits, due.ranks(scope.root.limits, self._shared)))
        return found

    @property
    def some(self) -> bool:
        """Whether the queue has an agenda."""
        return bool(self.ranks[0][1])

    def over(self, now_ms: int) -> bool:
        """Whether there is a rank to look at now."""
        return any(each.from_ms <= now_ms for _, some in self.ranks for each in some)

    def next_ms(self, now_ms: int) -> int:
        """When to look next; ``NEVER_MS`` if there is nothing. Nobody hurries to tidy."""
        times = [
            # Entries that only tidy may be due all the time; a consumer that woke for each would
            # never sleep.
            max(each.from_ms, now_ms + TIDY_MS * (each.rank == TIDYING))
            for _, some in self.ranks
            for each in some
        ]
        return min(times, default=due.NEVER_MS)


@transactional
def step(tr: fdb.Transaction, scope: Scope, issued: AgendaReads, *, shared: bool = True) -> Done:
    """Do what is due, as far as one transaction does. Two round trips if there may be any, and one
    or two for what only tidies.

    Conflicts with others that do the same, or change it, and with what is added meanwhile and is
    due before all that stays. What only tidies below the root, where queues meet, is left to
    transactions of the package's own: it must abort nobody else's. shared: whether to do anything
    there.
    """
    done = Done()
    for keys, ranks in issued.ranks[: 1 + shared]:
        # Below the root all queues of an application meet; a caller's transaction that tidied there
        # would be aborted by strangers.
        tidies = keys is scope.keys or once.attempt(tr).brief
        # The second agenda is left for the next transaction where the first has used the budget up:
        # what is due stays stored.
        if done.size <= SIDE_BYTES:
            some = [each for each in ranks if tidies or each.rank < TIDYING]
            done = done.plus(_step(tr, scope, keys, some))
    return done


def _step(tr: fdb.Transaction, scope: Scope, keys: AgendaKeys, ranks: Sequence[due.Rank]) -> Done:
    """Do what is due of one agenda."""
    now_ms = scope.now_ms(tr)
    over = [each for each in ranks if each.from_ms <= now_ms]
    # Each rank gets a share, so that a rank with 100,000 due entries does not starve the others of
    # this step.
    share = max(1, MAX_ENTRIES // max(1, len(over[:MAX_RANKS])))
    found = [_issue(tr, scope, keys, each, now_ms, share) for each in over[:MAX_RANKS]]
    messages: list[promotion.DelayedRow] = []
    entries: defaultdict[What, list[due.Entry]] = defaultdict(list)
    room, taken, looked = SIDE_BYTES, Counter[bool](), 0
    for each in found:
        count, following = 0, None
        for row in _opened(scope, keys, each):
            if isinstance(row, due.Entry):
                if len(entries[row.what]) == _SORTS[row.what].most:
                    following = row.key
                    break
                entries[row.what].append(row)
                room -= _SORTS[row.what].size
            # The first is done whatever its size, or a large message at the head would block the
            # rank for good.
            elif room < row.size and (messages or entries):
                room, following = 0, row.key
                break
            else:
                messages.append(row)
                room -= row.size
            count += 1
            # The rows were read at snapshot isolation; a conflict on those that are done, and on no
            # other: two consumers that do the same entry collide, and new entries abort nobody.
            tr.add_read_conflict_key(row.key)
            del tr[row.key]
        if following is None and count == share:
            # The range may go on at this time: claim no more than was seen, and look again.
            following = row.key  # Perhaps others are due then.
        if following is None:
            following = next((bytes(kv.key) for kv in each.later), None)
        # Whoever adds something earlier meanwhile conflicts here: the mark must never rise past an
        # entry.
        due.rise(tr, keys, each.seen, following)
        taken[each.seen.rank < TIDYING] += count
        looked += 1
        if room <= 0:
            break
    # Ranks that nobody has looked at may have something, too.
    left = any(each.rank < TIDYING for each in over[looked:])
    done = Done(moved=taken[True] + left, tidied=taken[False])
    if messages:
        ends = {each.seen.rank: each.end for each in found if each.end is not None}
        ready = promotion.admit(tr, scope, [row.message for row in messages], ends)
        done = done.plus(Done(ready=ready, size=sum(row.size for row in messages)))
    for what, some in entries.items():
        did = _SORTS[what].handle(tr, scope, some, max(0, SIDE_BYTES - done.size))
        # What did not fit was deleted above with the rest; it goes back, due as before, for the
        # next step or another process.
        for entry in some[did.handled :]:
            entry.add(tr, keys)
        done = done.plus(did)
    return done


def _issue(
    tr: fdb.Transaction,
    scope: Scope,
    keys: AgendaKeys,
    seen: due.Rank,
    now_ms: int,
    limit: int,
) -> _Issued:
    over, later = keys.due(seen.rank, now_ms), keys.due_later(seen.rank, now_ms)
    mode = fdb.StreamingMode
    return _Issued(
        seen,
        tr.snapshot.get_range(over.start, over.stop, limit=limit, streaming_mode=mode.want_all),
        # What follows is read now, since the mark rises to it; after the entries it would be
        # another round trip.
        tr.snapshot.get_range(later.start, later.stop, limit=1, streaming_mode=mode.exact),
        place.reads(tr, scope.keys, seen.rank) if seen.rank < WORK else None,
    )


def _opened(
    scope: Scope, keys: AgendaKeys, issued: _Issued
) -> Iterator[promotion.DelayedRow | due.Entry]:
    for kv in issued.over:
        if issued.seen.rank < WORK:
            yield promotion.opened(scope, kv)
        else:
            yield due.entry(keys, kv)


class _Sort(NamedTuple):
    """How entries of one sort are done, how many in one step, at most, and about how many bytes
    each leaves to be taken from the room for messages."""

    handle: Callable[[fdb.Transaction, Scope, Sequence[due.Entry], int], Done]
    most: int
    size: int = 0


_SORTS = {
    What.EXPIRED: _Sort(time_to_live.end_expired, 2 * time_to_live.STEP_ROWS),
    What.RESULT: _Sort(results.forget_over, MAX_ENTRIES),
    What.WINDOW: _Sort(dedup.forget, MAX_ENTRIES),
    What.GATE: _Sort(hand_over.fire, hand_over.MAX_FIRED, SIDE_BYTES // 2 // hand_over.MAX_FIRED),
    What.REST: _Sort(rates.tidy, rates.MAX_TIDIED),
    What.GROUP: _Sort(groups.finish_ended, groups.MAX_LOOKED, SIDE_BYTES // groups.MAX_LOOKED),
}


class NextEventReads(NamedTuple):
    """The reads of what happens next, issued and not awaited."""

    agenda: AgendaReads
    expiry: fdb.FDBRange


def coming(tr: fdb.Transaction, scope: Scope) -> NextEventReads:
    """Issue snapshot reads of when to look at what, and of the first lease to expire."""
    expiry, mode = scope.keys.expiry.rows, fdb.StreamingMode.exact
    # Leases end by the database's version, everything else by the wall clock: two firsts, read
    # together.
    first = tr.snapshot.get_range(expiry.start, expiry.stop, limit=1, streaming_mode=mode)
    return NextEventReads(AgendaReads(tr, scope), first)


def next_seconds(tr: fdb.Transaction, scope: Scope, reads: NextEventReads) -> float | None:
    """Seconds until something is due, the next lease may expire, or the queue's rate lets somebody
    take the next message; None if none.

    One round trip if the queue has a rate: it sees what the transaction takes.

    Until then a waiting consumer needs to look only if it is woken.
    """
    now_ms = scope.now_ms(tr)
    next_ms = reads.agenda.next_ms(now_ms)
    times = [] if next_ms == due.NEVER_MS else [(next_ms - now_ms) / 1000]
    for kv in reads.expiry:
        version, _ = scope.keys.expiry.parse(kv.key)
        by_version = (version - scope.version(tr)) / VERSIONS_PER_SECOND
        times.append(max(by_version, (unpack_expiry(kv.value)[0] - now_ms) / 1000))
    paced = queue_limits.next_seconds(tr, scope)
    if paced is not None:
        times.append(paced)
    return max(0.0, min(times)) if times else None
