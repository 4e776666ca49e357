from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest
from opentelemetry import context, trace
from prometheus_client import CollectorRegistry, generate_latest

from fdbqueue import Depth, Message, NewMessage, Queue
from fdbqueue.consumers import wakeups
from fdbqueue.errors import InvalidArgument
from fdbqueue.metrics import QueueCollector, WorkerMetrics
from fdbqueue.schema import once
from fdbqueue.schema.consumers import ConsumerRef
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock, drain
from fdbqueue.worker import Worker, tracing
from tests.flaky import CONFLICT, FlakyDatabase
from tests.patience import DEADLINE
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue(levels=3, max_attempts=2)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_whoever_watches_is_told_of_each_change(db: fdb.Database, space: fdb.Subspace) -> None:
    queue = Queue.create(db, "watched", root=space)
    told = queue.watch(db, every=0.01)
    assert next(told) == Depth()
    queue.enqueue(db, b"a")
    assert next(told) == Depth(ready=1, enqueued=1, ready_bytes=1)
    queue.receive(db)
    assert next(told).leased == 1
    with pytest.raises(InvalidArgument, match="every"):
        queue.watch(db, every=0)
    with pytest.raises(InvalidArgument, match="database"):
        queue.watch(db.create_transaction())  # type: ignore[arg-type]


def test_a_collector_tells_how_a_queue_stands(
    db: Database, queue: Queue, clock: ManualClock, registry: CollectorRegistry
) -> None:
    registry.register(QueueCollector(db, [queue]))
    queue.enqueue(db, b"12345", priority=9)
    queue.enqueue_many(db, [b"1", b"2"])
    delivery = take(db, queue)
    queue.ack(db, delivery)
    queue.receive(db)
    wakeups.register(db, queue._scope(db.create_transaction()), ConsumerRef(b"a consumer"))
    clock.seconds += 20

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"fdbqueue_{name}", {"queue": "orders", **labels})

    assert value("messages", level="1", state="ready") == 1
    assert value("messages", level="1", state="leased") == 1
    assert value("ready_bytes") == 1
    assert value("enqueued_total") == 3
    assert value("ended_total", state="done") == 1
    assert 20 <= (value("oldest_ready_age_seconds") or 0) < 30
    assert value("consumers", state="interested") == 1
    assert b"fdbqueue_messages" in generate_latest(registry)


def test_pending_is_what_there_is_work_for(
    db: Database, queue: Queue, clock: ManualClock, registry: CollectorRegistry
) -> None:
    registry.register(QueueCollector(db, [queue]))

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"fdbqueue_{name}", {"queue": "orders"})

    # Given two that are ready, one that is leased, and three that are not due
    queue.enqueue_many(db, [b"1", b"2", b"3"])
    queue.receive(db, lease=30)
    queue.enqueue_many(db, [NewMessage(b"x", delay=60)] * 3)
    assert (value("pending_messages"), value("due_age_seconds")) == (3, 0)
    # When these are due, and no consumer has made them ready
    clock.seconds += 90
    # Then one of them counts, as no message is counted by reading it
    assert value("pending_messages") == 4
    assert 30 <= (value("due_age_seconds") or 0) < 35
    # When a consumer comes, then all of them count
    queue.receive(db)
    assert (value("pending_messages"), value("due_age_seconds")) == (6, 0)


def test_pausing_is_shown(db: Database, queue: Queue, registry: CollectorRegistry) -> None:
    registry.register(QueueCollector(db, [queue]))
    paused = []
    for change in (queue.admin.pause, queue.admin.resume):
        change(db)
        paused.append(registry.get_sample_value("fdbqueue_paused", {"queue": "orders"}))
    assert paused == [1, 0]


def test_limits_of_queues_are_shown_beside_what_they_limit(
    db: Database, queue: Queue, space: fdb.Subspace, registry: CollectorRegistry
) -> None:
    limited = Queue.create(db, "limited", root=space, max_in_flight=5, rate="120/min, burst 9")
    registry.register(QueueCollector(db, [queue, limited]))
    shown = {
        (name, each.name): registry.get_sample_value(f"fdbqueue_{name}", {"queue": each.name})
        for name in ("max_in_flight", "max_rate")
        for each in (queue, limited)
    }
    assert shown == {
        ("max_in_flight", "orders"): None,
        ("max_in_flight", "limited"): 5,
        ("max_rate", "orders"): None,
        ("max_rate", "limited"): pytest.approx(2),
    }


def test_a_collector_shows_no_more_queues_than_it_may(
    db: Database, space: fdb.Subspace, registry: CollectorRegistry
) -> None:
    # Given four queues, one of which cannot be read
    queues = [Queue.create(db, f"queue-{n}", root=space) for n in range(4)]
    db[queues[1]._keys.meta] = b"not readable"
    registry.register(QueueCollector(db, queues, most=3))

    def counted(state: str) -> float | None:
        return registry.get_sample_value("fdbqueue_queues", {"state": state})

    shown = [registry.get_sample_value("fdbqueue_paused", {"queue": each.name}) for each in queues]
    assert shown == [0, None, 0, None]
    assert [counted(state) for state in ("shown", "unreadable", "left out")] == [2, 1, 1]


@pytest.mark.parametrize("wrong", [{"most": 0}, {"keys": -1}, {"keys": 1_001}, {"timeout": -1}])
def test_a_collector_refuses_bounds_that_make_no_sense(db: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        QueueCollector(db, [], **wrong)


def test_a_scrape_reads_as_much_for_many_messages_as_for_few(
    db: Database, queue: Queue, clock: ManualClock, registry: CollectorRegistry, rows: list[int]
) -> None:
    registry.register(QueueCollector(db, [queue]))

    def fill(count: int) -> None:
        for each in [
            NewMessage(b"x", headers={"n": 1}),
            NewMessage(b"x", delay=1, headers={"n": 1}),
        ]:
            queue.enqueue_many(db, [each] * count)

    def scraped() -> int:
        rows.clear()
        list(registry.collect())
        return sum(rows)

    fill(1)
    clock.seconds += 60
    few = scraped()
    assert few
    fill(300)
    assert scraped() == few


def test_a_collector_shows_the_keys_with_the_longest_backlogs_and_no_others(
    db: Database, queue: Queue, clock: ManualClock, registry: CollectorRegistry
) -> None:
    registry.register(QueueCollector(db, [queue], keys=10))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"fdbqueue_{name}", {"queue": "orders", **labels})

    assert (value("keys_waiting"), value("key_backlog_age_seconds")) == (0, 0)
    for n in range(12):
        queue.enqueue_many(db, [NewMessage(b"x", key=f"tenant {n}")] * (n + 1))
    clock.seconds += 20
    # Of tenant 0 none waits, of the others one fewer than there are
    assert value("keys_waiting") == 11
    assert 20 <= (value("key_backlog_age_seconds") or 0) < 30
    shown = {n: value("key_waiting", key=f"tenant {n}") for n in range(12)}
    assert shown == {0: None, 1: None, **{n: n for n in range(2, 12)}}


def test_a_queue_that_is_gone_is_left_out(
    db: Database, queue: Queue, registry: CollectorRegistry
) -> None:
    registry.register(QueueCollector(db, lambda: [queue]))
    queue.delete(db)
    assert registry.get_sample_value("fdbqueue_ready_bytes", {"queue": "orders"}) is None


def test_a_worker_counts_outcomes_latencies_redeliveries_and_conflicts(
    db: Database, queue: Queue, registry: CollectorRegistry
) -> None:
    left = threading.Semaphore(1)
    done = threading.Event()

    def handle(tr: fdb.Transaction, message: Message) -> None:
        if left.acquire(blocking=False):
            raise ValueError
        done.set()

    metrics = WorkerMetrics(registry)
    queue.enqueue(db, b"a")
    flaky = FlakyDatabase(db, [None, CONFLICT] * 100)
    worker = Worker(flaky, 1, metrics=metrics)  # type: ignore[arg-type]
    with worker.add(queue, handle):
        assert done.wait(DEADLINE)

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"fdbqueue_{name}", labels) or 0.0

    handler = f"{__name__}.handle"
    assert value("handled_total", queue="orders", handler=handler, outcome="failed") == 1
    assert value("handled_total", queue="orders", handler=handler, outcome="done") == 1
    assert value("redelivered_total", queue="orders") == 1
    assert value("handling_seconds_count", queue="orders") == 2
    assert value("waiting_seconds_count", queue="orders") == 1
    assert value("transactions_retried_total", reason="conflict") > 0


def test_the_trace_of_the_enqueue_goes_on_in_the_handler(db: Database, queue: Queue) -> None:
    origin = trace.SpanContext(
        trace_id=0x1234, span_id=0x5678, is_remote=False, trace_flags=trace.TraceFlags(1)
    )
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(origin)))
    try:
        headers = tracing.inject({"region": "eu"})
    finally:
        context.detach(token)
    queue.enqueue(db, b"a", headers=headers)
    traces: list[int] = []

    def handle(message: Message) -> None:
        traces.append(trace.get_current_span().get_span_context().trace_id)
        assert message.headers["region"] == "eu"

    drain(db, queue, handle)
    assert traces == [0x1234]
    assert not trace.get_current_span().get_span_context().is_valid


def test_messages_without_a_trace_and_batches_are_handled_as_well(
    db: Database, queue: Queue
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    assert len(drain(db, queue, lambda messages: None, batch=2)) == 2


def test_a_failure_is_logged_with_what_it_is_about(
    db: Database, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    message_id = queue.enqueue(db, b"a")

    def handle(message: Message) -> None:
        raise ValueError("no such customer")

    with caplog.at_level(logging.WARNING, "fdbqueue.worker"):
        drain(db, queue, handle, failures=True)
    record = caplog.records[0]
    assert "no such customer" in record.getMessage()
    assert (record.queue, record.message_id, record.attempt) == (  # type: ignore[attr-defined]
        "orders",
        message_id,
        1,
    )


def test_what_counts_retries_goes_with_its_owner(
    db: Database, queue: Queue, registry: CollectorRegistry
) -> None:
    told: list[str] = []

    class Owner:
        def __init__(self, name: str) -> None:
            self.name = name
            once.on_retry(self.retried)

        def retried(self, code: int) -> None:
            told.append(self.name)

    gone, there = Owner("gone"), Owner("there")
    del gone
    gc.collect()
    queue.enqueue(FlakyDatabase(db, [CONFLICT]), b"x")  # type: ignore[arg-type]
    assert told == [there.name]


def test_a_collector_tells_what_holds_messages_back_and_who_has_not_seen_them(
    db: Database, queue: Queue, registry: CollectorRegistry
) -> None:
    registry.register(QueueCollector(db, [queue]))
    queue.subscriptions.open(db, "audit", mode="browse")
    queue.limits["api", "stripe"].set(db, concurrency=1)
    queue.enqueue_many(db, [b"x"] * 400)
    queue.enqueue_many(db, [NewMessage(b"x", key="k")] * 3)
    queue.enqueue_many(db, [NewMessage(b"x", limits={"api": "stripe"})] * 3)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"fdbqueue_{name}", {"queue": "orders", **labels})

    assert [value("waiting_messages", reason=each) for each in ("key", "limit")] == [2, 2]
    # What was enqueued together counts, each message of it
    assert value("subscription_lag_messages", subscription="audit") == 402
    assert value("oldest_lease_age_seconds") == 0
