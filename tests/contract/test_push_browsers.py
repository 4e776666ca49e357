"""Workers on browsing subscriptions: each message once, in order, behind a durable cursor."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from fdbqueue import (
    Channel,
    Credit,
    Fail,
    Message,
    NewMessage,
    Queue,
    Reject,
    Retry,
    Run,
    Take,
    Worker,
)
from fdbqueue.errors import InvalidArgument
from fdbqueue.queue.internals import Internals, SubscriptionInternals
from fdbqueue.queue.subscription import Subscription
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.worker import browser, fetcher, runtime
from tests.flaky import UNKNOWN_COMMITTED, UNKNOWN_LOST, FlakyDatabase
from tests.gates import Gate
from tests.patience import DEADLINE, eventually

Database = fdb.Database

pytestmark = pytest.mark.queue(backoff=None)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for waiting in (browser, fetcher):
        for seconds in ("POLL_SECONDS", "RETRY_SECONDS"):
            monkeypatch.setattr(waiting, seconds, 0.05)
    monkeypatch.setattr(runtime, "HURRY_SECONDS", 0.1)


@pytest.fixture
def audit(db: Database, queue: Queue) -> Subscription:
    return queue.subscriptions.open(db, "audit", mode="browse")


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def passed(db: Database, audit: Subscription) -> bool:
    """Whether the cursors are behind all messages."""
    internals = Internals(audit._queue)

    def levels(tr: fdb.Transaction) -> list[int]:
        return [*SubscriptionInternals(audit).levels(tr, internals.scope(tr), 1)]

    return not internals.read(db, levels)


def test_each_message_is_handed_over_once_in_order_and_stays(
    db: Database, queue: Queue, audit: Subscription
) -> None:
    seen: list[bytes] = []
    queue.enqueue_many(db, numbers(5))
    with Worker(db, 4).add(queue, lambda m: seen.append(m), take=Take(subscription=audit)):
        eventually(lambda: len(seen) == 5)
        queue.enqueue_many(db, numbers(5, 5))
        eventually(lambda: len(seen) == 10)
        queue.enqueue_many(db, [NewMessage(b"low"), NewMessage(b"urgent", priority=9)])
        eventually(lambda: passed(db, audit))
    assert seen == [*numbers(10), b"urgent", b"low"]
    assert queue.depth(db).ready == 12


def test_a_browser_is_listed_while_it_runs(
    db: Database, queue: Queue, audit: Subscription, gate: Gate
) -> None:
    with Worker(db, name="auditor").add(queue, gate, take=Take(subscription=audit)):
        eventually(lambda: [one.name for one in queue.admin.consumers(db)] == ["auditor"])
        assert [one.state for one in queue.admin.consumers(db)] == [0]
    assert queue.admin.consumers(db) == []


def test_a_late_urgent_message_is_next(
    db: Database, queue: Queue, audit: Subscription, gate: Gate
) -> None:
    queue.enqueue_many(db, numbers(3))
    with Worker(db).add(queue, gate, take=Take(subscription=audit)):
        gate.wait_for(1)
        queue.enqueue(db, b"urgent", priority=9)
        gate.let(4)
        eventually(lambda: passed(db, audit))
    assert gate.entered == [b"0", b"urgent", b"1", b"2"]


def test_the_cursor_moves_after_the_handler(
    db: Database, queue: Queue, audit: Subscription, gate: Gate
) -> None:
    queue.enqueue_many(db, numbers(3))
    # Given a worker that is stopped at once while it handles the second message
    worker = Worker(db, shutdown=0).add(queue, gate, take=Take(subscription=audit))
    with worker:
        gate.wait_for(1)
        gate.let(1)
        gate.wait_for(2)
    # Then another process goes on with that message
    assert [message.payload for message in audit.browse(db)] == numbers(2, 1)


def test_another_worker_stands_by_and_takes_over(
    db: Database, queue: Queue, audit: Subscription, gate: Gate, clock: ManualClock
) -> None:
    second = Gate()
    queue.enqueue_many(db, numbers(3))
    try:
        with Worker(db, shutdown=0).add(queue, gate, take=Take(subscription=audit)):
            gate.wait_for(1)
            with Worker(db).add(queue, second, take=Take(subscription=audit)):
                eventually(lambda: len(queue.admin.consumers(db)) == 2)
                gate.let(1)
                gate.wait_for(2)
                assert second.entered == []
                # When the first worker seems dead
                clock.seconds += 100
                second.wait_for(1)
                # Then the second one has the message that was in hand, and the first moves nothing
                gate.let(1)
                second.let(2)
                eventually(lambda: passed(db, audit))
        assert (gate.entered[:2], second.entered) == ([b"0", b"1"], [b"1", b"2"])
    finally:
        second.let(9)


def test_the_writes_of_a_handler_commit_with_the_move(
    db: Database, queue: Queue, audit: Subscription, space: fdb.Subspace
) -> None:
    count = space.pack(("count",))

    def handle(tr: fdb.Transaction, messages: list[Message]) -> None:
        for message in messages:
            tr.add(count, int(message.payload).to_bytes(8, "little"))

    for fault in (UNKNOWN_LOST, UNKNOWN_COMMITTED):
        queue.enqueue_many(db, [b"1", b"10", b"100"])
        flaky = FlakyDatabase(db, [None, fault] * 50)
        with Worker(flaky).add(queue, handle, run=Run(batch=2), take=Take(subscription=audit)):  # type: ignore[arg-type]
            eventually(lambda: passed(db, audit))
    assert int.from_bytes(db[count] or b"", "little") == 222


def test_a_message_whose_handler_fails_is_tried_again_before_any_other(
    db: Database, queue: Queue, audit: Subscription
) -> None:
    seen: list[bytes] = []

    def handle(message: Message) -> None:
        seen.append(message.payload)
        if seen.count(b"1") < 3 and message.payload == b"1":
            raise Retry(seconds=0) if len(seen) == 2 else ValueError("not now")
        if message.payload == b"2":
            raise Reject("never")

    queue.enqueue_many(db, numbers(4))
    with Worker(db).add(queue, handle, take=Take(subscription=audit)):
        eventually(lambda: passed(db, audit))
    assert seen == [b"0", b"1", b"1", b"1", b"2", b"3"]
    assert queue.depth(db).ready == 4, "nothing becomes a dead letter"


def test_a_transactional_handler_passes_what_it_rejects(
    db: Database, queue: Queue, audit: Subscription
) -> None:
    seen: list[bytes] = []

    def handle(tr: fdb.Transaction, message: Message) -> None:
        seen.append(message.payload)
        if message.payload == b"0":
            raise Reject("never")

    queue.enqueue_many(db, numbers(2))
    with Worker(db).add(queue, handle, take=Take(subscription=audit)):
        eventually(lambda: passed(db, audit))
    assert list(dict.fromkeys(seen)) == numbers(2)


def test_a_worker_ends_when_its_subscriptions_close_themselves(db: Database, queue: Queue) -> None:
    seen: list[bytes] = []
    queue.enqueue_many(db, numbers(3))
    worker = Worker(db)
    for name, mode in (("once", "browse"), ("takes", "acquire")):
        subscription = queue.subscriptions.open(db, name, mode=mode, auto_close=True)
        worker.add(queue, lambda m: seen.append(m), take=Take(subscription=subscription))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert queue.subscriptions.list(db) == []
    assert len(seen) >= 3


@pytest.mark.parametrize("transactional", [False, True])
def test_a_subscription_does_not_close_itself_while_a_message_is_due(
    db: Database,
    queue: Queue,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    transactional: bool,
) -> None:
    # Given a message that falls due behind many that have expired by then, one in a step
    monkeypatch.setattr("fdbqueue.messages.agenda.MAX_ENTRIES", 1)
    queue.enqueue_many(db, [NewMessage(b"old", delay=1 + n, ttl=20) for n in range(15)])
    queue.enqueue(db, b"due", delay=60)
    once = queue.subscriptions.open(db, "once", mode="browse", auto_close=True)
    clock.seconds += 100
    # When a worker browses, then it is handed that
    seen: list[bytes] = []

    def handle(tr: fdb.Transaction, message: bytes) -> None:
        seen.append(message)

    def plain(message: bytes) -> None:
        seen.append(message)

    Worker(db).add(queue, handle if transactional else plain, take=Take(subscription=once)).run()
    assert set(seen) == {b"due"}


def test_a_worker_ends_when_its_subscription_is_removed(
    db: Database, queue: Queue, audit: Subscription, gate: Gate
) -> None:
    queue.enqueue(db, b"0")
    worker = Worker(db).add(queue, gate, take=Take(subscription=audit))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    gate.wait_for(1)
    audit.remove(db)
    gate.let(1)
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_who_moves_the_cursor_while_a_message_is_handled_has_the_last_word(
    db: Database, queue: Queue, audit: Subscription, gate: Gate
) -> None:
    queue.enqueue_many(db, numbers(3))
    with Worker(db).add(queue, gate, take=Take(subscription=audit)):
        gate.wait_for(1)
        gate.let(1)
        gate.wait_for(2)
        audit.seek(db, "first")
        gate.let(4)
        eventually(lambda: passed(db, audit))
    assert gate.entered == [b"0", b"1", *numbers(3)]


@pytest.mark.parametrize(
    ("argument", "terms"),
    [
        ("at_most_once", Take(at_most_once=True)),
        ("lease", Take(lease=10)),
        ("credit", Take(credit=Credit(messages=1))),
        ("credit", Take(credit=Channel(Credit(messages=1)))),
        ("refresh_after", Take(refresh_after=1)),
        ("refresh_after", Take(refresh_after=None)),
        ("weight", Take(weight=2)),
        ("timeout", Run(timeout=60)),
        ("max_attempts", Fail(max_attempts=3)),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_added(
    db: Database,
    queue: Queue,
    audit: Subscription,
    gate: Gate,
    argument: str,
    terms: Take | Run | Fail,
) -> None:
    worker = Worker(db)
    given: dict[str, Any] = {"take": Take(subscription=audit), "run": Run(), "fail": Fail()}
    if isinstance(terms, Take):
        terms = replace(terms, subscription=audit)
    given[type(terms).__name__.lower()] = terms
    with pytest.raises(InvalidArgument, match=argument):
        worker.add(queue, gate, **given)
    with pytest.raises(InvalidArgument, match="no handler"), worker:
        raise AssertionError


def test_verdicts_of_a_batch_fail_since_there_is_nothing_to_settle(
    db: Database, queue: Queue, audit: Subscription, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def handle(messages: list[Message]) -> object:
        calls.append(len(messages))
        return {messages[0].id: Reject()} if len(calls) == 1 else None

    queue.enqueue_many(db, numbers(2))
    with Worker(db).add(queue, handle, run=Run(batch=9), take=Take(subscription=audit)):
        eventually(lambda: passed(db, audit))
    assert calls == [2, 2]
    assert "nothing to settle" in caplog.text
