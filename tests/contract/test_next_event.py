"""When a consumer that waits has to look again."""

from __future__ import annotations

import pytest

from fdbqueue import Queue
from fdbqueue.messages import agenda
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.consumers import woken

Database = fdb.Database
Subspace = fdb.Subspace

pytestmark = pytest.mark.queue(lease=60)


def following(db: Database, queue: Queue) -> float | None:
    tr = db.create_transaction()
    scope = queue._scope(tr)
    return agenda.next_seconds(tr, scope, agenda.coming(tr, scope))


def test_the_next_event_is_the_first_message_due_or_lease_to_lapse(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    assert following(db, queue) is None
    queue.enqueue(db, b"later", delay=3600)
    assert following(db, queue) == pytest.approx(3600, abs=30)
    queue.enqueue(db, b"now")
    queue.receive(db)
    assert following(db, queue) == pytest.approx(60, abs=30)
    clock.wall_only = 3000
    assert following(db, queue) == pytest.approx(60, abs=30), "the other clock is not there yet"
    clock.seconds, clock.wall_only = 4000, 0
    assert following(db, queue) == 0


def test_a_consumer_that_waits_is_given_what_becomes_due(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "real", root=space)
    assert woken(db, queue, lambda: queue.enqueue(db, b"soon", delay=0.2)) == [b"soon"]


def test_a_resumed_queue_wakes_who_waits(db: Database, queue: Queue) -> None:
    queue.admin.pause(db)
    queue.enqueue(db, b"here")
    assert woken(db, queue, lambda: queue.admin.resume(db)) == [b"here"]
