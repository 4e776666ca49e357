"""What histories of tools/chaos record of real deliveries."""

from __future__ import annotations

import pytest
from workload.clients import row
from workload.history import Operation
from workload.view import View

from fdbqueue import NewMessage, Queue
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.schemes import forced


@pytest.mark.parametrize("scheme", ["first", "staged", "auto"])
def test_every_delivery_after_an_expired_lease_has_a_higher_number(
    db: fdb.Database, space: fdb.Subspace, scheme: str
) -> None:
    # Given messages whose leases expire, first those of batches and then one by one
    clock = ManualClock()
    queue = forced(Queue.create(db, "q", root=space, lease=60, backoff=None, clock=clock), scheme)
    region = {"region": "eu"}
    queue.enqueue_many(db, [NewMessage(each, headers=region) for each in (b"1", b"2")])
    rows = []
    for _ in range(4):
        while found := queue.receive_many(db, 2):
            rows += [row(one) for one in found]
        clock.seconds += 61
        queue.admin.sweep(db)
    # When they are read as a history
    view = View([Operation("x.0", 1, "receive", "q", 0, 0, ended=1, result=rows)])
    # Then each delivery of a message has a higher number than the one before
    numbers = [[one.nth for one in taken] for taken in view.taken.values()]
    assert [len(each) for each in numbers] == [4, 4]
    assert all(each == sorted(set(each)) for each in numbers)
