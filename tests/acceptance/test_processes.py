"""What holds when several processes work on one queue, and when one of them is killed."""

from __future__ import annotations

import pytest

from fdbqueue import NewMessage, Queue, fdb
from tests.acceptance.running import Fdbq, Programs, told
from tests.patience import DEADLINE

MESSAGES = 100


@pytest.mark.parametrize("moment", ["held", "written"])
@pytest.mark.promise(2)
def test_messages_of_a_killed_worker_come_back_and_take_effect_once(
    db: fdb.Database, space: fdb.Subspace, queue: Queue, programs: Programs, moment: str
) -> None:
    # Given a worker that holds messages
    ids = queue.enqueue_many(db, [NewMessage(b"%d" % n, n % 10) for n in range(MESSAGES)])
    arguments = (space.key().hex(), queue.name, MESSAGES)
    victim = programs.start("worker.py", *arguments, moment)
    held = int(told(victim))
    assert held > 0
    assert queue.depth(db).leased == held

    # When it is killed, and others go on
    victim.kill()
    victim.wait()
    again = programs.finish([programs.start("worker.py", *arguments) for _ in range(2)])

    # Then what it held was delivered again, and every message took effect once
    assert sum(map(int, again)) >= held
    effects = space.subspace(("effects",))
    counted = {
        effects.unpack(kv.key)[0]: int.from_bytes(kv.value, "little")
        for kv in db.get_range(effects.range().start, effects.range().stop)
    }
    assert counted == dict.fromkeys(ids, 1)
    depth = queue.depth(db)
    assert (depth.done, depth.ready, depth.leased, depth.dead) == (MESSAGES, 0, 0, 0)


def test_the_example_worker_counts_each_order_once(
    db: fdb.Database, name: str, fdbq: Fdbq, programs: Programs
) -> None:
    worker = programs.start("../../../docs/examples/worker.py", name)
    assert name in told(worker)
    region = f"region of {name}"
    totals = fdb.Subspace(("orders by region",))

    try:
        fdbq.ok("enqueue", name, "tea", "--header", f"region={region}")
        assert told(worker).endswith("'tea'")
        assert db[totals.pack((region,))] == (1).to_bytes(8, "little")
        assert Queue(name).depth(db).done == 1

        worker.terminate()
        assert worker.wait(DEADLINE) == 0
    finally:
        del db[totals.pack((region,))]
