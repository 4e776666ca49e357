"""Schedules whose workers are killed, and schedules on the command line."""

from __future__ import annotations

from fdbqueue import Queue, fdb
from tests.acceptance.running import Fdbq


def test_schedules_on_the_command_line(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    assert "has no schedules" in fdbq.ok("schedule", "list", name).err
    cron = ("--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--limit", "api=stripe")
    made = fdbq.ok("schedule", "set", name, "nightly", "a report", *cron, "--overlap", "skip")
    assert made.out.startswith(
        f"schedule nightly of queue {name}: 0 3 * * * Europe/Berlin, next in"
    )
    fdbq.ok("schedule", "set", name, "poll", "--every", "90s", "--priority", "9", "--key", "p")

    # They are listed and shown
    (first, second) = fdbq.ok("schedule", "list", name, "--json").json
    assert (first["schedule"], first["payload"], first["overlap"]) == (
        "nightly",
        "a report",
        "skip",
    )
    assert (second["every"], second["priority"], second["key"]) == (90, 9, "p")
    assert first["limits"] == {"api": "stripe"}
    cut = fdbq.ok("schedule", "list", name, "--max", "1")
    assert "--after nightly" in cut.err
    shown = fdbq.ok("schedule", "show", name, "nightly", "--json").json
    assert shown["next"].endswith((":00:00.000+00:00", "Z"))
    assert fdbq("schedule", "show", name, "none").code == 1

    # Run, paused, resumed and deleted
    message_id = fdbq.ok("schedule", "run", name, "nightly").out.strip()
    assert [each.id for each in queue.peek(db)] == [message_id]
    assert "paused" in fdbq.ok("schedule", "pause", name, "nightly").out
    assert "paused" in fdbq.ok("schedule", "list", name).out
    assert "next in" in fdbq.ok("schedule", "resume", name, "nightly").out
    assert "would delete" in fdbq.ok("schedule", "delete", name, "nightly", "--dry-run").out
    fdbq.ok("schedule", "delete", name, "nightly", "--yes")
    assert [each.name for each in queue.schedules.list(db)] == ["poll"]

    # And what makes no sense is refused
    for given in (["--cron", "never"], [], ["--every", "1ms"], [*cron, "--timezone", "Mars"]):
        refused = fdbq("schedule", "set", name, "wrong", *given)
        assert refused.code == 2, given
        assert refused.err.startswith("fdbq: ")
