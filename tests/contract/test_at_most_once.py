"""At most once, by choice: what removes messages before anybody has handled them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fdbqueue import Depth, Fail, Message, Queue, Reject, Run, Take, Worker
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.flaky import UNKNOWN_COMMITTED, UNKNOWN_LOST, FlakyDatabase
from tests.patience import DEADLINE, eventually
from tests.schemes import forced

Database = fdb.Database
PAYLOADS = [b"%d" % n for n in range(20)]


# -- dequeuing --------------------------------------------------------------------------------


def test_several_messages_are_dequeued_in_order(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, PAYLOADS)
    queue.enqueue(db, b"urgent", priority=9)
    taken = queue.receive_many(db, 8, at_most_once=True)
    taken += queue.receive_many(db, 100, at_most_once=True)
    assert [message.payload for message in taken] == [b"urgent", *PAYLOADS]
    assert queue.receive_many(db, 100, at_most_once=True) == []
    assert queue.depth(db) == Depth(enqueued=21, done=21)
    assert queue.admin.verify(db).ok


def test_a_batch_of_what_nobody_can_settle_is_a_list_of_messages(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, PAYLOADS)
    taken = queue.receive_batch(db, 8, at_most_once=True)
    taken += queue.receive_batch(db, 8, at_most_once=True, match="priority = 4")
    assert [message.payload for message in taken] == PAYLOADS[:16]
    assert queue.depth(db) == Depth(ready=4, enqueued=20, done=16, ready_bytes=8)


@pytest.mark.queue(lease=1)
@pytest.mark.parametrize("way", ["head", "match", "subscription"])
def test_what_nobody_held_well_comes_with_the_others(
    db: Database, queue: Queue, clock: ManualClock, way: str
) -> None:
    # Given messages whose lease has expired: each would be leased by itself
    queue.enqueue_many(db, PAYLOADS[:3])
    wanted = queue.subscriptions.open(db, "all", selector="priority = 4")
    queue.receive_many(db, 3)
    clock.seconds += 1_000
    queue.admin.sweep(db)
    clock.seconds += 1_000  # They rest before they come again.
    # When they are taken without a lease, then all come at once: nobody dies of them
    match way:
        case "head":
            taken = queue.receive_many(db, 3, at_most_once=True)
        case "match":
            taken = queue.receive_many(db, 3, at_most_once=True, match="priority = 4")
        case _:
            taken = wanted.receive_many(db, 3, at_most_once=True)
    assert [message.payload for message in taken] == PAYLOADS[:3]


@pytest.mark.parametrize("scheme", ["auto", "staged"])
@pytest.mark.parametrize("plan", [[], [None, None, UNKNOWN_COMMITTED], [None, UNKNOWN_LOST] * 2])
def test_who_waits_gets_what_comes(
    db: Database, space: fdb.Subspace, scheme: str, plan: list[str | None]
) -> None:
    queue = forced(Queue.create(db, "orders", root=space), scheme)
    flaky: Any = FlakyDatabase(db, plan)
    found: list[Message] = []

    def wait() -> None:
        found.extend(queue.receive_many(flaky, 5, wait=DEADLINE, at_most_once=True))

    waiter = threading.Thread(target=wait)
    waiter.start()
    eventually(lambda: flaky.commits or queue.admin.consumers(db))
    queue.enqueue(db, b"at last")
    waiter.join(DEADLINE)
    assert [message.payload for message in found] == [b"at last"]
    assert queue.depth(db) == Depth(enqueued=1, done=1)


def test_nobody_waits_longer_than_asked(db: Database, queue: Queue) -> None:
    assert queue.receive(db, wait=0.01, at_most_once=True) is None
    queue.set_options(db, paused=True)
    queue.enqueue(db, b"held back")
    assert queue.receive_many(db, 5, wait=0.01, at_most_once=True) == []
    assert queue.depth(db).ready == 1


@pytest.mark.parametrize("count", [0, -1, 1.5, "many", 10**9])
def test_a_number_of_messages_that_is_none_is_refused(
    db: Database, queue: Queue, count: Any
) -> None:
    with pytest.raises(InvalidArgument, match="max_messages"):
        queue.receive_many(db, count, at_most_once=True)


# -- workers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 10])
def test_a_worker_may_settle_before_it_handles(
    db: Database, queue: Queue, batch: int | None
) -> None:
    queue.enqueue_many(db, PAYLOADS)
    seen: list[tuple[bytes, object]] = []
    lock = threading.Lock()

    def one(message: Message) -> None:
        with lock:
            seen.append((message.payload, queue.get(db, message.id)))

    def several(messages: list[Message]) -> None:
        for message in messages:
            one(message)

    handler: Any = several if batch else one
    with Worker(db, 2).add(queue, handler, take=Take(at_most_once=True), run=Run(batch=batch)):
        eventually(lambda: len(seen) == len(PAYLOADS))
    # Each message was handled once, and was gone by then
    assert {state for _, state in seen} == {None}
    assert sorted(payload for payload, _ in seen) == sorted(PAYLOADS)
    assert queue.depth(db) == Depth(enqueued=20, done=20)
    assert queue.admin.verify(db).ok


@pytest.mark.parametrize("error", [ValueError("no"), Reject("no"), SystemExit(1)])
def test_what_was_settled_before_is_handled_once_even_if_that_fails(
    db: Database, queue: Queue, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    queue.enqueue_many(db, PAYLOADS)
    seen: list[bytes] = []

    def handle(message: Message) -> None:
        seen.append(message.payload)
        raise error

    with Worker(db, 1).add(queue, handle, take=Take(at_most_once=True)):
        eventually(lambda: len(seen) == len(PAYLOADS))
    assert seen == PAYLOADS
    assert queue.depth(db) == Depth(enqueued=20, done=20)
    assert "they are gone" in caplog.text


@pytest.mark.parametrize(
    "how",
    [
        {"take": Take(at_most_once="early")},  # type: ignore[arg-type]
        {"run": Run(transactional=True)},
        {"fail": Fail(max_attempts=3)},
        {"fail": Fail(backoff={"wait": 1})},
    ],
)
def test_what_does_not_go_with_settling_before_is_refused(
    db: Database, queue: Queue, how: dict[str, Any]
) -> None:
    def handle(*arguments: Any) -> None: ...

    once: dict[str, Any] = {"take": Take(at_most_once=True), "run": Run(transactional=False)}
    with pytest.raises(InvalidArgument, match="at_most_once"):
        Worker(db).add(queue, handle, **(once | how))
