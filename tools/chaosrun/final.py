"""The end of a run: everything is drained, and what the store still holds is written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fdbqueue
from fdbqueue import fdb
from fdbqueue.schema.keys import Kind, QueueKeys
from fdbqueue.store import world

from . import groups
from .actors import row
from .history import Recorder
from .place import BROWSERS, FILTERS, QUEUES, Place

ORPHANS = (
    Kind.REQUEST,
    Kind.LINE,
    Kind.LEASE,
    Kind.UNTIL,
    Kind.EXPIRY,
    Kind.CONSUMER,
    Kind.STATE,
    Kind.SLEEPER,
    Kind.GUARD,
    Kind.DELAYED,
    Kind.WAITING,
    Kind.SLOT,
    Kind.WINDOW,
    Kind.BACKLOG,
)
DRAINER = "drain.0"
PATIENCE = 300.0


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


def drain(place: Place, recorder: Recorder) -> None:
    """See every browser to the end, and take everything that is left."""
    for name in BROWSERS:
        look_to_the_end(place, name)
    for name, queue in place.queues.items():
        deadline = world.monotonic() + PATIENCE
        while True:
            queue.admin.sweep(place.db)
            n = recorder.begin(DRAINER, "receive", name, wait=0.1, limit=100, drains=True)
            held = queue.receive_many(place.db, 100, wait=0.1)
            recorder.end(DRAINER, n, result=[row(one) for one in held])
            if held:
                tags = [one.payload.decode() for one in held]
                n = recorder.begin(DRAINER, "ack", name, tags=tags)
                queue.ack(place.db, held)
                recorder.end(DRAINER, n)
            depth = queue.depth(place.db)
            # The last look finds nothing: it has waited, and so has done away with dead leaders.
            # What an extension left of a lease that was being settled goes when it falls due.
            over = depth.ready == depth.leased == depth.delayed == 0
            if not held and over and not _count(place, queue._keys.kind(Kind.EXPIRY)):
                break
            if world.monotonic() > deadline:
                recorder.note(DRAINER, "stuck", name, depth=str(depth))
                break
        while queue.admin.evict(place.db):
            pass
        if name == "filtered":
            for taker in FILTERS:
                assert queue.subscriptions.open(place.db, taker).receive(place.db) is None


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
    called = groups.callbacks(place)
    for name, queue in place.queues.items():
        depth = queue.depth(place.db)
        verified = queue.admin.verify(place.db)
        recorder.note(
            "store",
            "final",
            name,
            depth={each: getattr(depth, each) for each in depth.__match_args__},
            dead=[
                [one.message.payload.decode(), one.death.reason, one.death.attempts]
                for one in _letters(place, name)
            ],
            deviations=[*map(str, verified.deviations), *groups.wrong(place, queue, called)],
            unchecked=list(verified.unchecked),
            orphans=_orphans(place, name),
        )
        if QUEUES[name].get("history_seconds"):
            _events(place, recorder, name)


def _letters(place: Place, name: str) -> list[fdbqueue.DeadMessage]:
    return list(place.queues[name].dead.list(place.db, limit=10_000))


def _orphans(place: Place, name: str) -> dict[str, int]:
    keys: QueueKeys = place.queues[name]._keys

    found = {kind.name: _count(place, keys.kind(kind)) for kind in ORPHANS}
    found["LEADER"] = _count(place, slice(keys.line.led, keys.line.leader + b"\0"))
    return {kind: number for kind, number in found.items() if number}


def _count(place: Place, every: slice) -> int:
    return len(list(place.db.get_range(every.start, every.stop, limit=1000)))


def _events(place: Place, recorder: Recorder, name: str) -> None:
    after = b""
    while events := place.queues[name].history(place.db, 2_000, after):
        rows: list[list[Any]] = [[one.transition, one.id, one.attempt, one.at_ms] for one in events]
        recorder.note("store", "events", name, rows=rows)
        after = events[-1].stamp
