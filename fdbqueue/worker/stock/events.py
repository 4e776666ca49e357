"""What can happen to what a worker holds of a queue, and what follows.

Each event is a pure function: of what is held, and of what the event tells, it makes what is held
then, and the actions to carry out. Times are by ``world.monotonic``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from itertools import takewhile
from operator import attrgetter
from typing import TypeAlias

from msgspec.structs import replace

from ...consumers.credit import Credit
from ...values.model import Delivery
from .actions import Action, Begin, Check, Fetch, GiveBack, Look, Released, Settle, Took
from .held import Finished, Stock, token_of
from .states import UNDER_WAY, Event, Order, Supply, follow

PACE_SECONDS = 0.1
"""How long a worker waits between two looks, however many messages are cancelled."""
MAX_ACKNOWLEDGED = 1_000
"""Messages that one transaction acknowledges, and enqueues after them."""
MAX_SUCCESSOR_BYTES = 1_000_000
"""Payloads that it enqueues, if they belong to several messages."""

Stepped: TypeAlias = tuple[Stock, Sequence[Action]]

_begun, _level = attrgetter("begun"), attrgetter("message.level")


def turn(stock: Stock, now: float, free: bool, credit: Credit, first: bool) -> Stepped:
    """The fetcher does what is due by ``Stock.acts_at``, which has the same arguments: → ``Look``,
    ``Check``, ``Settle`` or ``Fetch``."""
    if stock.order is Order.LOOKING and stock.waiting:
        return stock, (Look(stock.waiting[0].message.level),)
    if stock.checks_at <= now:
        check = Check(stock.held, stock.watched == math.inf)
        return replace(stock, check_at=math.inf), (check,)
    finished, rest = _together(stock.finished)
    stock = replace(stock, finished=rest)
    if not (first and stock.fetches_now(now, free, credit)):
        return stock, (Settle(finished),)
    stock = replace(
        stock,
        supply=follow(stock.supply, Event.FETCHES),
        order=follow(stock.order, Event.FETCHES),
        fetches=stock.fetches + 1,
        began_at=now,
        fetch_at=math.inf,
    )
    offered = sorted(stock.waiting, key=_level) if stock.order is Order.EXCHANGING else ()
    fetch = Fetch(stock.fetches, credit, stock.wants(credit), finished, offered, free)
    return stock, (fetch,)


def _together(finished: tuple[Finished, ...]) -> tuple[Sequence[Finished], tuple[Finished, ...]]:
    """What one transaction acknowledges, in the order in which it ended, and the rest."""
    count = messages = size = 0
    for job in finished:
        messages += len(job.deliveries) + job.successors.count
        size += job.successors.bytes
        if count and (messages > MAX_ACKNOWLEDGED or size > MAX_SUCCESSOR_BYTES):
            break
        count += 1
    return finished[:count], finished[count:]


def fetched(
    stock: Stock,
    found: Sequence[Delivery],
    returned: Sequence[Delivery],
    left: Event,
    first: int | None,
    now: float,
    until: float,
) -> Stepped:
    """A fetch has ended. left: what it left, as an event of ``SUPPLY``. first: the level of the
    first message of that, if it is known. until: when to fetch again at the latest."""
    exchanged = stock.order is Order.EXCHANGING
    stock, released = _take_out(stock, {*map(token_of, returned)})
    # The sort keeps the order within a level, in which they were delivered.
    waiting = sorted([*stock.waiting, *found], key=_level)
    if any(map(_begun, waiting)):
        waiting.sort(key=_begun, reverse=True)
    stock = replace(
        stock,
        supply=follow(stock.supply, left),
        order=follow(stock.order, Event.FETCHED),
        waiting=tuple(waiting),
        since={each.token: stock.since.get(each.token, now) for each in waiting},
        fetch_at=min(until, stock.fetch_at),
    )
    # Taken since the watch was armed: what is cancelled of it fires that. If a look waits after a
    # failure, it is not hurried.
    if stock.began_at < stock.watched and stock.check_at == math.inf:
        stock = replace(stock, check_at=now)
    if exchanged:
        stock = replace(stock, looked_at=now, begun=0)  # What is left could not be taken.
    elif (
        not waiting
        or stock.supply is Supply.ASLEEP
        or (first is not None and first >= waiting[0].message.level)
    ):
        # The time at which it began: what became ready during the fetch, it may not have seen.
        stock = replace(stock, looked_at=stock.began_at, begun=0)
    return stock, (*released, Took(found, stock.supply))


def failed(stock: Stock, now: float, until: float, gone: Sequence[str] = ()) -> Stepped:
    """A fetch has failed. until: when to fetch again. gone: the ids of offered messages whose
    leases are lost; nothing begins before the rest is offered again."""
    lost = {each.token for each in stock.waiting if each.id in gone}
    stock, released = _take_out(stock, lost)
    stock = replace(
        stock,
        supply=follow(stock.supply, Event.FAILED),
        order=follow(stock.order, *([Event.LOST] if gone else []), Event.FETCHED),
        looked_at=now,  # Who cannot look does not wait for it.
        begun=0,
        fetch_at=until,
    )
    return stock, (*released, Took((), None))


def next_wanted(stock: Stock, now: float, looks: bool) -> Stepped:
    """A handler is free: → ``Begin``, unless a look comes first. looks: whether the store can be
    asked."""
    if not stock.can_begin(looks):
        return stock, ()
    if looks and stock.stale(now):
        return replace(stock, order=follow(stock.order, Event.LOOKS)), ()
    count = 1 if stock.suspect else stock.policy.handler.batch or 1
    begun = [*stock.waiting[:count]]
    if count > 1:
        # One that was delivered before is handled by itself: a batch may have failed of it.
        fresh = takewhile(lambda each: not each.message.redelivered, begun)
        begun = [*fresh] or begun[:1]
    stock = replace(
        stock,
        waiting=stock.waiting[len(begun) :],
        running={**stock.running, **{each.token: each for each in begun}},
        begun=stock.begun + len(begun),
    )
    return stock, (Begin(begun),)


def looked(stock: Stock, found: bool, now: float) -> Stepped:
    """A look has ended. found: whether something more urgent is ready."""
    if found:
        return replace(stock, order=follow(stock.order, Event.FOUND)), ()
    order = follow(stock.order, Event.FOUND_NONE)
    return replace(stock, order=order, looked_at=now, begun=0), ()


def returned(stock: Stock, job: Finished) -> Stepped:
    """A handler has returned, and its messages are left to the fetcher. Their credit comes back at
    once, as they are acknowledged before others are taken."""
    returned = {each.token: stock.running[each.token] for each in job.deliveries}
    stock = replace(
        stock,
        running=_without(stock.running, returned.keys()),
        settling={**stock.settling, **returned},
        finished=(*stock.finished, job),
    )
    return stock, (Released(job.deliveries, (), began=True),)


def unsettled(stock: Stock, jobs: Sequence[Finished]) -> Stepped:
    """Jobs could not be acknowledged, and are to be once more."""
    return replace(stock, finished=(*stock.finished, *jobs)), ()


def ended(stock: Stock, deliveries: Sequence[Delivery]) -> Stepped:
    """Messages that had begun are settled, or given up."""
    tokens = {*map(token_of, deliveries)}
    held = [each for each in deliveries if each.token in stock.running]
    stock = replace(
        stock,
        running=_without(stock.running, tokens),
        settling=_without(stock.settling, tokens),
        lost=stock.lost - tokens,
    )
    return stock, (Released(held, tokens, began=True),)


def _without(held: Mapping[bytes, Delivery], tokens: Set[bytes]) -> Mapping[bytes, Delivery]:
    gone = held.keys() & tokens
    if not gone:
        return held
    # Copied and cut: with a thousand handlers, to build it anew would cost each message more than
    # all else.
    left = {**held}
    for token in gone:
        del left[token]
    return left


def freed(stock: Stock, pace: float | None = None) -> Stepped:
    """A handler is free again, after so many seconds for each message of this queue, if any."""
    if pace is not None and stock.pace is not None:
        pace = stock.pace + (pace - stock.pace) / 8
    pace = stock.pace if pace is None else pace
    return replace(stock, supply=follow(stock.supply, Event.FREED), pace=pace), ()


def renewed(stock: Stock, deliveries: Sequence[Delivery]) -> Stepped:
    """Leases end later. What is cancelled of it, and waits, goes back, and so ends."""
    new = {each.token: each for each in deliveries}

    def of(held: Delivery) -> Delivery:
        found = new.get(held.token, held)
        # What was cancelled stays so: an extension from before that may be told of later.
        return replace(found, cancelled=True) if held.cancelled > found.cancelled else found

    stock = replace(
        stock,
        waiting=tuple(map(of, stock.waiting)),
        running={token: of(each) for token, each in stock.running.items()},
        settling={token: of(each) for token, each in stock.settling.items()},
    )
    return _give_back(stock, [each for each in stock.waiting if each.cancelled])


def cancelled(stock: Stock, tokens: Set[bytes]) -> Stepped:
    """Messages are known to have been cancelled."""
    found = [each for each in stock.held if each.token in tokens]
    return renewed(stock, [replace(each, cancelled=True) for each in found])


def watched(stock: Stock, now: float) -> Stepped:
    """A watch has been armed that tells of cancellations."""
    return replace(stock, watched=now), ()


def unwatched(stock: Stock, at: float) -> Stepped:
    """That watch has fired, or failed: look at a moment, but not too often. Each look answers for
    all that was cancelled until then."""
    check_at = max(at, stock.watched + PACE_SECONDS)
    return replace(stock, watched=math.inf, check_at=check_at), ()


def unchecked(stock: Stock, at: float) -> Stepped:
    """A look has failed: try again at a moment."""
    return replace(stock, check_at=at), ()


def lost(stock: Stock, tokens: Set[bytes]) -> Stepped:
    """Leases are gone."""
    # Kept as lost while its handler runs, so that nothing extends or settles it.
    begun = tokens & (stock.running.keys() | stock.settling.keys())
    return _take_out(replace(stock, lost=stock.lost | begun), tokens)


def waited(stock: Stock, before: float, ahead_before: float) -> Stepped:
    """All handlers are busy: what was taken before a moment goes back; and before a later one what
    is held only because handlers were fast."""
    least = stock.policy.window - len(stock.running) - len(stock.settling)
    old = [
        each
        for n, each in enumerate(stock.waiting)
        if stock.since[each.token] < (before if n < least else ahead_before)
    ]
    if not old or stock.supply in UNDER_WAY:
        return stock, ()
    # Its pace was that of fast handlers: until one is free again, nothing is taken ahead.
    supply = follow(stock.supply, Event.GAVE_UP)
    return _give_back(replace(stock, supply=supply, pace=None), old)


def credited(stock: Stock) -> Stepped:
    """There is more credit."""
    return replace(stock, supply=follow(stock.supply, Event.CREDITED)), ()


def rung(stock: Stock, at: float, number: int | None = None) -> Stepped:
    """Something may have become ready: fetch at a moment at the latest. number: of the fetch that
    armed a watch, which says nothing about what a later one has left."""
    if number not in (None, stock.fetches):
        return stock, ()
    return replace(stock, fetch_at=min(stock.fetch_at, at)), ()


def stopped(stock: Stock) -> Stepped:
    """Fetch no more, and give back what waits."""
    left = replace(stock, supply=follow(stock.supply, Event.STOPS))
    return _give_back(left, stock.waiting)


def abandoned(stock: Stock) -> Stepped:
    """Give back what runs: its handlers are waited for no more, and settle nothing."""
    back = [*stock.running.values()]
    stock, actions = ended(stock, back)
    return stock, (*actions, GiveBack(back)) if back else actions


def _give_back(stock: Stock, deliveries: Sequence[Delivery]) -> Stepped:
    if not deliveries:
        return stock, ()
    stock, released = _take_out(stock, {*map(token_of, deliveries)})
    return stock, (*released, GiveBack(deliveries))


def _take_out(stock: Stock, tokens: Set[bytes]) -> Stepped:
    """Messages that wait are in the queue again, or lost."""
    gone = [each for each in stock.waiting if each.token in tokens] if tokens else ()
    if not gone:
        return stock, ()
    waiting = tuple(each for each in stock.waiting if each.token not in tokens)
    released = Released(gone, {*map(token_of, gone)}, began=False)
    return replace(stock, waiting=waiting), (released,)
