"""A late urgent message is next: prefetched messages make room for it."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from fdbqueue import Channel, Credit, Message, NewMessage, Queue, Run, Take, Worker
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from fdbqueue.worker import decisions
from fdbqueue.worker.consumer import QueueConsumer
from fdbqueue.worker.terms import TAKE
from tests.flaky import CuttableDatabase
from tests.gates import Gate
from tests.patience import eventually
from tests.schemes import forced

Database = fdb.Database

pytestmark = pytest.mark.queue(max_attempts=3, lease=60, backoff=None)

COUNTS_SECONDS = 0.001
"""How long a look counts in these tests."""


@pytest.fixture(autouse=True)
def _no_look_counts_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "REFRESH_SECONDS", COUNTS_SECONDS)


def low(count: int) -> list[NewMessage]:
    return [NewMessage(b"low %d" % n, headers={"of": 1}) for n in range(count)]


def urgent(count: int) -> list[NewMessage]:
    return [NewMessage(b"urgent %d" % n, priority=9, headers={"of": 1}) for n in range(count)]


def after_the_last_look() -> None:
    """Wait until no look that has ended counts any more."""
    until = time.monotonic() + COUNTS_SECONDS
    eventually(lambda: time.monotonic() > until)


def payloads(messages: list[NewMessage]) -> list[object]:
    return [each.payload for each in messages]


HOW = {
    "default": TAKE,
    "agreed": Take(refresh_after=1),
    "credit": Take(credit=Credit(messages=6)),
    "bytes": Take(credit=Credit(bytes=60)),
    "granted": Take(credit=Credit(messages=15, window=False)),
    "transactional": TAKE,
}
CASES = [(how, kind) for how in HOW for kind in ("queue", "staged", "subscription")]


@pytest.mark.parametrize(("how", "kind"), CASES)
def test_a_late_urgent_message_is_next(
    db: Database, space: fdb.Subspace, gate: Gate, how: str, kind: str
) -> None:
    mode = "staged" if kind == "staged" else "auto"
    queue = forced(Queue.create(db, "orders", root=space, lease=60), mode)
    take = HOW[how]
    if isinstance(take.credit, Credit):
        take = replace(take, credit=Channel(take.credit))
    queue.enqueue_many(db, low(6))
    if kind == "subscription":
        some = queue.subscriptions.open(db, "some", selector="of = 1")
        take = replace(take, subscription=some)
        queue.enqueue(db, b"for others", priority=9)

    def with_transaction(tr: fdb.Transaction, message: Message) -> None:
        gate(message)

    # Given a worker that handles a message and has prefetched others
    worker = Worker(db, 1, prefetch=5)
    with worker.add(queue, with_transaction if how == "transactional" else gate, take=take):
        gate.wait_for(1)
        eventually(lambda: queue.depth(db).leased == 6)
        # When three urgent ones come
        queue.enqueue_many(db, urgent(3))
        after_the_last_look()
        gate.let(9)
        # Then these are next, in their order, and the others follow in theirs, with all attempts
        eventually(lambda: queue.depth(db).done == 9)
    handled = list(dict.fromkeys(gate.entered))
    assert handled == [b"low 0", *payloads(urgent(3)), *payloads(low(6)[1:])]


def test_no_more_goes_back_than_urgent_messages_need_and_it_loses_no_attempt(
    db: Database, queue: Queue, gate: Gate
) -> None:
    # Given a worker that holds as many messages as it may
    queue.enqueue_many(db, [NewMessage(b"%d" % n, priority=n) for n in (8, 7, 1, 0)])
    with Worker(db, 1, prefetch=3).add(queue, gate):
        gate.wait_for(1)
        eventually(lambda: queue.depth(db).leased == 4)
        # When two come that are more urgent than some of them
        queue.enqueue_many(db, [NewMessage(b"9", priority=9), NewMessage(b"5", priority=5)])
        after_the_last_look()
        gate.let(1)
        gate.wait_for(2)
        # Then one has room, and the other takes the place of the least urgent
        eventually(lambda: [each.payload for each in queue.peek(db)] == [b"0"])
        assert [each.attempts for each in queue.peek(db)] == [0]
        gate.let(5)
        eventually(lambda: queue.depth(db).done == 6)
    assert gate.entered == [b"8", b"9", b"7", b"5", b"1", b"0"]


def test_what_goes_back_is_for_others_at_once(db: Database, queue: Queue, gate: Gate) -> None:
    other = Gate()
    queue.enqueue_many(db, low(2))
    try:
        with Worker(db, 1, prefetch=1).add(queue, gate):
            gate.wait_for(1)
            eventually(lambda: queue.depth(db).leased == 2)
            with Worker(db, 1, prefetch=0).add(queue, other):
                queue.admin.pause(db)
                queue.enqueue_many(db, urgent(3))
                queue.admin.resume(db)
                gate.let(1)
                other.let(4)
                gate.let(4)
                eventually(lambda: queue.depth(db).done == 5)
        assert sorted(gate.entered + other.entered) == sorted(payloads(low(2) + urgent(3)))  # type: ignore[type-var]
    finally:
        other.let(9)


def test_batches_are_not_interrupted(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    sizes: list[int] = []
    monkeypatch.setattr(QueueConsumer, "waits_behind", lambda self, level: looks.append(level))

    def handle(messages: list[Message]) -> None:
        sizes.append(len(messages))

    queue.enqueue_many(db, low(30))
    with Worker(db, 1, prefetch=20).add(queue, handle, run=Run(batch=10)):
        eventually(lambda: queue.depth(db).done == 30)
    assert (sum(sizes), looks) == (30, [])


def test_a_look_counts_for_a_while(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(decisions, "REFRESH_SECONDS", 1e9)
    monkeypatch.setattr(QueueConsumer, "waits_behind", lambda self, level: looks.append(level))
    queue.enqueue_many(db, low(30))
    with Worker(db, 2, prefetch=40).add(queue, lambda message: None):
        eventually(lambda: queue.depth(db).done == 30)
    assert looks == [], "the first fetch has found nothing more urgent"


def test_a_store_that_does_not_answer_keeps_nobody_from_prefetched_messages(
    db: Database, queue: Queue, gate: Gate
) -> None:
    line = CuttableDatabase(db)
    queue.enqueue_many(db, low(3))
    with Worker(line, 1, prefetch=2).add(queue, gate):  # type: ignore[arg-type]
        gate.wait_for(1)
        eventually(lambda: queue.depth(db).leased == 3)
        line.cut = True
        gate.let(2)
        assert gate.wait_for(3) == payloads(low(3))
        line.cut = False
        gate.let(1)


@pytest.mark.parametrize("bad", [0, -1, True, "never", 1.5])
def test_a_refresh_that_makes_no_sense_is_refused(
    db: Database, queue: Queue, gate: Gate, bad: object
) -> None:
    with pytest.raises(InvalidArgument, match="refresh_after"):
        Worker(db).add(queue, gate, take=Take(refresh_after=bad))  # type: ignore[arg-type]
