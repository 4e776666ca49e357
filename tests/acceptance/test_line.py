"""The line of consumers as processes: killed leaders and killed consumers lose nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fdbqueue import Depth, Queue, fdb
from tests.acceptance.running import Programs
from tests.schemes import forced

CONSUMERS = 4
MESSAGES = 60


@pytest.fixture
def queue(db: fdb.Database, space: fdb.Subspace) -> Queue:
    return forced(Queue.create(db, "orders", root=space, lease=2, max_attempts=None), "staged")


def acknowledged(printed: Sequence[str]) -> list[str]:
    return [word for out in printed for word in out.split() if word != "began"]


def test_a_leader_that_is_killed_delays_and_does_not_block(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, programs: Programs
) -> None:
    # Given a leader that serves nobody, and consumers behind it
    leader = programs.start("stander.py", space.key().hex(), queue.name, "lead")
    assert leader.stdout is not None
    assert leader.stdout.readline().strip() == "leads"
    ids = queue.enqueue_many(db, [b"x"] * MESSAGES)
    consumers = [
        programs.start("stander.py", space.key().hex(), queue.name, MESSAGES)
        for _ in range(CONSUMERS)
    ]

    # When it is killed
    leader.kill()

    # Then the others take every message once
    done = acknowledged(programs.finish(consumers))
    assert sorted(done) == ids
    assert queue.depth(db) == Depth(enqueued=MESSAGES, done=MESSAGES)


def test_consumers_that_are_killed_anywhere_in_the_line_lose_nothing(
    db: fdb.Database, queue: Queue, space: fdb.Subspace, programs: Programs
) -> None:
    # Given consumers, half of which are killed while they stand in line, lead, or have a message
    ids = queue.enqueue_many(db, [b"x"] * MESSAGES)
    consumers = [
        programs.start("stander.py", space.key().hex(), queue.name, MESSAGES)
        for _ in range(CONSUMERS)
    ]
    for consumer in consumers[: CONSUMERS // 2]:
        assert consumer.stdout is not None
        consumer.stdout.readline()
        consumer.kill()

    # Then the others do what is left, and what had been given to the dead
    done = acknowledged(programs.finish(consumers[CONSUMERS // 2 :]))
    assert len(set(done)) == len(done)
    assert set(done) <= set(ids)
    assert queue.depth(db) == Depth(enqueued=MESSAGES, done=MESSAGES)
