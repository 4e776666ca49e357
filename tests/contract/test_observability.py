from __future__ import annotations

import gc
import logging
import threading

import pytest
from opentelemetry import context, trace
from prometheus_client import CollectorRegistry, generate_latest

from fdbqueue import Message, NewMessage, Queue
from fdbqueue.consumers import wakeups
from fdbqueue.metrics import QueueCollector, WorkerMetrics
from fdbqueue.schema import once
from fdbqueue.schema.codec.consumers import ConsumerRef
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock, drain
from fdbqueue.worker import Worker, tracing
from tests.flaky import CONFLICT, FlakyDatabase
from tests.patience import DEADLINE

Database = fdb.Database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(db: Database, space: fdb.Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "orders", root=space, levels=3, max_attempts=2, clock=clock)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_a_collector_tells_how_a_queue_stands(
    db: Database, queue: Queue, clock: ManualClock, registry: CollectorRegistry
) -> None:
    registry.register(QueueCollector(db, [queue]))
    queue.enqueue(db, b"12345", priority=9)
    queue.enqueue_many(db, [b"1", b"2"])
    delivery = queue.receive(db)
    assert delivery is not None
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


def test_a_collector_shows_the_keys_with_the_longest_backlogs_and_no_others(
    db: Database, queue: Queue, clock: ManualClock, registry: CollectorRegistry
) -> None:
    registry.register(QueueCollector(db, [queue]))

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

    assert value("handled_total", queue="orders", outcome="failed") == 1
    assert value("handled_total", queue="orders", outcome="done") == 1
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
