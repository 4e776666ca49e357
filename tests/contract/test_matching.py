"""Taking the first message that a selector matches, without a subscription."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fdbqueue import Message, NewMessage, Queue, Selector
from fdbqueue.errors import InvalidArgument, InvalidSelector, LeaseLost, TransactionTooLarge
from fdbqueue.store.binding import fdb
from fdbqueue.subscriptions import acquire, cursors
from fdbqueue.testing import ManualClock
from tests.flaky import CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST, FlakyDatabase
from tests.patience import DEADLINE, eventually
from tests.taking import ready, take

Database = fdb.Database
EUROPE = "region = 'eu'"


def put(db: Database, queue: Queue, *names: str, priority: int = 4) -> None:
    for name in names:
        queue.enqueue(db, name.encode(), headers={"region": name[:2]}, priority=priority)


def received(db: Any, queue: Queue) -> bytes | None:
    found = queue.receive(db, match=EUROPE)
    return None if found is None else found.payload


def dequeued(db: Any, queue: Queue) -> bytes | None:
    found = queue.receive(db, match=EUROPE, at_most_once=True)
    return None if found is None else found.payload


def composed(db: Any, queue: Queue) -> bytes | None:
    @fdb.transactional
    def take(tr: fdb.Transaction) -> Message | None:
        return queue.receive(tr, match=EUROPE, at_most_once=True)

    found: Message | None = take(db)
    return None if found is None else found.payload


TAKES = [received, dequeued, composed]


@pytest.mark.parametrize("take", TAKES)
def test_the_first_match_is_taken_the_urgent_before_the_old(
    db: Database, queue: Queue, take: Callable[[Any, Queue], bytes | None]
) -> None:
    put(db, queue, "us1", "eu1", "us2", "eu2")
    put(db, queue, "us3", "eu3", priority=7)
    assert [take(db, queue) for _ in range(4)] == [b"eu3", b"eu1", b"eu2", None]
    assert ready(db, queue) == [b"us3", b"us1", b"us2"]
    depth = queue.depth(db)
    assert (depth.leased, depth.done) == ((3, 0) if take is received else (0, 3))
    assert queue.admin.verify(db).ok


@pytest.mark.parametrize("take", [received, dequeued])
@pytest.mark.parametrize("plan", [[CONFLICT], [UNKNOWN_COMMITTED], [UNKNOWN_LOST]])
def test_a_match_is_taken_once_whatever_befalls_its_commit(
    db: Database,
    queue: Queue,
    take: Callable[[Any, Queue], bytes | None],
    plan: list[str | None],
) -> None:
    put(db, queue, "us1", "eu1", "eu2")
    assert take(FlakyDatabase(db, plan), queue) == b"eu1"
    assert ready(db, queue) == [b"us1", b"eu2"]
    depth = queue.depth(db)
    assert depth.leased + depth.done == 1
    assert queue.admin.verify(db).ok


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("take", [received, dequeued])
def test_a_match_far_behind_is_found_in_several_transactions(
    db: Database,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    take: Callable[[Any, Queue], bytes | None],
    blocks: bool,
) -> None:
    monkeypatch.setattr(cursors, "MAX_SCANNED", 20)
    many = [NewMessage(b"us%d" % n, headers={"region": "us"}) for n in range(75)]
    many[70] = NewMessage(b"eu", headers={"region": "eu"})
    if blocks:
        queue.enqueue_many(db, many)
    else:
        for each in many:
            queue.enqueue(db, each.payload, headers=each.headers)
    # In a transaction, it says that it has not seen the end
    with pytest.raises(TransactionTooLarge, match="call it with a database"):
        queue.receive(db.create_transaction(), match=EUROPE, at_most_once=True)
    # With a database, it goes on
    looks: list[acquire.ScanResult] = []
    first = acquire.first

    def counted(*given: Any, **terms: Any) -> acquire.ScanResult:
        looks.append(first(*given, **terms))
        return looks[-1]

    monkeypatch.setattr(acquire, "first", counted)
    assert take(db, queue) == b"eu"
    assert [found.unfinished for found in looks] == [True, True, True, False]
    assert take(db, queue) is None
    assert queue.depth(db).ready == 74
    assert queue.admin.verify(db).ok


def test_an_answer_that_nothing_matches_does_not_stand_beside_an_arrival(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "us1")
    tr = db.create_transaction()
    assert queue.receive(tr, match=EUROPE, at_most_once=True) is None
    tr[queue._root.pack(("effect",))] = b""
    put(db, queue, "eu1")
    with pytest.raises(fdb.FDBError):
        tr.commit().wait()


def test_takers_of_what_does_not_match_do_not_disturb(db: Database, queue: Queue) -> None:
    put(db, queue, "us1", "us2", "eu1", "us3")
    tr = db.create_transaction()
    found = queue.receive(tr, match=EUROPE, at_most_once=True)
    assert found is not None
    # When others take what was skipped, and add behind what was taken
    held = take(db, queue)
    queue.ack(db, held)
    put(db, queue, "us4")
    # Then it commits
    tr.commit().wait()
    assert ready(db, queue) == [b"us2", b"us3", b"us4"]
    assert queue.admin.verify(db).ok


def test_what_is_delayed_leased_expired_or_paused_is_not_taken(
    db: Database, space: fdb.Subspace
) -> None:
    clock = ManualClock()
    queue = Queue.create(db, "orders", root=space, clock=clock, lease=30)
    about = {"region": "eu"}
    queue.enqueue(db, b"expires", headers=about, ttl=10)
    queue.enqueue(db, b"scheduled", headers=about, delay=60)
    queue.enqueue(db, b"leased", headers=about)
    clock.seconds += 11
    assert received(db, queue) == b"leased"
    assert received(db, queue) is None
    assert queue.depth(db).expired == 1
    clock.seconds += 50
    queue.admin.pause(db)
    assert received(db, queue) is None
    queue.admin.resume(db)
    assert [received(db, queue) for _ in range(3)] == [b"leased", b"scheduled", None]
    assert queue.admin.verify(db).ok


def test_a_message_of_an_ordering_key_makes_room_for_its_next(db: Database, queue: Queue) -> None:
    for n in range(3):
        queue.enqueue(db, b"%d" % n, headers={"region": "eu"}, key="one")
    assert [dequeued(db, queue) for _ in range(4)] == [b"0", b"1", b"2", None]
    assert queue.admin.verify(db).ok


def test_wrong_arguments_are_refused(db: Database, queue: Queue) -> None:
    with pytest.raises(InvalidSelector):
        queue.receive(db, match="region = ")
    with pytest.raises(InvalidArgument, match="at_most_once"):
        queue.receive(db, match=EUROPE, lease=1, at_most_once=True)
    with pytest.raises(Exception, match="lease"):
        queue.receive(db, match=EUROPE, lease=-1)


def test_several_matches_are_taken_at_once_and_settled_together(
    db: Database, queue: Queue[bytes]
) -> None:
    put(db, queue, "eu-1", "us-1", "eu-2", "us-2", "eu-3")
    held = queue.receive_many(db, 2, match=Selector(EUROPE))
    assert [each.payload for each in held] == [b"eu-1", b"eu-2"]
    batch = queue.receive_batch(db, 9, match=EUROPE, ack=held)
    assert batch.payloads == [b"eu-3"]
    queue.ack(db, batch)
    taken = queue.receive_many(db, 9, match="region = 'us'", at_most_once=True)
    assert [each.payload for each in taken] == [b"us-1", b"us-2"]
    depth = queue.depth(db)
    assert (depth.done, depth.ready, depth.leased) == (5, 0, 0)


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_call_waits_for_a_match_and_others_do_not_end_it(
    db: Database, queue: Queue, at_most_once: bool
) -> None:
    def wait() -> bytes | None:
        if at_most_once:
            message = queue.receive(db, match=EUROPE, wait=DEADLINE, at_most_once=True)
            return None if message is None else message.payload
        held = queue.receive(db, match=EUROPE, wait=DEADLINE)
        return None if held is None else held.payload

    with ThreadPoolExecutor() as pool:
        found = pool.submit(wait)
        eventually(lambda: bool(queue.admin.consumers(db)))
        put(db, queue, "us-1")
        put(db, queue, "eu-1")
        assert found.result(DEADLINE) == b"eu-1"
    assert ready(db, queue) == [b"us-1"]
    assert not queue.admin.consumers(db)


def test_a_wait_for_a_match_ends_without_one(db: Database, queue: Queue) -> None:
    put(db, queue, "us-1")
    held = take(db, queue)
    assert queue.receive(db, match=EUROPE, wait=0.1, ack=held) is None
    assert queue.depth(db).done == 1
    with pytest.raises(LeaseLost):
        queue.receive(db, match=EUROPE, ack=held)


# -- browsing ---------------------------------------------------------------------------------


def test_who_browses_sees_what_matches_and_leaves_it(db: Database, queue: Queue) -> None:
    put(db, queue, "us1", "eu1", *["us2"] * 150, "eu2")
    put(db, queue, "eu0", priority=9)
    for match in (EUROPE, Selector(EUROPE), lambda message: message.headers["region"] == "eu"):
        assert [each.payload for each in queue.browse(db, match=match)] == [b"eu0", b"eu1", b"eu2"]
    assert [each.payload for each in queue.browse(db, levels=[0], match=EUROPE)] == [b"eu0"]
    assert queue.depth(db).ready == 154
    with pytest.raises(InvalidSelector):
        queue.browse(db, match="region =")
