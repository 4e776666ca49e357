"""What users give and get: durations, options, deliveries, and clear errors for anything else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import tenacity

import fdbqueue
from fdbqueue import Delivery, Depth, NewMessage, Queue, Retry, Run, Snooze, Take, Worker
from fdbqueue.errors import InvalidArgument, InvalidInput, InvalidOptions
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace

pytestmark = pytest.mark.queue()

MINUTE = timedelta(minutes=1)


def one(db: Database, queue: Queue) -> Delivery:
    queue.enqueue(db, b"a")
    return take(db, queue)


# -- durations --------------------------------------------------------------------------------


def delayed(db: Database, queue: Queue, minute: Any) -> float:
    found = queue.get(db, queue.enqueue(db, b"a", delay=minute))
    assert found is not None
    assert found.due_at_ms is not None
    return found.due_at_ms / 1000


def living(db: Database, queue: Queue, minute: Any) -> float:
    queue.enqueue_many(db, [NewMessage(b"a", ttl=minute)])
    (message,) = queue.peek(db)
    assert message.expires_at_ms is not None
    return message.expires_at_ms / 1000


def leased(db: Database, queue: Queue, minute: Any) -> float:
    queue.enqueue(db, b"a")
    delivery = take(db, queue, lease=minute)
    return delivery.expires_at_ms / 1000


def subscribed(db: Database, queue: Queue, minute: Any) -> float:
    subscription = queue.subscriptions.open(db, "all", selector="TRUE")
    queue.enqueue(db, b"a")
    delivery = take(db, subscription, lease=minute)
    return delivery.expires_at_ms / 1000


def extended(db: Database, queue: Queue, minute: Any) -> float:
    return queue.extend(db, one(db, queue), minute).expires_at_ms / 1000


def released(db: Database, queue: Queue, minute: Any) -> float:
    delivery = one(db, queue)
    queue.release(db, delivery, delay=minute)
    found = queue.get(db, delivery.id)
    assert found is not None
    assert found.due_at_ms is not None
    return found.due_at_ms / 1000


@pytest.mark.parametrize("until", [delayed, living, leased, subscribed, extended, released])
def test_a_timedelta_is_as_good_as_seconds(
    db: Database,
    queue: Queue,
    clock: ManualClock,
    until: Callable[[Database, Queue, Any], float],
) -> None:
    now = clock.wall_ms() / 1000
    assert 50 < until(db, queue, MINUTE) - now < 90


def test_options_are_timedeltas_as_well(db: Database, space: Subspace) -> None:
    queue = Queue.create(
        db,
        "orders",
        root=space,
        lease=MINUTE,
        dedup_window=MINUTE,
        auto_delete=MINUTE,
        history_seconds=2 * MINUTE,
    )
    options = queue.options(db)
    assert (options.lease, options.dedup_window, options.auto_delete) == (60, 60, 60)
    assert options.history_seconds == 120
    assert queue.set_options(db, lease=2 * MINUTE).lease == 120
    assert Queue.open(db, "orders", root=space, lease=2 * MINUTE).name == "orders"


def test_backoff_and_retries_take_timedeltas(db: Database, queue: Queue) -> None:
    for backoff in (tenacity.wait_fixed(MINUTE), {"wait": "wait_fixed", "seconds": MINUTE}):
        stored = queue.set_options(db, backoff=backoff).backoff
        assert stored == {"wait": "wait_fixed", "seconds": 60.0}
    assert Retry(seconds=MINUTE).seconds == Snooze(MINUTE).seconds == 60


def test_waiting_takes_timedeltas(db: Database, queue: Queue) -> None:
    moment = timedelta(milliseconds=1)
    assert queue.receive(db, wait=moment) is None
    assert list(queue.consume(db, wait=moment)) == []
    assert queue.line.collect(db, queue.line.request(db, lease=MINUTE), wait=moment) == []
    subscription = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    assert subscription.receive(db, wait=moment) is None
    assert queue.subscriptions.open(db, "all", mode="browse").browse(db, wait=moment) == []
    queue.enqueue(db, b"a", room=moment)
    queue.streams.importer("file").enqueue(db, [b"b"], since=b"", until=b"1", room=moment)
    assert Worker(db, shutdown=MINUTE).add(
        queue, print, take=Take(lease=MINUTE), run=Run(transactional=False)
    )
    assert queue.depth(db).ready == 2


@pytest.mark.parametrize("bad", [timedelta(seconds=-1), timedelta.max, "soon", True, float("nan")])
def test_a_time_that_is_none_is_refused_before_anything_happens(
    db: Database, store: str, queue: Queue, bad: Any
) -> None:
    with pytest.raises(InvalidInput):
        queue.enqueue(db, b"a", delay=bad)
    with pytest.raises(InvalidInput):
        queue.receive(db, lease=bad)
    with pytest.raises(InvalidInput):
        fdbqueue.open(store, timeout=bad if bad != timedelta.max else -1)
    if bad != timedelta.max:
        with pytest.raises(InvalidInput):
            queue.receive(db, wait=bad)
        with pytest.raises(InvalidInput):
            queue.enqueue(db, b"a", room=bad)
    assert queue.depth(db) == Depth()


# -- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("max_attempt", "max_attempts"),
        ("when_ful", "bounds.when_full"),
        ("serialiser", "serializer"),
    ],
)
def test_a_misspelt_option_is_told_the_one_that_was_meant(
    db: Database, space: Subspace, queue: Queue, misspelt: str, meant: str
) -> None:
    given: dict[str, Any] = {misspelt: 3}
    for call in (Queue.create, Queue.open):
        with pytest.raises(InvalidOptions, match=f"'{misspelt}': unknown; did you mean '{meant}'"):
            call(db, "other", root=space, **given)
    with pytest.raises(InvalidOptions, match="did you mean"):
        queue.set_options(db, **given)


# -- deliveries -------------------------------------------------------------------------------


def test_what_is_no_delivery_cannot_be_settled_and_is_told_why(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    (message,) = queue.peek(db)
    wrong: list[tuple[Any, str]] = [
        (message, rf"'{message.id}', .*: give the Delivery that receive returned, not Message"),
        (None, "there is no delivery: receive returned None"),
        (b"token", "get the delivery of a token by Queue.admin.delivery"),
        ("some id", "delivery='some id': give the Delivery that receive returned, not str"),
    ]
    for given, told in wrong:
        for settle in (queue.ack, queue.release, queue.extend):
            with pytest.raises(InvalidArgument, match=told):
                settle(db, given)
        with pytest.raises(InvalidArgument, match=told):
            queue.reject(db, given, "no")
        with pytest.raises(InvalidArgument, match=told):
            queue.receive(db, ack=[given])
    assert queue.depth(db).ready == 1
