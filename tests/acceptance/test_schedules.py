"""Schedules whose workers are killed, and schedules on the command line."""

from __future__ import annotations

import itertools
import time
from datetime import datetime

from fdbqueue import Queue, fdb
from fdbqueue.values.schedules import shown
from tests.acceptance.programs.ticker import FastClock
from tests.acceptance.running import Fdbq, Programs, told
from tests.patience import DEADLINE

SPEED = 200.0
EVERY = 20
KILLS = 4


def test_each_tick_comes_once_though_workers_are_killed(
    db: fdb.Database, space: fdb.Subspace, queue: Queue, programs: Programs
) -> None:
    # Given a schedule that ticks ten times a second, by clocks that run fast
    since = time.time()
    made = Queue(queue.name, space, clock=FastClock(since, SPEED)).schedules.set(
        db, "a", every=EVERY, catch_up="all"
    )
    assert made.next_ms is not None
    arguments = ("ticker.py", space.key().hex(), queue.name, since, SPEED)
    handled = space.subspace(("handled",))

    def done() -> dict[str, int]:
        every = handled.range()
        found = db.get_range(every.start, every.stop)
        return {handled.unpack(kv.key)[0]: int.from_bytes(kv.value, "little") for kv in found}

    # When its workers are killed, again and again
    tickers = [programs.start(*arguments) for _ in range(2)]
    assert [told(each) for each in tickers] == ["ready", "ready"]
    for n in range(KILLS):
        before, deadline = len(done()), time.monotonic() + DEADLINE
        while len(done()) < before + 5:
            assert time.monotonic() < deadline
        tickers[n % 2].kill()
        tickers[n % 2].wait()
        tickers[n % 2] = programs.start(*arguments)
    for each in tickers:
        each.kill()
        each.wait()

    # Then every tick up to the last was handled once, or its message waits for the end of a lease
    ticks = done()
    assert set(ticks.values()) == {1}
    last = max(datetime.fromisoformat(tick) for tick in ticks).timestamp() * 1000
    wanted = set(itertools.takewhile(lambda tick: tick <= shown(round(last)), _ticks(made.next_ms)))
    left = {str(each.delivery.message.headers["tick"]) for each in queue.admin.leases(db)}
    left |= {str(each.headers["tick"]) for each in queue.peek(db, 1_000)}
    assert set(ticks) <= wanted
    assert wanted - set(ticks) <= left
    assert not set(ticks) & left
    # A worker that was killed while it waited is listed until its session lapses.
    assert {each.kind for each in queue.admin.verify(db).deviations} <= {"consumer dead"}


def _ticks(first_ms: int) -> itertools.chain[str]:
    every = itertools.count(first_ms, EVERY * 1000)
    return itertools.chain(map(shown, every))


def test_schedules_on_the_command_line(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    assert "has no schedules" in fdbq.ok("schedule", "list", name).err
    cron = ("--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--limit", "api=stripe")
    made = fdbq.ok("schedule", "set", name, "nightly", "a report", *cron, "--overlap", "skip")
    assert made.out.startswith(
        f"schedule nightly of queue {name}: 0 3 * * * Europe/Berlin, next in"
    )
    fdbq.ok("schedule", "set", name, "poll", "--every", "90s", "--priority", "9", "--key", "p")

    # They are listed and shown
    (first, second) = fdbq.ok("schedule", "list", name, "--json").json
    assert (first["schedule"], first["payload"], first["overlap"]) == (
        "nightly",
        "a report",
        "skip",
    )
    assert (second["every"], second["priority"], second["key"]) == (90, 9, "p")
    assert first["limits"] == {"api": "stripe"}
    cut = fdbq.ok("schedule", "list", name, "--max", "1")
    assert "--after nightly" in cut.err
    shown = fdbq.ok("schedule", "show", name, "nightly", "--json").json
    assert shown["next"].endswith((":00:00.000+00:00", "Z"))
    assert fdbq("schedule", "show", name, "none").code == 1

    # Run, paused, resumed and deleted
    message_id = fdbq.ok("schedule", "run", name, "nightly").out.strip()
    assert [each.id for each in queue.peek(db)] == [message_id]
    assert "paused" in fdbq.ok("schedule", "pause", name, "nightly").out
    assert "paused" in fdbq.ok("schedule", "list", name).out
    assert "next in" in fdbq.ok("schedule", "resume", name, "nightly").out
    assert "would delete" in fdbq.ok("schedule", "delete", name, "nightly", "--dry-run").out
    fdbq.ok("schedule", "delete", name, "nightly", "--yes")
    assert [each.name for each in queue.schedules.list(db)] == ["poll"]

    # And what makes no sense is refused
    for given in (["--cron", "never"], [], ["--every", "1ms"], [*cron, "--timezone", "Mars"]):
        refused = fdbq("schedule", "set", name, "wrong", *given)
        assert refused.code == 2, given
        assert refused.err.startswith("fdbq: ")
