"""Limits that queues share, on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from fdbqueue import NewMessage, Queue, fdb
from fdbqueue.queue.keys.shared_limits import Limits
from tests.acceptance.running import Fdbq


@pytest.fixture
def dimension(db: fdb.Database, name: str) -> Iterator[str]:
    """A dimension of the test's own, since limits are those of the root."""
    yield f"of {name}"
    for each in Limits().list(db, 1_000):
        if each.dimension == f"of {name}":
            Limits()[each.dimension, each.name].delete(db)


def test_limits_are_set_listed_shown_and_deleted(
    db: fdb.Database, fdbq: Fdbq, name: str, dimension: str
) -> None:
    queue, limit = Queue(name), f"{dimension}=stripe"
    made = fdbq.ok("limit", "set", limit, "--concurrency", "2")
    assert made.out == f"limit {dimension}=stripe: concurrency 2, 0 waiting\n"
    fdbq.ok("limit", "set", f"{dimension}=zeta", "--concurrency", "none")
    for n in range(3):
        fdbq.ok("enqueue", name, str(n), "--limit", f"{dimension}=stripe")
    ids = [each.id for each in queue.peek(db, 10)]
    queue.enqueue(db, b"3", limits={dimension: "stripe"})

    # Given messages that wait, it says for what
    shown = fdbq.ok("limit", "show", limit).out
    assert "waits for a slot: 2 of 2 out, for " in shown
    assert f"; 2 in {name}" in shown
    assert all(each in shown for each in ids)
    told = fdbq.ok("limit", "show", limit, "--json").json
    assert (told["concurrency"], told["waiting"], told["paused"]) == (2, 2, False)
    assert sorted(each["id"] for each in told["out"]) == sorted(ids)
    assert told["waiting_in"] == {name: 2}
    (waits,) = (
        each for each in fdbq.ok("message", "find", name, "--state", "waiting", "--json").json[:1]
    )
    assert (waits["limits"], waits["waits_for"]) == (
        {dimension: "stripe"},
        f"limit {dimension}=stripe",
    )
    listed = fdbq.ok("limit", "list", "--json").json
    assert [(e["name"], e["waiting"]) for e in listed if e["dimension"] == dimension] == [
        ("stripe", 2),
        ("zeta", 0),
    ]
    behind = fdbq.ok("limit", "list", "--after", f"{dimension}=stripe", "--json").json
    assert "stripe" not in [e["name"] for e in behind if e["dimension"] == dimension]

    # When it is paused, none follows
    assert fdbq.ok("limit", "pause", limit, "--json").json["paused"] is True
    assert "the limit is paused" in fdbq.ok("limit", "show", limit).out
    queue.ack(db, queue.receive_many(db, 10))
    assert fdbq.ok("limit", "show", limit, "--json").json["waiting"] == 2
    assert fdbq.ok("limit", "resume", limit, "--json").json["waiting"] == 0

    # And messages with their limit can be piped
    line = json.dumps({"payload": "4", "limits": {dimension: "stripe"}})
    fdbq.ok("enqueue", name, given=line)
    assert fdbq.ok("limit", "show", limit, "--json").json["waiting"] == 1
    tried = fdbq.ok("limit", "delete", limit, "--dry-run", "--json").json
    assert (tried["deleted"], tried["waiting"]) == (False, 1)
    fdbq.ok("limit", "delete", limit, "--yes")
    assert fdbq.ok("limit", "show", limit, "--json").json["concurrency"] is None
    assert len(queue.receive_many(db, 10)) == 3


def test_a_shared_limit_that_makes_no_sense_is_refused(
    fdbq: Fdbq, name: str, dimension: str
) -> None:
    for given in ("0", "many", "-1", "2.5"):
        refused = fdbq("limit", "set", f"{dimension}=a", "--concurrency", given)
        assert refused.code == 2, given
        assert refused.err.startswith("fdbq: "), given
    assert fdbq("limit", "set", f"{dimension}=a").code == 2
    for given in ("5", "0/s", "5/week"):
        assert fdbq("limit", "set", f"{dimension}=a", "--rate", given).code == 2, given
    assert fdbq("enqueue", name, "x", "--limit", "stripe").code == 2
    twice = fdbq("enqueue", name, "x", "--limit", "api=stripe", "--limit", "api=other")
    assert (twice.code, "given twice" in twice.err) == (2, True)
    headers = fdbq("enqueue", name, "x", "--header", "a=1", "--header", "a=2")
    assert (headers.code, "a is given twice" in headers.err) == (2, True)


def test_a_message_may_have_a_key_and_several_limits(fdbq: Fdbq, name: str, dimension: str) -> None:
    other = f"{dimension}-2"
    for each in (dimension, other):
        fdbq.ok("limit", "set", f"{each}=a", "--concurrency", "1")
    both = ["--key", "k", "--limit", f"{dimension}=a", "--limit", f"{other}=a"]
    fdbq.ok("enqueue", name, "0", "--limit", f"{other}=a")
    message_id = fdbq.ok("enqueue", name, "1", *both).out.strip()
    fdbq.ok("enqueue", name, "2", *both)
    assert "waits for a slot: 1 of 1 out" in fdbq.ok("limit", "show", "k", "--queue", name).out
    assert fdbq.ok("limit", "show", f"{dimension}=a", "--json").json["waiting"] == 0
    shown = fdbq.ok("limit", "show", f"{other}=a", "--json").json
    assert [each["id"] for each in shown["next"]] == [message_id]


def test_a_shared_limit_says_that_its_messages_wait_for_their_rate(
    db: fdb.Database, fdbq: Fdbq, name: str, dimension: str
) -> None:
    limit = f"{dimension}=stripe"
    made = fdbq.ok("limit", "set", limit, "--rate", "10/hour, burst 2")
    assert made.out.endswith(": concurrency none, rate 10/hour, burst 2, 0 waiting\n")
    Queue(name).enqueue_many(db, [NewMessage(b"x", limits={dimension: "stripe"})] * 3)
    shown = fdbq.ok("limit", "show", limit).out
    assert "rate         10/hour, burst 2" in shown
    assert "waits for its rate: next in 5 m" in shown
    assert "next_at" in fdbq.ok("limit", "show", limit, "--json").json
    assert "10/hour, burst 2" in fdbq.ok("limit", "list", "--max", "1000").out


def test_messages_keep_their_limit_through_export(
    db: fdb.Database, fdbq: Fdbq, name: str, dimension: str
) -> None:
    queue = Queue(name)
    queue.enqueue_many(db, [NewMessage(b"x", limits={dimension: "stripe"})])
    printed = fdbq.ok("message", "find", name, "--json").out
    fdbq.ok("enqueue", name, given=printed)
    assert [each.limits for each in queue.peek(db, 10)] == [{dimension: "stripe"}] * 2
