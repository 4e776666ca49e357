"""The end of a run: everything is drained, and what the store still holds is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import asdict

import fdbqueue
from fdbqueue import DeadMessage, MessageState, Queue, fdb, list_queues
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.schema.leases import unpack_expiry
from fdbqueue.store import world

from . import groups, sources
from .clients import row
from .features import astray, tidy
from .history import Recorder
from .place import BROWSERS, FILTERS, KEYS, LIMITS, MADE, QUEUES, SLOTS, Place

ORPHANS = (
    QueueKeys.led,
    QueueKeys.lease,
    QueueKeys.until,
    QueueKeys.consumer,
    QueueKeys.state,
    QueueKeys.sleeper,
    QueueKeys.guard,
    QueueKeys.delayed,
    QueueKeys.waiting,
    QueueKeys.slot,
    QueueKeys.window,
    QueueKeys.backlog,
)
DRAINER = "drain.0"
PATIENCE = 600.0
"""Seconds after which what is left is stuck."""
PAUSE_SECONDS = 5.0
"""How long to wait where nothing can be taken, and something is left."""
LOOKED_SECONDS = 60.0
"""Within so long, by any clock, somebody has looked at each queue."""
LOOKED_AT = 100
"""Messages of a queue that are compared with what they were when they were enqueued."""
TRIED = ("ready", "waiting", "retrying")
"""The states of messages that may have failed, and are to come again."""
DUE_MS = 2_000
"""Longer than it takes to ask a queue."""
DEAD_SECONDS = 45.0
"""After so long nothing is held by a worker that was killed, whatever befell the others."""


def look_at_the_dead(place: Place, recorder: Recorder, killed: Mapping[str, float]) -> None:
    """Write down what killed workers still hold, while others work. killed: by process, when."""
    now = world.monotonic()
    long_dead = {name for name, at in killed.items() if now - at > DEAD_SECONDS}
    for one in place.queues["worked"].admin.leases(place.db):
        process = one.consumer.rpartition(".")[0]
        if process in long_dead:
            held, since = one.delivery.id, round(now - killed[process])
            recorder.note(DRAINER, "stuck", "worked", held=held, by=one.consumer, dead_for=since)


def audit(place: Place, names: Sequence[str] | None = None, *, at_rest: bool = False) -> list[str]:
    """What ``verify`` finds, at one moment.

    names: of the queues to look at; None for all. at_rest: whether those that a killed process
    left must be gone, too.
    """
    found = []
    for queue in place.every:
        if names is not None and queue.name not in names:
            continue
        verified = queue.admin.verify(place.db)
        found += [
            f"verify: {queue.name}: {each}"
            for each in verified.deviations
            if at_rest or not each.passing
        ]
        found += [f"verify: {queue.name}: unchecked: {each}" for each in verified.unchecked]
        found += unexplained(place, queue)
        if queue.name in place.any:
            found += astray(place, queue.name, islice(queue.browse(place.db), LOOKED_AT))
    made = place.made._keys.all()
    if MADE not in list_queues(place.db, root=place.root):
        rows = place.db.get_range(made.start, made.stop, limit=1)
        found += [f"deleted: a row of {MADE} is left: {kv.key!r}" for kv in rows]
    return found + beyond_limits(place)


def unexplained(place: Place, queue: Queue) -> list[str]:
    """Messages that have failed, here or where they were before, and do not tell how."""
    waiting = (each for state in TRIED for each in queue.messages(place.db, state))
    letters = queue.dead.list(place.db)
    known: list[MessageState | DeadMessage] = [
        *islice(waiting, LOOKED_AT),
        *letters[:LOOKED_AT],
    ]
    some = [each.id for each in known if each.message.last_error is not None]
    states = [each for each in (queue.get(place.db, one) for one in some) if each is not None]
    return [
        f"attempts: {queue.name}: {each.id} failed of {each.message.last_error!r:.60}, and tells "
        f"{[one.error[:60] for one in each.failures]}"
        for each in states
        if [one.error for one in each.failures][-1:] != [each.message.last_error]
    ]


def beyond_limits(place: Place) -> list[str]:
    """Keys and limits of which more messages are out than may be, at one version each."""
    first, most = place.queues["first"], QUEUES["auto"]["keys"].concurrency
    counts = [(key, len(place.queues["auto"].keys[key].state(place.db).out), most) for key in KEYS]
    for limit in LIMITS:
        counts.append(("/".join(limit), len(first.limits[limit].state(place.db).out), SLOTS))
    return [f"limits: {name}: {out} are out of {most}" for name, out, most in counts if out > most]


def drain(place: Place, recorder: Recorder) -> None:
    """Take all that can be taken, from all queues in turns: a message of one may have what others
    wait for. Nobody sweeps; whoever receives tidies."""
    deadline = world.monotonic() + PATIENCE
    tidy(place)
    sources.tidy(place)
    for browser in BROWSERS:
        look_to_the_end(place, browser)
    while True:
        taken = 0
        for name, queue in place.queues.items():
            # A subscription does not find what it has passed by mistake.
            regions = [*FILTERS] if name == "filtered" else [None]
            while found := sum(_take(place, recorder, name, region) for region in regions):
                taken += found
            _nothing_due(place, queue)
        while found := sources.drain(place, recorder, DRAINER):
            taken += found
        _nothing_due(place, place.sourced)
        for queue in (place.mixed, place.target, place.made):
            while held := queue.receive_many(place.db, 200):
                queue.ack(place.db, held)
                taken += len(held)
            _nothing_due(place, queue)
        if not taken:
            some = [each for each in place.taken_from if _left(place, each)]
            if not some:
                break
            if world.monotonic() > deadline:
                left = [f"{each.name} {each.depth(place.db)}" for each in some]
                recorder.note(DRAINER, "stuck", left=left)
                return
            world.sleep(PAUSE_SECONDS)
    for queue in place.taken_from:
        while queue.admin.evict(place.db):
            pass
        # Who waits does away with a leader that is dead.
        queue.receive(place.db, wait=0.1)
    for taker in FILTERS:
        place.filter(taker).receive(place.db, wait=0.1)


def _nothing_due(place: Place, queue: Queue) -> None:
    """Whoever is told that a queue is empty, is when nothing is due any more."""
    since = world.time() * 1000 - DUE_MS
    later = ("retrying", "scheduled")
    for each in [one for state in later for one in queue.messages(place.db, state, 1000)]:
        if each.due_at_ms is not None and each.due_at_ms < since:
            raise AssertionError(f"false empty: {queue.name}: {each.id} has been due")


def _take(place: Place, recorder: Recorder, name: str, region: str | None) -> int:
    """Take some of a queue, or of what a subscription of it wants."""
    queue, which = place.queues[name], {} if region is None else {"region": region}
    n = recorder.begin(DRAINER, "receive", name, wait=0, limit=100, drains=True, **which)
    source = queue if region is None else place.filter(region)
    held = source.receive_many(place.db, 100)
    recorder.end(DRAINER, n, result=[row(one) for one in held])
    if held:
        tags = [one.payload.decode() for one in held]
        n = recorder.begin(DRAINER, "ack", name, tags=tags)
        queue.ack(place.db, held)
        recorder.end(DRAINER, n)
    return len(held)


def _left(place: Place, queue: Queue) -> bool:
    """Whether something of a queue may still be delivered."""
    depth = queue.depth(place.db)
    return depth.unsettled > 0


def look_to_the_end(place: Place, browser: str) -> None:
    """See a browser to its end."""

    @fdb.transactional
    def look(tr: fdb.Transaction) -> int:
        subscription = place.queues["watched"].subscriptions.open(tr, browser)
        seen = [row(message) for message in subscription.browse(tr, 100)]
        if seen:
            place.log(tr, browser, seen)
        return len(seen)

    while look(place.db):
        pass


def describe(place: Place, recorder: Recorder) -> None:
    """Write down what the store holds at the end: depths, dead letters, orphans, and the audit."""
    for who, n, value in place.marks():
        recorder.note("store", "mark", actor=who, n=n, value=value)
    for where, tag, count in place.effects():
        recorder.note("store", "effect of", where, tag=tag, count=count)
    for browser in BROWSERS:
        recorder.note("store", "seen", "watched", browser=browser, rows=place.seen(browser))
    recorder.note("store", "audit", found=audit(place, at_rest=True))
    called = groups.callbacks(place)
    for name, queue in place.queues.items():
        depth = queue.depth(place.db)
        recorder.note(
            "store",
            "final",
            name,
            depth=asdict(depth),
            dead=[
                [
                    one.message.payload.decode(),
                    one.death.reason,
                    one.death.attempts,
                    one.message.deaths,
                ]
                for one in _letters(place, name)
            ],
            groups=[*groups.wrong(place, queue, called)],
            orphans=_orphans(place, name),
        )
        if QUEUES[name].get("history_seconds"):
            _events(place, recorder, name)


def _letters(place: Place, name: str) -> list[fdbqueue.DeadMessage]:
    return list(place.queues[name].dead.list(place.db, limit=10_000))


def _orphans(place: Place, name: str) -> dict[str, int]:
    keys: QueueKeys = place.queues[name]._keys

    found = {kind.name: _count(place, keys.holding(kind)) for kind in ORPHANS}
    # What an extension leaves behind is removed by who looks once it is due.
    every, since_ms = keys.expiry.rows, (world.time() - LOOKED_SECONDS) * 1000
    ends = [unpack_expiry(kv.value)[0] for kv in place.db.get_range(every.start, every.stop)]
    found["EXPIRY"] = sum(end < since_ms for end in ends)
    found["UNTIL"] = max(0, found["UNTIL"] - len(ends) + found["EXPIRY"])
    return {kind: number for kind, number in found.items() if number}


def _count(place: Place, every: slice) -> int:
    return len(list(place.db.get_range(every.start, every.stop, limit=1000)))


def _events(place: Place, recorder: Recorder, name: str) -> None:
    after: bytes | None = b""
    while after is not None:
        events = place.queues[name].history(place.db, 2_000, after)
        rows: list[list[Any]] = [[one.transition, one.id, one.attempt, one.at_ms] for one in events]
        recorder.note("store", "events", name, rows=rows)
        after = events[-1].stamp if events else None
