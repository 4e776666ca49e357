"""``fdbq doctor`` finds what is wrong, says what to do, and that helps."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from msgspec.structs import replace

from fdbqueue import Bounds, Queue, fdb
from fdbqueue.consumers import registry
from fdbqueue.messages import run
from fdbqueue.schema.codec import pack_counters
from fdbqueue.schema.leases import Lease, pack_expiry, place_of
from fdbqueue.testing import ManualClock
from tests.acceptance.running import Fdbq
from tests.consumers import process
from tests.taking import take


def findings(fdbq: Fdbq, name: str, *options: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """What it finds about a queue, by check."""
    ended = fdbq("doctor", name, "--json", *options)
    assert ended.code == code, ended
    assert ended.json["ok"] is (code == 0)
    return {each["check"]: each for each in ended.json["findings"] if each["subject"] == name}


def test_a_healthy_store_and_queue_have_no_findings(
    db: fdb.Database, fdbq: Fdbq, name: str, embedded: bool
) -> None:
    Queue(name).enqueue(db, b"x")
    Queue(name).receive(db, lease=3600)

    ended = fdbq.ok("doctor", name, "--full")

    advice = re.findall("→ (.*)", ended.out)
    # The tests' own store does not force its commits to the disk.
    assert all("power cut" in each for each in advice) or not embedded
    assert "1 queue verified, 1 without findings" in ended.out
    assert findings(fdbq, name) == {}


def test_what_is_wrong_with_a_queue_is_found_and_mended_as_it_says(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    # Given a queue with a wrong counter, a dead letter and bounds, that is paused
    queue = Queue(name)
    queue.enqueue_many(db, [b"x"] * 5)
    scope = queue._scope(db.create_transaction())
    registry.register(db, scope, process(db, queue), "a")
    delivery = take(db, queue)
    queue.reject(db, delivery, "no")
    queue.set_options(db, bounds=Bounds(messages=4), dead_letter_queue="nowhere")
    queue.admin.pause(db)
    db.add(queue._keys.count(5), pack_counters((0, 3, *[0] * 9)))

    # When it is looked at
    found = findings(fdbq, name, "--full", code=1)

    # Then each is told, with what to do
    assert found.keys() == {"pause", "limits", "dead", "counters"}
    assert found["limits"]["state"] == "problem"
    assert "'nowhere' does not exist" in found["dead"]["detail"]
    assert found["counters"]["detail"].startswith("counter: level 5: ")
    assert found["counters"]["advice"] == f"fdbq doctor {name} --repair"

    # And that helps
    assert "(repaired)" in fdbq(*found["counters"]["advice"].split()[1:]).out
    fdbq.ok(*found["pause"]["advice"].split()[1:])
    fdbq.ok("queue", "set", name, "bounds.messages=none", "dead_letter_queue=none")
    fdbq.ok("message", "purge", name, "--all", "--state", "dead", "--yes")
    assert findings(fdbq, name) == {}


def test_leases_that_nobody_takes_back_are_found(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    # Given a lease that lapsed long ago, by both clocks
    queue = Queue(name)
    queue.enqueue(db, b"x")
    delivery = take(db, queue, lease=0.001)
    rewrite_expiry(db, queue, delivery.token, seconds_ago=60)

    found = findings(fdbq, name)

    assert "1 lease expired" in found["leases"]["detail"]
    fdbq.ok(*found["leases"]["advice"].split()[1:])
    assert queue.depth(db).ready == 1
    assert "deaths" in findings(fdbq, name, code=1)


def rewrite_expiry(db: fdb.Database, queue: Queue, token: bytes, seconds_ago: int) -> None:
    """Make a lease one that ended some seconds ago by the wall clock."""
    tr = db.create_transaction()
    key = run.token_key(queue._keys, token)
    stored = tr.get(key).value
    assert stored is not None
    lease = Lease.unpack(stored)
    moved = replace(lease, expiry_ms=int(time.time() - seconds_ago) * 1000)
    tr[key] = moved.pack()
    expiry = queue._keys.expiry(lease.expiry_version, lease.claim)
    tr[expiry] = pack_expiry(moved.expiry_ms, [place_of(lease.position)])
    tr.commit().wait()


def test_its_report_is_json_to_programs(fdbq: Fdbq, name: str) -> None:
    report = json.loads(fdbq.ok("doctor", name, "--json").out)
    assert report["ok"] is True
    assert {"set-up", "latency", "queues"} <= {e["check"] for e in report["findings"]}
    assert set(report["findings"][0]) == {"state", "check", "subject", "detail", "advice"}


def test_a_queue_that_cannot_be_read_is_shown_as_that_and_can_be_deleted(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    # Given a queue of another format, with messages
    queue = Queue(name)
    queue.enqueue_many(db, [b"a", b"b"])
    db[queue._keys.meta] = b"\x63"

    # Then it is a finding, and stands in the list of all
    found = findings(fdbq, name, code=1)
    assert "it has version 99" in found["readable"]["detail"]
    (listed,) = [each for each in fdbq.ok("queue", "list", "--json").json if each["queue"] == name]
    assert (listed["unreadable"], listed["ready"]) == (True, 2)
    assert "it has version 99" in fdbq.ok("queue", "show", name).out
    assert "2 messages" in fdbq.ok("queue", "delete", name, "--dry-run").out
    fdbq.ok("queue", "delete", name, "--yes")
    assert name not in fdbq.ok("queue", "list").out
    Queue.create(db, name)


def test_who_only_browses_is_no_consumer_and_who_waits_for_a_subscription_is(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    clock = ManualClock()
    queue = Queue(name)
    queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    queue.subscriptions.open(db, "audit", mode="browse")
    clock.seconds -= 3600
    Queue(name, clock=clock).enqueue(db, b"x", headers={"region": "us"})
    session = process(db, queue)
    scope = queue._scope(db.create_transaction())
    registry.register(db, scope, session, "a", acquiring=False, subscription="audit")
    found = findings(fdbq, name, code=1)
    assert "no worker" in found["workers"]["detail"]
    assert found.keys() == {"workers"}
    registry.register(db, scope, session, "b", subscription="europe")
    assert findings(fdbq, name) == {}
    listed = fdbq.ok("worker", "list", name).out
    assert re.search("a +0 +non acquiring +audit", listed)
    assert re.search("b +0 +not interested +europe", listed)
