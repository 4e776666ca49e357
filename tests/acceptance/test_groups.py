"""Groups on the command line."""

from __future__ import annotations

from fdbqueue import Queue, Then, fdb
from tests.acceptance.running import Fdbq
from tests.taking import take


def test_groups_on_the_command_line(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    assert "has no groups" in fdbq.ok("group", "list", name).err
    for group in ("one", "two"):
        queue.enqueue_many(db, [b"a", b"b"], group=Then(b"all", name=group))
    delivery = take(db, queue)
    queue.ack(db, delivery)

    # They are listed, and each alone
    (first, second) = fdbq.ok("group", "list", name, "--json").json
    assert (first["group"], first["left"], second["left"]) == ("one", 1, 2)
    assert "--after one" in fdbq.ok("group", "list", name, "--max", "1").err
    (shown,) = fdbq.ok("group", "list", name, "two", "--json").json
    assert (shown["group"], shown["done"], shown["then_queue"]) == ("two", 0, name)
    shown = fdbq.ok("group", "list", name, "one").out
    assert f"a message in {name}, when all are done" in shown
    assert "two" not in shown
    assert fdbq("group", "list", name, "none").code == 1
    assert fdbq("group", "list", name, "two", "--after", "one").code == 2

    # And forgotten
    assert "would forget" in fdbq.ok("group", "forget", name, "one", "--dry-run").out
    fdbq.ok("group", "forget", name, "one", "--yes")
    assert fdbq("group", "forget", name, "one", "--yes").code == 1
    assert [each.name for each in queue.groups.list(db)] == ["two"]
