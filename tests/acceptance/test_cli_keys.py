"""Keys on the command line: who waits for whom, and limits that change while a queue runs."""

from __future__ import annotations

from fdbqueue import NewMessage, Queue, fdb
from tests.acceptance.running import Fdbq


def test_keys_are_listed_shown_and_limited(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    assert "no message" in fdbq.ok("limit", "list", "--queue", name).err
    ids = queue.enqueue_many(db, [NewMessage(b"x", key="tenant-17")] * 4)
    queue.enqueue_many(db, [NewMessage(b"x", key="b")] * 2)

    # Given keys of which messages wait, they are listed and say what they wait for
    (first, second) = fdbq.ok("limit", "list", "--queue", name, "--json").json
    assert (first["key"], first["waiting"], first["limits"]) == ("b", 1, {})
    assert (second["key"], second["waiting"]) == ("tenant-17", 3)
    cut = fdbq.ok("limit", "list", "--queue", name, "--max", "1")
    assert cut.out.splitlines()[-1].startswith("b ")
    assert "--after b" in cut.err
    assert (
        "waits for a slot: 1 of 1 out, the oldest "
        in fdbq.ok("limit", "show", "b", "--queue", name).out
    )

    # When a key gets a limit of its own, its messages come out
    made = fdbq.ok("limit", "set", "tenant-17", "--queue", name, "--concurrency", "3")
    assert made.out == f"key tenant-17 of queue {name}: concurrency 3, 1 waiting\n"
    shown = fdbq.ok("limit", "show", "tenant-17", "--queue", name, "--json").json
    assert (shown["concurrency"], shown["waiting"], shown["own"]) == (3, 1, {"concurrency": 3})
    assert sorted(shown["out"]) == sorted(ids[:3])

    # And when it is paused, none follows
    assert fdbq.ok("limit", "pause", "tenant-17", "--queue", name, "--json").json["paused"] is True
    queue.ack(db, queue.receive_many(db, 10))
    assert "the key is paused" in fdbq.ok("limit", "show", "tenant-17", "--queue", name).out
    assert "concurrency 3, paused" in fdbq.ok("limit", "list", "--queue", name).out
    fdbq.ok("limit", "resume", "tenant-17", "--queue", name)
    assert fdbq.ok("limit", "show", "tenant-17", "--queue", name, "--json").json["out"] == [ids[3]]
    assert (
        fdbq.ok("limit", "delete", "tenant-17", "--queue", name, "--yes", "--json").json["deleted"]
        is True
    )
    after = fdbq.ok("limit", "show", "tenant-17", "--queue", name, "--json").json
    assert (after["concurrency"], after["own"]) == (1, {})
    wide = fdbq.ok("limit", "set", "b", "--queue", name, "--concurrency", "none", "--window", "1")
    assert wide.out.endswith(": concurrency none, window 1, 0 waiting\n")
    heavy = fdbq.ok("limit", "set", "b", "--queue", name, "--weight", "3", "--json").json
    assert (heavy["window"], heavy["weight"]) == (1, 3)
    assert "weight       3" in fdbq.ok("limit", "show", "b", "--queue", name).out
    assert fdbq("limit", "set", "b", "--queue", name).code == 2
    refused = fdbq("limit", "set", "tenant-17", "--queue", name, "--weight", "2")
    assert (refused.code, "needs a window" in refused.err) == (2, True)
    assert fdbq("limit", "set", "b", "--queue", name, "--weight", "none").code == 2


def test_a_limit_that_makes_no_sense_is_refused(fdbq: Fdbq, name: str) -> None:
    for given in ("0", "many", "-1", "2.5"):
        refused = fdbq("limit", "set", "a", "--queue", name, "--concurrency", given)
        assert refused.code == 2, given
        assert refused.err.startswith("fdbq: "), given


def test_a_key_says_that_it_waits_for_its_rate(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    fdbq.ok("queue", "set", name, "keys.concurrency=none")
    made = fdbq.ok("limit", "set", "tenant-17", "--queue", name, "--rate", "10/hour, burst 2")
    assert made.out.endswith(": concurrency none, rate 10/hour, burst 2, 0 waiting\n")
    queue.enqueue_many(db, [NewMessage(b"x", key="tenant-17")] * 4)
    shown = fdbq.ok("limit", "show", "tenant-17", "--queue", name).out
    assert "rate         10/hour, burst 2" in shown
    assert "waits for its rate: next in 5 m, the oldest " in shown
    told = fdbq.ok("limit", "show", "tenant-17", "--queue", name, "--json").json
    assert (told["rate"], told["waiting"]) == ("10/hour, burst 2", 2)
    assert "next" in told
    assert "rate 10/hour, burst 2" in fdbq.ok("limit", "list", "--queue", name).out
    assert fdbq.ok("limit", "set", "tenant-17", "--queue", name, "--rate", "none").code == 0
    assert "rate         none" in fdbq.ok("limit", "show", "tenant-17", "--queue", name).out
    for given in ("10", "ten/s", "10/fortnight", "0/s"):
        refused = fdbq("limit", "set", "a", "--queue", name, "--rate", given)
        assert (refused.code, "rate" in refused.err) == (2, True), given
