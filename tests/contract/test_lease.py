from __future__ import annotations

from collections.abc import Callable

import pytest

from fdbqueue import Depth, Queue
from fdbqueue.errors import InvalidArgument, InvalidOptions, LeaseLost
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values import backoff
from tests.consumers import woken
from tests.schemes import forced
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace

pytestmark = pytest.mark.queue(max_attempts=2, lease=60)


def test_an_effect_commits_together_with_its_ack(
    db: Database, queue: Queue, space: Subspace
) -> None:
    queue.enqueue(db, b"invoice")
    delivery = take(db, queue)
    effect = space.pack(("effect",))

    @fdb.transactional
    def charge(tr: fdb.Transaction) -> None:
        tr[effect] = delivery.payload
        queue.ack(tr, delivery)

    charge(db)
    assert db[effect] == b"invoice"
    with pytest.raises(LeaseLost, match=delivery.id):
        charge(db)
    assert queue.depth(db) == Depth(enqueued=1, done=1)


@pytest.mark.promise(3)
def test_a_released_message_returns_to_its_place(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b", b"c"])
    delivery = take(db, queue)
    queue.release(db, delivery)
    assert [m.payload for m in queue.peek(db, 9)] == [b"a", b"b", b"c"]
    again = take(db, queue)
    assert (again.id, again.attempt) == (delivery.id, 1), "giving back is no failed attempt"
    with pytest.raises(LeaseLost):
        queue.release(db, delivery)


def test_a_lapsed_lease_returns_after_a_rest_and_fences_its_holder(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    lost = take(db, queue)
    clock.seconds += 61
    following = take(db, queue)
    assert following.id != lost.id
    clock.seconds += 10
    again = take(db, queue)
    assert (again.id, again.attempt, again.message.deaths) == (lost.id, 1, 1)
    for settle in (queue.ack, queue.release, queue.extend):
        with pytest.raises(LeaseLost):
            settle(db, lost)
    queue.ack(db, again)
    assert queue.depth(db) == Depth(enqueued=2, leased=1, done=1)


def test_neither_clock_alone_can_end_a_lease(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue(db, b"a")
    delivery = take(db, queue)
    clock.wall_only = 3600
    assert queue.receive(db) is None, "the reaper's wall clock is an hour ahead"
    clock.wall_only, clock.seconds = -3600, 3600
    assert queue.receive(db) is None, "the database's version has jumped by an hour"
    queue.ack(db, delivery)


def test_an_extended_lease_lives_on(db: Database, queue: Queue, clock: ManualClock) -> None:
    queue.enqueue(db, b"a")
    delivery = take(db, queue)
    clock.seconds += 50
    extended = queue.extend(db, delivery)
    assert extended.expires_at_ms >= delivery.expires_at_ms + 49_000
    clock.seconds += 50
    assert queue.receive(db) is None
    queue.ack(db, extended)
    assert queue.depth(db) == Depth(enqueued=1, done=1)


@pytest.mark.promise(5)
def test_what_kills_three_consumers_becomes_a_dead_letter_and_uses_no_attempt(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    # Given a message that has failed once, of two attempts
    queue.enqueue(db, b"a")
    first = take(db, queue)
    queue.release(db, first, error="broken", delay=0)
    # When two consumers die of it, it rests longer each time
    for rest in (10, 20):
        delivery = take(db, queue)
        assert delivery.attempt == 2
        clock.seconds += 60 + rest - 1
        assert queue.receive(db) is None
        clock.seconds += 2
    # And when a third does, it is dead
    delivery = take(db, queue)
    assert (delivery.attempt, delivery.message.deaths) == (2, 2)
    assert (delivery.message.last_error or "").startswith("killed 2 processes")
    assert queue.count(db, states="leased", match="deaths = 2 AND JMSDeliveryCount = 3").taken == 1
    clock.seconds += 61
    assert queue.receive(db) is None
    (letter,) = queue.dead.list(db)
    assert letter.death.reason.startswith("killed 3 processes")
    assert (letter.death.attempts, letter.message.deaths) == (1, 3)
    # When it is redriven, then nothing of that counts
    queue.retry(db)
    again = take(db, queue)
    assert (again.attempt, again.message.deaths) == (1, 0)


def test_a_single_attempt_is_not_used_up_by_a_death(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(
        db, "q", root=space, clock=clock, lease=60, max_attempts=1, max_deaths=None
    )
    queue.enqueue(db, b"a")
    for deaths in range(12):
        delivery = take(db, queue)
        assert (delivery.attempt, delivery.message.deaths) == (1, deaths)
        clock.seconds += 60 + 601
    delivery = take(db, queue)
    queue.release(db, delivery, error="broken")
    assert [each.death.reason for each in queue.dead.list(db)] == ["broken"]


def test_waiting_ends_as_soon_as_a_message_arrives(db: Database, queue: Queue) -> None:
    assert woken(db, queue, lambda: queue.enqueue(db, b"here")) == [b"here"]


def test_waiting_inside_a_transaction_is_refused(db: Database, queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="with a database"):
        queue.receive(db.create_transaction(), wait=1)


@pytest.mark.parametrize("lease", [0, -1, "soon", float("inf")])
def test_a_lease_time_that_makes_no_sense_is_refused(
    db: Database, queue: Queue, lease: object
) -> None:
    with pytest.raises(InvalidOptions, match="seconds"):
        queue.receive(db, lease=lease)  # type: ignore[call-overload]


def test_many_leases_of_a_clock_that_is_ahead_do_not_hold_up_those_that_lapse(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    # Given more leases than one look returns, of a consumer whose clock is almost a minute ahead
    ahead = Queue(queue.name, queue._root, clock=ManualClock(wall_only=50))
    queue.enqueue_many(db, [b"theirs"] * 250 + [b"ours"])
    assert len(ahead.receive_many(db, 250)) == 250
    # And one that began, and ends, later
    assert queue.receive(db, lease=61) is not None
    # When both have lapsed by the version, and one of them by the wall clock too
    clock.seconds += 75
    # Then that one comes back
    again = take(db, queue)
    assert (again.payload, again.message.deaths) == (b"ours", 1)


def test_only_a_message_that_was_handed_over_alone_counts_the_death_of_its_consumer(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    # Given a message that kills whoever handles it, among others
    queue = Queue.create(db, "q", root=space, max_deaths=2, lease=60, clock=clock)
    queue.enqueue_many(db, [b"1", b"2", b"poison", b"3", b"4"])
    done: list[bytes] = []
    deaths = 0
    # When consumers take batches, handle them in order, and die of it
    while queue.depth(db).dead == 0:
        while found := queue.receive_many(db, 10):
            if any(one.payload == b"poison" for one in found):
                break
            queue.ack(db, found)
            done += [one.payload for one in found]
        if found:
            deaths += 1
            clock.seconds += 90
            queue.admin.sweep(db)
    while found := queue.receive_many(db, 10):
        queue.ack(db, found)
        done += [one.payload for one in found]
    # Then it alone becomes a dead letter, after its deaths and the batch in which it hid
    assert done == [b"1", b"2", b"3", b"4"]
    assert deaths == 3
    (letter,) = queue.dead.list(db)
    assert (letter.message.payload, letter.message.deaths) == (b"poison", 2)


@pytest.mark.parametrize("scheme", ["first", "staged"])
def test_what_comes_back_from_a_lost_batch_comes_one_by_one(
    db: Database, space: Subspace, clock: ManualClock, scheme: str
) -> None:
    queue = forced(Queue.create(db, "q", root=space, lease=60, clock=clock), scheme)
    queue.enqueue_many(db, [b"1", b"2"])
    assert sum(len(queue.receive_many(db, 2)) for _ in range(2)) == 2
    clock.seconds += 61
    queue.enqueue_many(db, [b"3", b"4"])
    found = [queue.receive_many(db, 4), queue.receive_many(db, 4), queue.receive_many(db, 4)]
    assert sorted(map(len, found)) in ([1, 1, 2], [0, 1, 3])
    assert all(not one.message.redelivered or len(batch) == 1 for batch in found for one in batch)
    assert {one.attempt for batch in found for one in batch if len(batch) > 1} <= {1}


def test_a_slow_batch_is_kept_between_its_messages(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(10)])
    handled = []
    for delivery in queue.consume(db, max_messages=10):
        handled.append(delivery.payload)
        clock.seconds += 25
        queue.admin.sweep(db)
        assert queue.depth(db).leased == 10
    assert handled == [b"%d" % n for n in range(10)]
    assert queue.depth(db) == Depth(enqueued=10, done=10)


def test_by_default_a_failing_message_rests_longer_and_longer_and_is_given_up_after_days(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "q", root=space, clock=clock)
    queue.enqueue(db, b"a")
    for attempt in range(1, 15):
        delivery = take(db, queue)
        assert delivery.attempt == attempt
        queue.release(db, delivery, error="downstream is away")
        clock.seconds += 2.0 ** (attempt - 1) - 1
        assert queue.receive(db) is None
        clock.seconds += 2.0 ** (attempt - 2) + 1.5
    assert queue.depth(db).dead == 0
    options = queue.options(db)
    assert options.max_attempts is not None

    def total(draw: Callable[[float, float], float]) -> float:
        rests = range(1, options.max_attempts or 0)
        return sum(backoff.delay_seconds(options.backoff, n, draw) for n in rests)

    # What docs/delivery.md says of it
    days = 86_400
    assert 2.25 * days < total(min) < 2.3 * days
    assert 3.3 * days < total(max) < 3.4 * days


def test_a_leased_message_is_delivered_to_nobody_else(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    first, second, third = queue.receive(db), queue.receive(db), queue.receive(db)
    assert first is not None
    assert second is not None
    assert (first.payload, second.payload, third) == (b"a", b"b", None)
    assert first.token != second.token


def test_a_batch_is_leased_in_order_and_settled_as_one(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(5)])
    found = queue.receive_many(db, 3)
    assert [d.payload for d in found] == [b"0", b"1", b"2"]
    queue.ack(db, found[1])
    with pytest.raises(LeaseLost):
        queue.ack(db, found)
    assert queue.depth(db).leased == 2, "a batch with one lost lease settles nothing"
    queue.ack(db, [found[0], found[2]])
    assert queue.depth(db) == Depth(enqueued=5, ready=2, done=3, ready_bytes=2)


@pytest.mark.parametrize("knows", [True, False])
def test_what_an_extension_leaves_behind_is_removed_when_it_is_due(
    db: Database, queue: Queue, clock: ManualClock, knows: bool
) -> None:
    queue.enqueue(db, b"a")
    delivery = queue.receive(db)
    assert delivery is not None
    clock.seconds += 1
    extended = queue.extend(db, delivery)

    def left() -> list[int]:
        kinds = (QueueKeys.lease, QueueKeys.until, QueueKeys.expiry)
        ranges = [queue._keys.kind(kind) for kind in kinds]
        return [len(db.get_range(every.start, every.stop)) for every in ranges]

    queue.ack(db, extended if knows else delivery)
    assert left() == [0, 0, 0 if knows else 1]
    assert queue.admin.verify(db).ok
    clock.seconds += 61
    assert queue.receive(db) is None
    assert left() == [0, 0, 0]
    assert queue.depth(db) == Depth(enqueued=1, done=1)


def test_leases_settled_together_are_read_with_others_between_them(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    # Given a batch with two messages of another behind each of its own, some of them extended
    ids = queue.enqueue_many(db, [b"%d" % n for n in range(120)])
    first = queue.receive_many(db, 120)
    kept = first[::3]
    given_back = [each for each in first if each not in kept]
    queue.release(db, given_back, delay=0)
    second = queue.receive_many(db, 80)
    assert {each.id for each in [*kept, *second]} == {*ids}
    queue.extend(db, kept[:30], 90)
    # When one of them is settled by itself, then together they are not
    queue.ack(db, kept[7])
    with pytest.raises(LeaseLost) as lost:
        queue.ack(db, kept)
    assert lost.value.message_id == kept[7].id
    with pytest.raises(LeaseLost):
        queue.ack(db, given_back)
    assert queue.depth(db) == Depth(enqueued=120, leased=119, done=1)
    # And the rest is settled, each once, whatever expires afterwards
    queue.ack(db, [each for each in kept if each is not kept[7]])
    queue.ack(db, second)
    assert queue.depth(db) == Depth(enqueued=120, done=120)
    clock.seconds += 1_000
    assert queue.receive(db) is None
    assert queue.admin.verify(db).ok


def test_waiting_for_nothing_ends_in_time_and_leaves_no_trace(
    db: Database, queue: Queue, space: Subspace
) -> None:
    def stored() -> list[bytes]:
        found = db.get_range(space.range().start, space.range().stop)
        return [kv.key for kv in found if not kv.key.startswith(queue._keys.once.prefix)]

    before = stored()
    assert queue.receive(db, wait=0.05) is None
    assert stored() == before, "but for the record of a commit, which is swept later"


@pytest.mark.parametrize("scheme", ["first", "auto"])
def test_a_large_message_that_dies_elsewhere_leaves_room_for_a_large_batch(
    db: Database, space: Subspace, clock: ManualClock, scheme: str
) -> None:
    # Given 8 MB whose last lease has lapsed, which go to another queue, and 7 MB that are ready
    dead = Queue.create(db, "dead", root=space, clock=clock)
    queue = forced(Queue.create(
        db, "large", root=space, clock=clock, max_deaths=1, lease=60,
        dead_letter_queue="dead",
    ), scheme)  # fmt: skip
    queue.enqueue(db, bytes(8_000_000))
    assert queue.receive(db) is not None
    for _ in range(4):
        queue.enqueue_many(db, [bytes(88_000)] * 20)
    clock.seconds += 61

    # When they are received
    found = queue.receive_many(db, 80)

    # Then some are, and the others follow
    assert found
    assert dead.depth(db).ready == 1
    while more := queue.receive_many(db, 80):
        found += more
    assert len(found) == 80
