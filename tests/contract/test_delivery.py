"""The life of a message between its enqueue and its end, feature by feature."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import tenacity

from fdbqueue import Depth, NewMessage, Queue
from fdbqueue.errors import InvalidArgument, InvalidInput, InvalidOptions, LeaseLost, QueueNotFound
from fdbqueue.messages import history
from fdbqueue.queue.overview import survey
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.still_clock import StillClock
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace

pytestmark = pytest.mark.queue(max_attempts=3, lease=60, backoff=None)


def ready(queue: Queue, db: Database) -> list[bytes]:
    return [message.payload for message in queue.peek(db, 100)]


def stored(db: Database, queue: Queue) -> dict[bytes, bytes]:
    everything = queue._keys.all()
    records = queue._keys.once.before(2**40)
    return {
        kv.key: kv.value
        for kv in db.get_range(everything.start, everything.stop)
        if not records.start <= kv.key < records.stop
    }


# -- settlement -------------------------------------------------------------------------------


def test_a_release_with_a_delay_returns_the_message_to_its_place(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    first = take(db, queue)
    queue.release(db, first, delay=30)
    assert queue.depth(db) == Depth(enqueued=2, ready=1, scheduled=1, ready_bytes=1)
    clock.seconds += 29
    second = take(db, queue)
    assert second.payload == b"b"
    queue.release(db, second)
    clock.seconds += 1.1
    again = take(db, queue)
    assert (again.id, again.attempt) == (first.id, 1), "back before b, and the attempt is free"
    queue.ack(db, again)
    assert ready(queue, db) == [b"b"]


@pytest.mark.promise(5)
def test_a_failure_counts_keeps_its_text_and_at_the_maximum_kills(
    db: Database, queue: Queue
) -> None:
    queue.enqueue(db, b"a")
    for attempt, error in enumerate(["one", "two", "x" * 1000], 1):
        delivery = take(db, queue)
        assert delivery.attempt == attempt
        queue.release(db, delivery, error=error)
    assert queue.receive(db) is None
    (letter,) = queue.dead.list(db)
    assert letter.message.last_error == "x" * 500
    assert (letter.death.reason, letter.death.attempts) == ("x" * 500, 3)


def test_a_rejected_message_is_a_dead_letter_with_a_reason(db: Database, queue: Queue) -> None:
    message_id = queue.enqueue(db, b"a", headers={"region": "eu"})
    queue.reject(db, take(db, queue), "no such \udcff account")
    letter = queue.dead.show(db, message_id)
    assert letter is not None
    assert letter.message.headers == {"region": "eu"}
    assert letter.death.reason == "no such ? account"
    assert letter.death.queue == "orders"
    assert queue.depth(db) == Depth(enqueued=1, dead=1)


def test_a_rejected_message_can_be_dropped(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    queue.reject(db, take(db, queue), "spam", drop=True)
    assert queue.depth(db) == Depth(enqueued=1, purged=1)
    assert queue.dead.list(db) == []


def test_every_batch_settles_all_or_nothing(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(4)])
    found = queue.receive_many(db, 4)
    queue.ack(db, found[3])
    before = stored(db, queue)
    for settle in (
        lambda: queue.ack(db, found),
        lambda: queue.extend(db, found, 30),
        lambda: queue.release(db, found, delay=5),
        lambda: queue.release(db, found, error="no"),
        lambda: queue.reject(db, found, "no"),
        lambda: queue.reject(db, found, "no", drop=True),
    ):
        with pytest.raises(LeaseLost, match=found[3].id):
            settle()
    assert stored(db, queue) == before
    longer = queue.extend(db, found[:3], 600)
    assert all(d.expires_at_ms > found[0].expires_at_ms for d in longer)
    queue.release(db, longer[:2])
    queue.reject(db, longer[2:], "no")
    assert queue.depth(db) == Depth(enqueued=4, ready=2, dead=1, done=1, ready_bytes=2)


# -- redelivery -------------------------------------------------------------------------------


def test_the_backoff_of_the_queue_and_of_the_message(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    chain = tenacity.wait_chain(tenacity.wait_fixed(10), tenacity.wait_fixed(100))
    queue = Queue.create(
        db, "q", root=space, clock=clock, backoff=chain, max_attempts=None, lease=60
    )
    queue.enqueue(db, b"queue's")
    for wait in (10, 100, 100):
        queue.release(db, take(db, queue), error="no")
        clock.seconds += wait - 1
        assert queue.receive(db) is None
        clock.seconds += 1.1
    queue.ack(db, take(db, queue))
    queue.enqueue(db, b"own", backoff=tenacity.wait_fixed(5), max_attempts=2)
    queue.release(db, take(db, queue), error="no")
    clock.seconds += 5.1
    queue.release(db, take(db, queue), error="no")
    assert queue.depth(db).dead == 1


def test_a_given_delay_goes_before_the_backoff(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "q", root=space, clock=clock, backoff=tenacity.wait_fixed(100))
    queue.enqueue(db, b"a")
    queue.release(db, take(db, queue), error="no", delay=0)
    assert ready(queue, db) == [b"a"]


# -- delay and time to live -------------------------------------------------------------------


@pytest.mark.promise(5)
def test_a_delayed_message_takes_its_place_when_it_is_due(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    late = queue.enqueue(db, b"late", delay=20)
    soon = queue.enqueue(db, b"soon", delay=10)
    urgent = queue.enqueue(db, b"urgent", delay=20, priority=9)
    queue.enqueue(db, b"now")
    assert late.startswith("d-")
    assert queue.receive(db, at_most_once=True).payload == b"now"  # type: ignore[union-attr]
    assert queue.receive(db, at_most_once=True) is None, "nothing is delivered before its time"
    queue.enqueue(db, b"before")
    clock.seconds += 21
    found = queue.receive_many(db, 9)
    assert [d.payload for d in found] == [b"urgent", b"before", b"soon", b"late"]
    assert [found[0].id, found[2].id, found[3].id] == [urgent, soon, late]
    queue.ack(db, found)
    assert queue.depth(db) == Depth(enqueued=5, done=5)


def test_a_message_is_scheduled_for_a_moment(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue(db, b"past", at=datetime.now(UTC) - timedelta(days=1))
    queue.enqueue(db, b"future", at=datetime.now(UTC) + timedelta(seconds=100))
    assert ready(queue, db) == [b"past"]
    clock.seconds += 101
    assert queue.admin.sweep(db).promoted == 1
    assert ready(queue, db) == [b"past", b"future"]


def test_a_batch_for_one_moment_keeps_its_order(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=100)
    queue.enqueue_many(db, [NewMessage(b"%02d" % n, at=at) for n in range(20)])
    clock.seconds += 101
    assert queue.admin.sweep(db).promoted == 20
    assert ready(queue, db) == [b"%02d" % n for n in range(20)]


@pytest.mark.promise(5)
def test_nothing_is_delivered_after_its_time_to_live(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [NewMessage(b"%d" % n, ttl=10) for n in range(5)])
    queue.enqueue(db, b"lives")
    held = take(db, queue)
    clock.seconds += 11
    assert take(db, queue).payload == b"lives"
    assert queue.receive(db) is None
    assert queue.depth(db) == Depth(enqueued=6, leased=2, expired=4)
    queue.release(db, held)
    assert queue.depth(db) == Depth(enqueued=6, leased=1, expired=5)


def test_a_sweep_removes_what_has_expired_wherever_it_stands(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "q", root=space, clock=clock, expired="dead", lease=60)
    queue.enqueue(db, b"first")
    queue.enqueue(db, b"ready", ttl=10)
    queue.enqueue(db, b"resting", ttl=10)
    queue.enqueue(db, b"done", ttl=10, priority=9)
    queue.ack(db, take(db, queue))
    for delivery in queue.receive_many(db, 3)[::-1]:
        queue.release(db, delivery, delay=100 if delivery.payload == b"resting" else 0)
    clock.seconds += 11
    assert queue.admin.sweep(db).expired == 2
    assert {letter.message.payload for letter in queue.dead.list(db)} == {b"ready", b"resting"}
    assert queue.depth(db) == Depth(enqueued=4, ready=1, done=1, dead=2, ready_bytes=5)


# -- by id ------------------------------------------------------------------------------------


@pytest.mark.parametrize("message_id", ["", "d-", "d-00-", "xx", "09-000000000001-zz", None, 7])
def test_what_is_no_id_is_refused(db: Database, queue: Queue, message_id: Any) -> None:
    for operation in (queue.get, queue.dead.show):
        with pytest.raises(InvalidArgument, match="not a message id"):
            operation(db, message_id)
    for change in (queue.cancel, partial(queue.edit, priority=1), queue.retry, queue.purge):
        with pytest.raises(InvalidArgument, match="not a message id"):
            change(db, [message_id])


# -- pause, auto-delete, history --------------------------------------------------------------


def test_a_paused_queue_takes_and_does_not_give(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    delivery = take(db, queue)
    queue.admin.pause(db)
    queue.enqueue(db, b"b")
    assert queue.receive(db) is None
    assert queue.receive(db, wait=0.01) is None
    assert queue.receive(db, at_most_once=True) is None
    queue.ack(db, delivery)
    queue.admin.resume(db)
    assert take(db, queue).payload == b"b"


def test_a_pause_says_since_when_and_by_whom(db: Database, space: Subspace) -> None:
    clock = StillClock()
    queue = Queue.create(db, "q", root=space, clock=clock)

    def said() -> tuple[int, str] | None:
        pause = survey(db, ["q"], root=space)["q"].pause
        return None if pause is None else (pause.since_ms, pause.by)

    began = clock.wall_ms()
    queue.admin.pause(db, by="ann")
    clock.seconds += 60
    # Neither a second pause nor other options change that
    queue.admin.pause(db, by="ben")
    queue.set_options(db, lease=17)
    assert said() == (began, "ann")
    queue.admin.resume(db)
    assert said() is None
    queue.admin.pause(db)
    assert said() == (clock.wall_ms(), "")
    wrong: list[Any] = [None, 7, "x" * 201, "a\nb"]
    for by in wrong:
        with pytest.raises(InvalidArgument):
            queue.admin.pause(db, by=by)


def test_an_idle_queue_deletes_itself(db: Database, space: Subspace, clock: ManualClock) -> None:
    queue = Queue.create(db, "q", root=space, clock=clock, auto_delete=100)
    queue.enqueue(db, b"a")
    assert not queue.admin.sweep(db).deleted
    queue.ack(db, take(db, queue))
    assert not queue.admin.sweep(db).deleted, "it has been drained for no time"
    clock.seconds += 60
    queue.enqueue(db, b"b")
    queue.ack(db, take(db, queue))
    assert not queue.admin.sweep(db).deleted
    clock.seconds += 60
    assert not queue.admin.sweep(db).deleted, "it was used 60 s ago"
    clock.seconds += 60
    assert queue.admin.sweep(db).deleted
    with pytest.raises(QueueNotFound):
        queue.enqueue(db, b"c")


def test_who_gives_back_what_it_cannot_handle_is_not_handed_it_in_a_loop(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "q", root=space, clock=clock)
    queue.enqueue_many(db, [b"bad", b"good"])
    for _ in range(4):
        given = take(db, queue)
        begun = clock.monotonic()
        queue.release(db, given)
        released = clock.monotonic()
    other = take(db, queue)
    assert other.payload == b"good", "the bad one rests, and the next one passes"
    queue.ack(db, other)
    # How long it rests at least and at most: the clock goes on while the test looks, too.
    rests = []
    for _ in range(9):
        least, asked = 0.0, clock.monotonic()
        while (delivery := queue.receive(db)) is None:
            least = asked - released
            clock.seconds += 0.05
            asked = clock.monotonic()
        assert (delivery.payload, delivery.attempt) == (b"bad", 1)
        rests.append((least, clock.monotonic() - begun))
        begun = clock.monotonic()
        queue.release(db, delivery)
        released = clock.monotonic()
    assert all(one[0] <= other[1] for one, other in pairwise(rests))
    assert rests[0][0] <= 0.1
    assert rests[-1][0] <= 10.1
    assert rests[-1][1] >= 9
    clock.seconds += 20
    for _ in range(9):
        queue.release(db, take(db, queue), delay=0)


def test_history_tells_every_transition_in_order(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "q", root=space, clock=clock, history_seconds=1000, max_attempts=2)
    message_id = queue.enqueue(db, b"a", delay=5)
    clock.seconds += 6
    delivery = take(db, queue, consumer="me")
    queue.release(db, delivery, error="no", delay=5)
    clock.seconds += 6
    queue.release(db, take(db, queue), error="no")
    queue.retry(db)
    queue.ack(db, take(db, queue))
    events = queue.history(db)
    assert [(e.transition, e.attempt, e.consumer) for e in events] == [
        ("schedule", 0, ""),
        ("promote", 0, ""),
        ("lease", 0, "me"),
        ("defer", 1, "me"),
        ("promote", 1, ""),
        ("lease", 1, ""),
        ("dead-letter", 2, ""),
        ("redrive", 0, ""),
        ("lease", 0, ""),
        ("ack", 0, ""),
    ]
    assert {(e.id, e.level) for e in events} == {(message_id, 5)}
    pages = [queue.history(db, 4)]
    while pages[-1]:
        pages.append(queue.history(db, 4, after=pages[-1][-1].stamp))
    assert [e for page in pages for e in page] == events
    queue.enqueue_many(db, [b"x", b"y"])
    clock.seconds += 995
    queue.receive(db, at_most_once=True)
    kept = [e.transition for e in queue.history(db)]
    assert kept == ["enqueue", "enqueue", "dequeue"] or "schedule" not in kept


def test_messages_that_are_handled_together_have_one_line_of_history(
    db: Database, space: Subspace, clock: ManualClock
) -> None:
    queue = Queue.create(db, "q", root=space, clock=clock, history_seconds=1000)
    count = history.MAX_EVENTS + 10
    ids = queue.enqueue_many(db, [b"%d" % n for n in range(count)])
    held = queue.receive_many(db, count, consumer="me")
    queue.ack(db, held)
    lines = queue._keys.event.rows
    assert len(db.get_range(lines.start, lines.stop)) == 6
    events = queue.history(db, 10_000)
    told = [(e.transition, e.id, e.consumer) for e in events]
    assert told == [
        *(("enqueue", each, "") for each in ids),
        *(("lease", each, "me") for each in ids),
        *(("ack", each, "me") for each in ids),
    ]
    # Also page by page, beginning anywhere in a line
    assert len({e.stamp for e in events}) == len(events)
    assert events == sorted(events, key=lambda e: e.stamp)
    for n in (0, 1, 499, 500, 700):
        assert queue.history(db, 20, after=events[n].stamp) == events[n + 1 : n + 21]


def test_a_queue_without_history_has_none(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    assert queue.history(db) == []


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"delay": -1}, "delay=-1"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"at": datetime(2030, 1, 1)}, "time zone"),
        ({"at": datetime(9999, 1, 1, tzinfo=UTC)}, "ten years"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 3}, "not both"),
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": 5, "delay": 6}, "must end after the message is due"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"backoff": "often"}, "backoff"),
        ({"unique": 7}, "must be a str"),
    ],
)
def test_an_enqueue_that_makes_no_sense_changes_nothing(
    db: Database, queue: Queue, given: dict[str, Any], problem: str
) -> None:
    before = stored(db, queue)
    with pytest.raises(InvalidInput, match=problem):
        queue.enqueue(db, b"a", **given)
    assert stored(db, queue) == before


def test_settling_with_what_makes_no_sense_changes_nothing(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    delivery = take(db, queue)
    before = stored(db, queue)
    bad: Any
    for bad in (-1, "soon", float("inf"), True):
        with pytest.raises(InvalidArgument, match="delay"):
            queue.release(db, delivery, delay=bad)
    for bad in (None, 7, b"no"):
        with pytest.raises(InvalidArgument, match="reason"):
            queue.reject(db, delivery, bad)
    with pytest.raises(InvalidArgument, match="error"):
        queue.release(db, delivery, error=7)  # type: ignore[arg-type]
    assert stored(db, queue) == before


@pytest.mark.parametrize(
    "given",
    [
        {"backoff": tenacity.wait_exception(lambda _: 1.0)},
        {"expired": "burn"},
        {"dead_letter_queue": "q"},
        {"dedup_window": 0},
        {"paused": 1},
        {"auto_delete": True},
        {"history_seconds": 0},
    ],
)
def test_an_option_that_makes_no_sense_creates_nothing(
    db: Database, space: Subspace, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        Queue.create(db, "q", root=space, **given)
    with pytest.raises(QueueNotFound):
        Queue.open(db, "q", root=space, create=False)
    with pytest.raises(InvalidOptions, match="unknown"):
        Queue.create(db, "q", root=space, colour="red")  # type: ignore[call-arg]


def test_a_first_message_is_received_in_the_transaction_that_enqueues_it(
    db: Database, space: Subspace
) -> None:
    queue = Queue.create(db, "told", root=space, history_seconds=60)

    tr = db.create_transaction()
    queue.enqueue(tr, b"a")
    found = queue.receive(tr)
    assert found is not None
    assert found.payload == b"a"
