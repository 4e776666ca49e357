"""Every transition of the table, exactly once, whatever the outcome of its commit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import pytest
import tenacity

from fdbqueue import Delivery, Depth, NewMessage, Queue, State
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import Headers
from fdbqueue.values.states import TRANSITIONS
from tests.flaky import CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST, FlakyDatabase

pytestmark = pytest.mark.usefixtures("small_blocks")

Database = fdb.Database
Subspace = fdb.Subspace

MINUTE = 60
"""The unit of the play: time passes under a manual clock too, and a slow store takes seconds."""

FAULTS = (CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST)
PLANS: list[tuple[str | None, ...]] = [
    (),
    *(plan for length in (1, 2) for plan in itertools.product(FAULTS, repeat=length)),
    (None, UNKNOWN_COMMITTED, CONFLICT),
]


class Scene:
    """Four queues and a clock; every operation meets the faults of the plan."""

    def __init__(self, db: Database, space: Subspace, plan: Sequence[str | None]) -> None:
        self.calm, self.plan = db, plan
        self.clock = ManualClock()
        options: dict[str, Any] = {
            "root": space,
            "clock": self.clock,
            "history_seconds": 10**6,
            "lease": 60 * MINUTE,
        }
        self.plain = Queue.create(
            self.flaky, "plain", **options, max_attempts=2, backoff=tenacity.wait_fixed(5 * MINUTE)
        )
        self.buries = Queue.create(self.flaky, "buries", **options, expired="dead")
        self.sends = Queue.create(
            self.flaky, "sends", **options, expired="dead", dead_letter_queue="plain"
        )
        self.keeps = Queue.create(self.flaky, "keeps", **options, last_value="of", sort="at")
        self.queues = (self.plain, self.buries, self.sends, self.keeps)

    @property
    def flaky(self) -> Database:
        return cast("Database", FlakyDatabase(self.calm, self.plan))

    def take(self, queue: Queue) -> Delivery:
        delivery = queue.receive(self.flaky)
        assert delivery is not None
        return delivery

    def play(self) -> None:
        self.play_settlements()
        self.play_ends()
        for queue in (self.buries, self.sends):
            self.play_expiry(queue)
        self.play_values()

    def play_settlements(self) -> None:
        queue = self.plain
        queue.enqueue(self.flaky, b"a", unique="k", dedup_id="d")
        assert queue.enqueue(self.flaky, b"b", unique="k") == queue.peek(self.calm)[0].id
        queue.enqueue(self.flaky, b"later", delay=5 * MINUTE)
        queue.release(self.flaky, self.take(queue))
        queue.release(self.flaky, self.take(queue), delay=3 * MINUTE)
        self.clock.seconds += 4 * MINUTE
        queue.release(self.flaky, self.take(queue), error="no")
        self.clock.seconds += 6 * MINUTE
        held = queue.receive_many(self.flaky, 2)
        assert [d.payload for d in held] == [b"a", b"later"]
        held = queue.extend(self.flaky, held, 60 * MINUTE)
        queue.reject(self.flaky, held[0], "bad")
        queue.ack(self.flaky, held[1])
        assert queue.retry(self.flaky).taken == 1
        self.take(queue)
        self.clock.seconds += 61 * MINUTE
        queue.admin.sweep(self.flaky)
        self.clock.seconds += 6 * MINUTE
        self.take(queue)
        self.clock.seconds += 61 * MINUTE
        queue.admin.sweep(self.flaky)
        assert queue.purge(self.flaky, states="dead").taken == 1

    def play_ends(self) -> None:
        queue = self.plain
        queue.enqueue(self.flaky, b"lapses")
        queue.set_options(self.flaky, backoff=None)
        self.take(queue)
        self.clock.seconds += 61 * MINUTE
        message = queue.receive(self.flaky, at_most_once=True)
        assert message is not None
        assert message.attempts == 1
        later = queue.enqueue(self.flaky, b"put off")
        assert queue.edit(self.flaky, later, priority=9, delay=60 * MINUTE)
        assert queue.edit(self.flaky, later, delay=0)
        assert queue.cancel(self.flaky, later)
        queue.enqueue(self.flaky, b"dropped")
        queue.reject(self.flaky, self.take(queue), "spam", drop=True)
        for delay in (0, 9 * MINUTE):
            first = queue.enqueue(self.flaky, b"old", unique="r", delay=delay)
            for _ in range(2):
                again = queue.enqueue(self.flaky, b"new", unique="r", on_conflict="replace")
                assert again == first
            queue.cancel(self.flaky, first)
        running = queue.enqueue(self.flaky, b"cancelled", unique="job")
        delivery = self.take(queue)
        assert queue.cancel(self.flaky, running)
        assert queue.enqueue(self.flaky, b"another", unique="job") != running
        assert queue.extend(self.flaky, delivery).cancelled
        queue.release(self.flaky, delivery, error="stopped")
        queue.ack(self.flaky, self.take(queue))
        ids = queue.enqueue_many(self.flaky, [NewMessage(b"x"), NewMessage(b"y", delay=9 * MINUTE)])
        assert all(queue.cancel(self.flaky, message_id) for message_id in ids)
        queue.admin.pause(self.flaky)
        queue.enqueue(self.flaky, b"purged")
        queue.admin.resume(self.flaky)
        assert queue.purge(self.flaky).taken == 1
        self.play_expiry(queue)

    def play_expiry(self, queue: Queue) -> None:
        queue.enqueue_many(
            self.flaky,
            [
                NewMessage(b"leased", 9, ttl=10 * MINUTE),
                NewMessage(b"met", ttl=10 * MINUTE),
                NewMessage(b"swept", 0, ttl=10 * MINUTE),
                NewMessage(b"due", delay=5 * MINUTE, ttl=10 * MINUTE),
            ],
        )
        delivery = self.take(queue)
        self.clock.seconds += 11 * MINUTE
        queue.release(self.flaky, delivery)
        assert queue.receive(self.flaky) is None
        queue.admin.sweep(self.flaky)

    def play_values(self) -> None:
        """Newer values come while older ones are leased, delayed and ready."""
        queue = self.keeps

        def enqueue(at: int, payload: bytes) -> None:
            headers: Headers = {"of": "tea", "at": at}
            queue.enqueue_many(self.flaky, [NewMessage(payload, headers=headers)])

        enqueue(3, b"leased")
        leased = self.take(queue)
        enqueue(2, b"delayed")
        queue.release(self.flaky, leased)
        queue.release(self.flaky, self.take(queue), delay=5 * MINUTE)
        enqueue(1, b"ready")
        enqueue(4, b"newest")
        self.clock.seconds += 6 * MINUTE
        queue.admin.sweep(self.flaky)

    def told(self) -> dict[str, list[tuple[str, int, int]]]:
        """The histories, without what differs from run to run."""
        return {
            queue.name: [(e.transition, e.level, e.attempt) for e in queue.history(self.calm)]
            for queue in self.queues
        }


@pytest.fixture
def told(db: Database, space: Subspace) -> dict[str, list[tuple[str, int, int]]]:
    """What happens without any fault."""
    scene = Scene(db, space.subspace(("calm",)), ())
    scene.play()
    return scene.told()


def test_the_play_makes_every_transition(
    told: dict[str, list[tuple[str, int, int]]],
) -> None:
    made = {transition for events in told.values() for transition, *_ in events}
    assert not {edge.name for edge in TRANSITIONS} - made


@pytest.mark.sample(5)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: ", ".join(map(str, plan)) or "none")
@pytest.mark.promise(6)
def test_every_transition_happens_once_under_every_plan_of_faults(
    db: Database,
    space: Subspace,
    plan: Sequence[str | None],
    told: dict[str, list[tuple[str, int, int]]],
) -> None:
    scene = Scene(db, space.subspace(("faulty",)), plan)
    scene.play()
    assert scene.told() == told
    for queue in scene.queues:
        result = queue.admin.verify(db)
        assert not result.deviations, result
    left = scene.plain.peek(db, 100)
    assert {message.death.queue for message in left if message.death} == {"sends"}
    assert scene.plain.depth(db).ready == len(left) == 4
    assert scene.buries.depth(db) == Depth(enqueued=4, dead=4)
    assert [message.payload for message in scene.keeps.peek(db, 9)] == [b"newest"]
    assert scene.keeps.depth(db) == Depth(enqueued=4, ready=1, purged=3, ready_bytes=6)
    assert {State.DEAD} == {
        found.state
        for letter in scene.buries.dead.list(db)
        if (found := scene.buries.get(db, letter.id)) is not None
    }
