"""``fdbq doctor`` names each incident: made here with real processes, and bounds of no time."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fdbqueue import Bounds, NewMessage, Queue, Then, fdb
from fdbqueue.cli import trail
from fdbqueue.cli.monitor import doctor, incidents
from fdbqueue.cli.monitor.diagnosis import OK, PROBLEM, WARNING
from fdbqueue.web import application
from tests.acceptance.on_call import APP
from tests.acceptance.running import Fdbq, Workers, run_anew, start
from tests.patience import DEADLINE, eventually
from tests.taking import take


@pytest.fixture
def workers(tmp_path: Path, environment: dict[str, str], name: str) -> Iterator[Workers]:
    workers = Workers(tmp_path, {**environment, "QUEUE": name}, APP)
    yield workers
    workers.end()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let what usually is borne for some time be told at once."""

    def patch(*names: str) -> None:
        for each in names:
            monkeypatch.setattr(incidents, each, 0)

    return patch


def found(db: fdb.Database, name: str, check: str) -> tuple[str, str, str] | None:
    """What is said of a queue, or a process, in a line of the report: how bad it is, what, and what
    to do."""
    every = doctor.examine(db, [name], [name], full=False, repair=False, update=lambda _: None)
    told = [each for each in every if each.check == check and each.state != OK]
    return (told[0].state, told[0].detail, told[0].advice) if told else None


def told(db: fdb.Database, name: str, check: str) -> tuple[str, str, str]:
    """As ``found``, once it is there."""
    lines: list[tuple[str, str, str]] = []

    def look() -> bool:
        lines.extend([line] if (line := found(db, name, check)) else [])
        return bool(lines)

    eventually(look)
    return lines[0]


def test_a_busy_system_that_is_well_has_no_line(
    db: fdb.Database, fdbq: Fdbq, name: str, workers: Workers
) -> None:
    queue = Queue.open(db, name)
    queue.set_options(db, history_seconds=60)
    queue.enqueue_many(db, [NewMessage(b"x", key=f"k{n % 7}") for n in range(2_000)])
    workers.start("worker", "--processes", "2", stderr=True)
    eventually(lambda: queue.depth(db).done > 500)
    ended = fdbq("doctor", name, "--json")
    assert [each for each in ended.json["findings"] if each["subject"] == name] == []
    assert ended.code == 0


def test_all_places_are_taken_and_nothing_ends(
    db: fdb.Database, name: str, workers: Workers, at_once: Callable[..., None]
) -> None:
    at_once("STUCK_MS")
    workers.gate.touch()
    ids = [Queue.open(db, name).enqueue(db, b"stays") for _ in range(2)]
    workers.start("worker", stderr=True)
    state, detail, advice = told(db, name, "handlers")
    assert state == PROBLEM
    assert "all 2 places" in detail
    assert "app.pack" in detail
    assert any(f"fdbq message show {name} {each}" in advice for each in ids)


def test_a_handler_is_far_above_its_median(
    db: fdb.Database,
    name: str,
    workers: Workers,
    at_once: Callable[..., None],
) -> None:
    at_once("STUCK_MS")
    workers.gate.touch()
    queue = Queue.open(db, name)
    for _ in range(20):
        queue.enqueue(db, b"x")
    workers.start("worker", stderr=True)
    eventually(lambda: queue.depth(db).done == 20)
    slow = queue.enqueue(db, b"stays")
    state, detail, advice = told(db, name, "handlers")
    assert (state, slow in detail, "app.pack" in detail) == (WARNING, True, True)
    assert f"fdbq message cancel {name} {slow}" in advice


def test_all_attempts_fail_with_one_error(db: fdb.Database, name: str, workers: Workers) -> None:
    Queue.open(db, name).enqueue_many(db, [b"fails"] * 5)
    workers.start("worker", stderr=True)
    state, detail, advice = told(db, name, "failures")
    assert state == PROBLEM
    assert detail.endswith("with: ValueError: no stock")
    assert advice.endswith(f"fdbq message retry {name} --state retrying --all")


def test_a_message_kills_processes(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue.open(db, name)
    message_id = queue.enqueue(db, b"x")
    # A process takes it, and is gone
    fdbq.ok("receive", name, "--lease", "0.1", "--json")
    eventually(lambda: (queue.admin.sweep(db), queue.depth(db).retrying)[1])
    state, detail, advice = told(db, name, "deaths")
    assert state == PROBLEM
    assert detail == f"a process died as it handled {message_id}, which is retrying"
    assert advice.endswith(f"fdbq message cancel {name} {message_id}")


@pytest.mark.parametrize("how", ["key", "paused key", "limit", "rate"])
def test_a_key_a_limit_or_a_rate_holds_messages_back(
    db: fdb.Database, name: str, at_once: Callable[..., None], how: str
) -> None:
    if how in ("key", "limit"):
        at_once("HELD_MS")
    queue = Queue.open(db, name)
    limits = {"api": name} if how == "limit" else None
    if how == "limit":
        queue.limits["api", name].set(db, concurrency=1)
    elif how == "rate":
        queue.keys["k"].set(db, rate="1/min")
    elif how == "paused key":
        queue.keys["k"].pause(db)
    queue.enqueue_many(db, [NewMessage(b"x", key=None if limits else "k", limits=limits)] * 4)
    state, detail, advice = told(db, name, "waiting")
    assert state == WARNING
    if how == "limit":
        assert detail.startswith(f"3 messages of limit api={name}: waits for a slot: 1 of 1 out")
        queue.limits["api", name].delete(db)
    elif how == "rate":
        assert "the last comes in 2 m" in detail or "the last comes in 3 m" in detail
    else:
        assert ("is paused" in detail) is (how == "paused key")
    assert advice.split()[:3] == ["fdbq", "limit", "resume" if how == "paused key" else "show"]


@pytest.mark.parametrize("when", ["ready", "due"])
def test_no_worker_takes_the_messages_of_a_queue(
    db: fdb.Database, name: str, at_once: Callable[..., None], when: str
) -> None:
    Queue.open(db, name).enqueue(db, b"x", delay=0.001 if when == "due" else 0)
    # At first a program may come that polls
    assert told(db, name, "workers")[0] == WARNING
    at_once("DESERTED_MS")
    state, detail, advice = told(db, name, "workers")
    assert (state, "no worker" in detail) == (PROBLEM, True)
    assert advice.startswith("start one: fdbq worker")


@pytest.mark.parametrize(
    ("number", "state"), [(signal.SIGSTOP, "stopped"), (signal.SIGKILL, "gone")]
)
def test_a_process_is_stopped_or_lost(
    db: fdb.Database,
    fdbq: Fdbq,
    name: str,
    workers: Workers,
    number: signal.Signals,
    state: str,
) -> None:
    workers.gate.touch()
    message_id = Queue.open(db, name).enqueue(db, b"stays")
    process = workers.start("worker", stderr=True)

    def told_work() -> bool:
        every = fdbq.ok("worker", "list", "--json").json
        return any(
            each["running"] for one in every for each in one["work"] if each["queue"] == name
        )

    eventually(told_work)
    os.kill(process.pid, number)
    if number is signal.SIGKILL:
        process.wait()
    line = told(db, name, "process")
    assert line[0] == PROBLEM
    assert f"it is {state}, and" in line[1]
    assert f"it holds {name} {message_id}" in line[1]
    assert ("kill -CONT" in line[2]) is (state == "stopped")


def test_a_process_is_lost_before_it_has_told_what_it_handles(
    db: fdb.Database, name: str, workers: Workers
) -> None:
    workers.told.touch()
    message_id = Queue.open(db, name).enqueue(db, b"kills")
    workers.start("worker", stderr=True).wait(DEADLINE)
    _, detail, advice = told(db, name, "process")
    assert f"it holds {name} {message_id}" in detail
    assert advice.endswith(f"fdbq message show {name} {message_id}")


@pytest.mark.parametrize("why", ["no worker looks", "the queue is paused"])
def test_a_schedule_is_late(
    db: fdb.Database, name: str, at_once: Callable[..., None], why: str
) -> None:
    at_once("LATE_MS")
    queue = Queue.open(db, name)
    queue.schedules.set(db, "nightly", every=1.0)
    if "paused" in why:
        queue.admin.pause(db)
    state, detail, _ = told(db, name, "schedules")
    assert (state, detail.startswith("schedule nightly is late by")) == (PROBLEM, True)
    assert why in detail


def test_a_group_waits_for_a_dead_member(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue.open(db, name)
    queue.enqueue_many(db, [b"a"], group=Then(NewMessage(b"all done"), on="done", name="load 17"))
    delivery = take(db, queue)
    queue.reject(db, delivery, "no stock")
    state, detail, advice = told(db, name, "groups")
    assert state == PROBLEM
    assert detail == "group load 17 waits for 1 member that died or ended otherwise"
    # What it advises redrives it, or forgets it
    redrive, forget = (shlex.split(each)[1:] for each in advice.split("; or "))
    fdbq.ok(*forget, "--dry-run")
    fdbq.ok(*redrive, "--yes")
    assert found(db, name, "groups") is None


def test_nobody_reads_a_subscription(db: fdb.Database, name: str) -> None:
    queue = Queue.open(db, name)
    queue.subscriptions.open(db, "audit", mode="browse")
    queue.enqueue_many(db, [b"x"] * 400)
    state, detail, _ = told(db, name, "subscriptions")
    assert state == WARNING
    assert detail == "nobody reads subscription audit, which has 400 messages to see"


def test_a_queue_is_full(db: fdb.Database, name: str) -> None:
    queue = Queue.open(db, name)
    queue.set_options(db, bounds=Bounds(messages=2))
    queue.enqueue_many(db, [b"x"] * 2)
    state, detail, _ = told(db, name, "limits")
    assert (state, detail) == (PROBLEM, "it holds 2 of at most 2 messages")


def test_a_producer_waits_for_room(
    db: fdb.Database,
    fdbq: Fdbq,
    name: str,
    environment: dict[str, str],
    tmp_path: Path,
    at_once: Callable[..., None],
) -> None:
    at_once("STUCK_MS")
    queue = Queue.open(db, name)
    queue.set_options(db, bounds=Bounds(messages=1, when_full="block"))
    queue.enqueue(db, b"x")
    producer = start(["enqueue", name, "y"], environment, tmp_path)
    state, detail, _ = told(db, name, "producers")
    who = f"1 call of {socket.gethostname()}:{producer.pid}, for"
    assert (state, who in detail) == (WARNING, True)
    assert who in fdbq.ok("queue", "show", name).out
    page = TestClient(application(db, hosts=["testserver"])).get("/queue", params={"queue": name})
    assert f"{producer.pid}</bdi> waits for room with 1 call (" in page.text
    fdbq.ok("message", "purge", name, "--all", "--yes")
    producer.communicate(timeout=DEADLINE)
    assert producer.returncode == 0
    assert found(db, name, "producers") is None


WRONG_CLOCK = """
import sys, time
now, now_ns, hours = time.time, time.time_ns, int(sys.argv.pop(1))
time.time = lambda: now() + 3600 * hours
time.time_ns = lambda: now_ns() + 3600 * hours * 10**9
from fdbqueue.cli import main
main()
"""


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_is_wrong(environment: dict[str, str], name: str, hours: int) -> None:
    command = [sys.executable, "-c", WRONG_CLOCK, str(hours), "doctor", name]
    ended = run_anew(command, environment)
    line = re.search(r"problem  clock machine: .* is 86\d{3}\.\d s (.*) the cluster's", ended.out)
    assert line is not None, ended
    assert line[1] == ("ahead of" if hours > 0 else "behind")
    assert ended.code == 1


def test_the_audit_log_says_who_did_what_and_since_when_a_queue_is_paused(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    Queue.open(db, name).enqueue_many(db, [b"x"] * 3)
    fdbq.ok("queue", "pause", name)
    fdbq.ok("message", "purge", name, "--all", "--dry-run")
    fdbq.ok("message", "purge", name, "--all", "--yes")
    lines = [each for each in fdbq.ok("debug", "audit", "--json").json if each["queue"] == name]
    assert [(each["action"], each["count"]) for each in lines] == [("purge", 3), ("pause", 0)]
    assert lines[0]["what"] == {"every": "True"}
    assert all(each["who"] == trail.who() for each in lines)
    for text in (fdbq.ok("queue", "show", name).out, told(db, name, "pause")[1]):
        assert f"by {trail.who()}" in text
    fdbq.ok("queue", "resume", name)
    assert found(db, name, "pause") is None
    # A program says by whom, or nobody knows: the one who paused it before has not done it again.
    for by in ("billing 1.4", ""):
        Queue(name).admin.pause(db, by=by)
        pause = fdbq.ok("queue", "show", name, "--json").json["pause"]
        assert pause["by"] == by
        assert trail.who() not in told(db, name, "pause")[1]
        Queue(name).admin.resume(db)
    fdbq.ok("schedule", "set", name, "nightly", "x", "--every", "1h")
    fdbq.ok("schedule", "run", name, "nightly")
    line = next(each for each in fdbq.ok("debug", "audit", "--json").json if each["queue"] == name)
    assert (line["action"], line["count"]) == ("run-schedule", 1)


def test_a_command_that_has_changed_some_messages_and_missed_others_is_in_the_audit_log(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    there, gone = Queue.open(db, name).enqueue_many(db, [b"x", b"x"])
    Queue(name).purge(db, ids=[gone])
    assert fdbq("message", "purge", name, there, gone, "--yes").code == 1
    lines = [each for each in fdbq.ok("debug", "audit", "--json").json if each["queue"] == name]
    assert [(each["action"], each["state"], each["count"]) for each in lines] == [
        ("purge", "done", 1)
    ]
