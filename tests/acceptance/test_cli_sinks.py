"""``fdbq stream``: what was interrupted is listed, finished, or forgotten."""

from __future__ import annotations

from fdbqueue import Bounds, Queue, fdb
from tests.acceptance.running import Fdbq
from tests.progress import Steps


def interrupted(db: fdb.Database, name: str, sink: str) -> None:
    """Publish a part of a batch."""
    queue = Queue(name)
    queue.set_options(db, bounds=Bounds(messages=10, when_full="block"))
    stager = queue.streams.sink(sink).stage(db, 0)
    for n in range(25):
        stager.plain(b"%d" % n, 4)
    queue.streams.sink(sink).publish(db, 0, [stager.finish()], room=0, progress=Steps(1))
    queue.set_options(db, bounds=Bounds(messages=None, when_full="reject"))


def test_a_write_that_was_interrupted_is_listed_and_finished(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    interrupted(db, name, "load of Monday")
    before = Queue(name).depth(db).enqueued
    assert 0 < before < 25

    (told,) = fdbq.ok("stream", "list", name, "--unfinished", "--json").json
    assert (told["stream"], told["rows"], told["enqueued"]) == ("load of Monday", 25, before)
    assert not told["complete"]
    assert "unfinished" in fdbq.ok("stream", "list", name).out

    done = fdbq.ok("stream", "finish", name, "load of Monday", "--json").json
    assert done["enqueued"] == 25 - before
    assert Queue(name).depth(db).enqueued == 25
    assert fdbq.ok("stream", "list", name, "--unfinished", "--json").json == []
    assert "complete" in fdbq.ok("stream", "list", name).out


def test_a_sink_is_forgotten(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    interrupted(db, name, "s")
    left = 25 - Queue(name).depth(db).enqueued
    tried = fdbq.ok("stream", "forget", name, "s", "--dry-run").out
    assert f"with {left} rows not enqueued" in tried
    assert "Re-run with --yes to confirm" in fdbq.refused("stream", "forget", name, "s", code=2)
    assert fdbq.ok("stream", "forget", name, "s", "--yes", "--json").json["lost"] == left
    assert "has no stream 's'" in fdbq.refused("stream", "forget", name, "s", "--yes", code=1)
    assert "has no stream 's'" in fdbq.refused("stream", "finish", name, "s", code=1)
    assert "has no streams" in fdbq.ok("stream", "list", name).err


def test_rows_whose_driver_died_are_told_of_everywhere_and_removed(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    # Given two tasks that are done, and a driver that never says which count
    queue = Queue(name)
    for _ in range(2):
        stager = queue.streams.sink("load of Monday").stage(db, 0)
        for n in range(25):
            stager.plain(b"%d" % n, 4)
        stager.finish()

    (told,) = fdbq.ok("stream", "list", name, "--unfinished", "--json").json
    assert (told["stream"], told["state"], told["complete"]) == ("load of Monday", "staged", False)
    assert told["staged"] == {"attempts": 2, "rows": 50, "bytes": 80}
    assert "50 (fdbq stream list)" in fdbq.ok("queue", "show", name).out
    assert "50 rows staged for sink 'load of Monday'" in fdbq.ok("doctor", name).out
    forgot = fdbq.ok("stream", "forget", name, "load of Monday", "--yes", "--json").json
    assert (forgot["lost"], forgot["forgotten"]) == (50, True)
    assert queue.admin.verify(db).staged == 0
