"""A machine whose wall clock is wrong destroys nothing and blocks nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

import fdbqueue
from fdbqueue import Depth, Queue
from fdbqueue.store import world
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.schemes import forced
from tests.taking import take

pytestmark = pytest.mark.queue(max_attempts=9)

DAY = 86_400.0
INEXACT = 10.0
"""Seconds by which two times of a cluster may differ: its notes have whole seconds, and versions
of a busy server are some seconds early or late."""

Elsewhere = Callable[[float], Queue]


@pytest.fixture
def elsewhere(space: fdb.Subspace) -> Elsewhere:
    """The queue, on a machine whose clock is so many seconds ahead."""
    return lambda ahead: Queue("orders", root=space, clock=ManualClock(wall_only=ahead))


def taken(db: fdb.Database, queue: Queue) -> Counter[bytes]:
    """What can be taken now, one by one."""
    deliveries = iter(lambda: queue.receive(db, lease=10), None)
    return Counter(delivery.payload for delivery in deliveries if delivery is not None)


def test_a_clock_within_a_minute_of_the_databases_is_believed(db: fdb.Database) -> None:
    for off in (-50.0, 0.0, 50.0):
        clock = ManualClock(wall_only=off)
        assert abs(clock.now_ms(db) - clock.wall_ms()) < 5_000


@pytest.mark.parametrize("off", [-DAY, 2 * DAY])
def test_another_clock_is_replaced_by_the_databases(db: fdb.Database, off: float) -> None:
    told = ManualClock(wall_only=off).now_ms(db)

    assert abs(told - time.time() * 1000) < 15_000


def test_a_program_that_replaces_the_clock_is_not_believed(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that lives for a day
    queue.enqueue(db, b"a", ttl=DAY)
    real = time.time_ns
    # When the clock of the process steps two days ahead
    monkeypatch.setattr(world, "time_ns", lambda: real() + int(2 * DAY * 1e9))
    # Then it is delivered, and to be acknowledged
    plain = Queue("orders", root=space)
    found = take(db, plain)
    plain.ack(db, found)


@pytest.mark.parametrize("scheme", ["first", "staged"])
def test_a_receiver_two_days_ahead_drops_nothing(
    db: fdb.Database, queue: Queue, elsewhere: Elsewhere, scheme: str
) -> None:
    forced(queue, scheme)
    queue.enqueue_many(db, [fdbqueue.NewMessage(b"a", ttl=DAY) for _ in range(5)])
    wrong = elsewhere(2 * DAY)

    assert wrong.admin.sweep(db).expired == 0
    taken = [wrong.receive(db) for _ in range(3)]
    assert len(wrong.receive_many(db, 2)) == 2
    assert None not in taken
    assert queue.depth(db).expired == 0


def test_a_browser_two_days_ahead_sees_what_lives(
    db: fdb.Database, queue: Queue, elsewhere: Elsewhere
) -> None:
    queue.enqueue(db, b"a", ttl=DAY)
    wrong = elsewhere(2 * DAY)

    assert [message.payload for message in wrong.browse(db)] == [b"a"]


@pytest.mark.parametrize("off", [-2 * DAY, 2 * DAY])
def test_what_a_machine_with_a_wrong_clock_enqueues_lives_and_waits_as_long_as_it_says(
    db: fdb.Database, queue: Queue, clock: ManualClock, elsewhere: Elsewhere, off: float
) -> None:
    wrong = elsewhere(off)
    wrong.enqueue(db, b"later", delay=100)
    wrong.enqueue(db, b"brief", ttl=200)

    assert taken(db, queue) == {b"brief": 1}
    clock.seconds += 100 + INEXACT
    assert taken(db, queue) == {b"brief": 1, b"later": 1}
    clock.seconds += 100 + INEXACT
    assert taken(db, queue) == {b"later": 1}
    assert queue.depth(db).expired == 1


def test_a_receiver_two_days_behind_delivers_nothing_that_is_over(
    db: fdb.Database, queue: Queue, clock: ManualClock, elsewhere: Elsewhere
) -> None:
    queue.enqueue(db, b"a", ttl=5)
    wrong = elsewhere(-2 * DAY)
    clock.seconds = 6
    wrong._clock.seconds = 6  # type: ignore[attr-defined]

    assert wrong.receive(db) is None
    assert queue.depth(db).expired == 1


@pytest.mark.parametrize("off", [-2 * DAY, 2 * DAY])
def test_leases_of_a_machine_with_a_wrong_clock_lapse_when_they_should(
    db: fdb.Database, queue: Queue, clock: ManualClock, elsewhere: Elsewhere, off: float
) -> None:
    # Given leases of a machine whose clock is wrong, which dies, and one of another
    wrong = elsewhere(off)
    queue.enqueue_many(db, [b"theirs"] * 20 + [b"ours"])
    assert len(wrong.receive_many(db, 20, lease=30)) == 20
    assert queue.receive(db, lease=30) is not None
    # Then none lapses before its time, whoever looks
    for seconds in (0, 30 - INEXACT):
        clock.seconds = seconds
        assert queue.receive(db) is None
        wrong._clock.seconds = seconds  # type: ignore[attr-defined]
        assert wrong.receive(db) is None
    # And all do after it
    clock.seconds = 30 + 10 + INEXACT  # One that was taken alone rests.
    assert taken(db, queue) == {b"theirs": 20, b"ours": 1}
    assert queue.depth(db) == Depth(enqueued=21, leased=21)
