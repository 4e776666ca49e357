"""What pages say of defaults, limits and states is what the code does."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from fdbqueue import Bounds, Depth, Queue, fdb
from fdbqueue.cli.monitor import diagnosis, incidents
from fdbqueue.cli.monitor.findings import PROBLEM, WARNING, Finding
from fdbqueue.cli.monitor.incidents import Seen
from fdbqueue.cli.queues.queue_list import WaitingMessages
from fdbqueue.consumers import fulfilment, line, sessions
from fdbqueue.consumers.receiving import try_receive
from fdbqueue.errors import InvalidArgument
from fdbqueue.messages import selection_pages, settle
from fdbqueue.messages.delivery import scan
from fdbqueue.messages.enqueue import bounds
from fdbqueue.messages.groups import callbacks
from fdbqueue.messages.streams import staging, undecided
from fdbqueue.metrics import queues as measured
from fdbqueue.queue import enqueue, validation
from fdbqueue.queue.admin.verification import Deviation, Verification
from fdbqueue.queue.bulk import back_pressure, producer
from fdbqueue.queue.continuations import groups, results, successors
from fdbqueue.schema import audit_log, consumers, envelope, once
from fdbqueue.schema.consumers import Running, Session, Work
from fdbqueue.spark import spark_session
from fdbqueue.store import connection
from fdbqueue.subscriptions import acquire, cursors, exclusive
from fdbqueue.values import backoff, compression, selector, verdicts
from fdbqueue.values.groups import Group
from fdbqueue.values.model import RANDOM_BYTES
from fdbqueue.values.options import (
    DEFAULT_ATTEMPTS,
    DEFAULT_PRIORITY,
    MAX_LEVELS,
    MAX_PAYLOAD,
    QueueOptions,
)
from fdbqueue.values.states import State
from fdbqueue.web import filters, payload_text, runs, server, server_sent_events, watcher
from fdbqueue.worker import attempt, decisions, prefetch, worker
from fdbqueue.worker.health import loops, probe_server
from tests.docs.test_pages import PAGES, ROOT

OPTIONS = QueueOptions()
WAITS = {
    name: sum(
        [backoff.delay_seconds(OPTIONS.backoff, n, choose) for n in range(1, DEFAULT_ATTEMPTS)]
    )
    for name, choose in {"least": min, "most": max}.items()
}
WORDS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
N = rf"([\d,.]+|{'|'.join(WORDS)})"
"""A number, or a word for one."""
FACTS = {
    rf"(?:up to|maximum is|tries|tried|by default) {N} (?:attempts|times in)": DEFAULT_ATTEMPTS,
    rf"waits add up to {N} hours at least": int(WAITS["least"] / 3600),
    rf"hours at least, {N} at most": round(WAITS["most"] / 3600),
    rf"`max_deaths` \({N}\)": OPTIONS.max_deaths,
    rf"the message rests for {N} seconds": settle.FIRST_REST,
    rf"each further one, up to {N} minutes\. `delivery": settle.MAX_REST / 60,
    rf"ready again at once, up to {N} times": settle.FREE_RELEASES,
    rf"as long each time, up to {N} seconds": settle.MAX_DELAY,
    rf"0 to 9(?:;|,) (?:and|the default is) {N}\b": DEFAULT_PRIORITY,
    rf"to 255(?:,)? with `levels={N}`": MAX_LEVELS,
    rf"`dedup_window`, {N} seconds by default": OPTIONS.dedup_window,
    rf"`dedup_window` seconds, {N} unless": OPTIONS.dedup_window,
    rf"the payload of one message: {N} bytes": OPTIONS.max_payload,
    rf"bytes by default, and at most {N}": MAX_PAYLOAD,
    rf"`peek` stop at {N} bytes": scan.BATCH_BYTES,
    rf"compresses payloads of {N} kB or more": compression.COMPRESSED_FROM / 1_000,
    rf"one of up to {N} kB if that has a key": envelope.GATED_INLINE_LIMIT / 1_000,
    rf"The first {N} characters of the error": envelope.MAX_ERROR_CHARACTERS,
    rf"its last {N} failed attempts": envelope.KEPT_FAILURES,
    rf"the traceback: up to {N} bytes": verdicts.TRACEBACK_BYTES,
    rf"A producer holds up to {N} messages": producer.PENDING,
    rf"\(`max_pending`\) and {N} MB": producer.PENDING_BYTES / 1e6,
    rf"A transaction takes up to {N} messages \(`max_batch`\)": producer.BATCH,
    rf"up to `room` seconds \({N}\)": back_pressure.ROOM_SECONDS,
    rf"`bounds.resume_at` \({N}\)": OPTIONS.bounds.resume_at,
    rf"each enqueue drops up to {N} messages": bounds.MAX_DROPPED,
    rf"a key and up to {N} limits": validation.MAX_LIMITS,
    rf"takes up to {N} successors": successors.MAX_SUCCESSORS,
    rf"More than {N} messages, or 4 MB, take several": groups.STEP,
    rf"a group has up to {N} messages": enqueue.MAX_BATCH,
    rf"not enqueued again for {N} days": callbacks.KEPT_MS / 86_400_000,
    rf"A result has at most {N} kB": results.MAX_BYTES / 1_000,
    rf"`receive_many`, up to {N}": try_receive.MAX_MESSAGES,
    rf"plus `prefetch`, is {N} messages at most": try_receive.MAX_MESSAGES,
    rf"up to `shutdown` seconds \({N}\)": worker.SHUTDOWN_SECONDS,
    rf"after {N} conflicts in a row a worker joins": 4,
    rf"queue runs up to {N} messages in a row": decisions.RUN,
    rf"finish in {N} milliseconds": decisions.AHEAD_SECONDS * 1_000,
    rf"milliseconds, up to {N} messages and 4 MB": decisions.MAX_AHEAD,
    rf"messages and {N} MB\. So the commits": prefetch.MAX_AHEAD_BYTES / 1e6,
    rf"too slow {N} times": attempt.MAX_SLOW,
    rf"has made none for {N} minutes": loops.TURN_SECONDS / 60,
    rf"cut off after {N} seconds; if": probe_server.READ_SECONDS,
    rf"if there are {N} of them, the one": probe_server.MAX_CLIENTS,
    rf"stands still for less than {N} seconds": sessions.DEAD_SECONDS,
    rf"{N} to 20 seconds later": sessions.DEAD_SECONDS,
    rf"waits? for {N} to 20 seconds": sessions.DEAD_SECONDS,
    rf"unless it has done so within {N} milliseconds": decisions.REFRESH_SECONDS * 1_000,
    rf"exceeds 90 kB \({N} kB with a key": envelope.GATED_INLINE_LIMIT / 1_000,
    rf"Lines are kept for {N} days": audit_log.KEPT_SECONDS / 86_400,
    rf"for {N} s nobody takes what is ready": incidents.DESERTED_MS / 1_000,
    rf"`limits` \({N} % of a bound": incidents.NEARLY_FULL * 100,
    rf"`data`, `cluster`, `clock` \({N} s off": diagnosis.BAD_SKEW_SECONDS,
    rf"`limits`, `clock` \({N} s off": diagnosis.SKEW_SECONDS,
    rf"answered for `lost_after` seconds \({N}\)": connection.LOST_SECONDS,
    rf"with the first messages, up to {N} requests": fulfilment.MAX_SERVED,
    rf"request of a dead consumer is dropped after {N} seconds": line.ALIVE_SECONDS,
    rf"has not used it for {N} seconds": exclusive.HOLD_SECONDS,
    rf"skipped {N} messages, or 50 kB": acquire.MIN_SKIPPED,
    rf"messages, or {N} kB, of a level": acquire.MIN_SKIPPED_BYTES / 1_000,
    rf"or {N} MB(?: of them)?, in (?:a|each) transaction": cursors.MAX_SCANNED_BYTES / 1e6,
    rf"evaluates at most {N} selectors": consumers.MAX_TESTS,
    rf"a selector has up to {N} characters": selector.MAX_LENGTH,
    rf"transactions of up to {N} messages, calls `progress": selection_pages.PAGE_ROWS,
    rf"in your own transaction, up to {N} of them": selection_pages.PAGE_IDS,
    rf"unknown for more than {N} minutes": once.KEPT_MINUTES,
    rf"seconds {N} times raises `TransactionTooSlow`": once.MAX_TOO_OLD,
    rf"lets out up to {N} others": once.LET_OUT_ROWS,
    rf"others of up to {N} kB": once.LET_OUT_BYTES / 1_000,
    rf"shows the first {N} queues": measured.MOST_QUEUES,
    rf"A filter checks up to {N} messages": filters.MAX_CHECKED,
    rf"messages, or for {N} seconds, and then says": filters.MAX_SECONDS,
    rf"counts for up to {N} seconds": filters.COUNT_SECONDS,
    rf"often it is sent, and for {N} minutes": runs.ASKED_SECONDS / 60,
    rf"Payloads are shown up to {N} kB": payload_text.SHOWN_BYTES // 1_024,
    rf"`fdbq web` holds up to {N} connections": server.MAX_CONNECTIONS,
    rf"none of its answer for {N} seconds": server.TAKE_SECONDS,
    rf"\b{N} pages have a stream of events": server_sent_events.MAX_PAGES,
    rf"It sets up to {N} watches": watcher.MAX_WATCHES,
    rf"the rest staged for {N} days": undecided.KEPT_DAYS,
    rf"in the order of the partitions, up to {N} in a transaction": staging.STEP_ROWS,
    rf"Java {N} or later": spark_session.OLDEST_JAVA,
    rf"first place there, and {N} random digits": RANDOM_BYTES * 2,
}


def number(said: str) -> float:
    return WORDS.index(said) + 2 if said in WORDS else float(said.replace(",", "").strip("."))


@pytest.mark.parametrize(("said", "value"), FACTS.items(), ids=lambda value: str(value)[:30])
def test_each_page_that_says_it_says_what_the_code_does(said: str, value: float) -> None:
    found = {
        f"{page.name}: {each[0]}": number(each[1])
        for page in PAGES
        for each in re.finditer(said, " ".join(page.read_text().split()))
    }
    assert found, "no page says it any more: take it out of the list"
    assert {where: each for where, each in found.items() if each != value} == {}


def test_pages_name_each_state_of_a_message() -> None:
    (page,) = [each for each in PAGES if each.name == "guarantees.md"]
    text = page.read_text()
    assert [each.value for each in State if each.value not in text] == []


VERB = re.compile(r"^\| `(\w+)` \| .* \| (all but )?(\w+(?:, \w+)*) \((.*)\) \|$", re.MULTILINE)


def test_the_table_of_verbs_names_the_states_that_each_takes(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    queue, other = (Queue.create(db, name, root=space) for name in ("verbs", "other"))
    living = {"ready", "waiting", "retrying", "scheduled", "leased", "dead"}
    arguments: dict[str, dict[str, Any]] = {
        "edit": {"priority": 1},
        "move": {"target": other},
        "copy": {"target": other},
    }
    page = (ROOT / "docs" / "selectors.md").read_text()
    rows = VERB.findall(page)
    assert [row[0] for row in rows] == ["cancel", "retry", "edit", "move", "copy", "purge"]
    for verb, but, named, _ in rows:
        taken = living - {*named.split(", ")} if but else {*named.split(", ")}
        for state in living:
            call = partial(getattr(queue, verb), db, match="FALSE", states=state)
            if state in taken:
                call(**arguments.get(verb, {}))
            else:
                with pytest.raises(InvalidArgument, match="states"):
                    call(**arguments.get(verb, {}))


HOUR = 3_600_000
FULL = QueueOptions(bounds=Bounds(messages=10))
GROUP = Group("g", "done", "failed", 2, 1, 1, 1, 0, "orders", None, 0, None)
HUNG = Work("w", "handle", "handle", 1, 1, 0, 0, None, (Running("a", None, 1, 0),))
SLOW = Work("w", "handle", "handle", 2, 1, 0, 0, 1, (Running("a", None, 1, 0),))
FAILING = Work("w", "handle", "handle", 2, 0, 0, 9, None, ())
GATE = WaitingMessages("key a", 3, "all slots are taken", HOUR)
QUEUES: list[dict[str, Any]] = [
    {"options": QueueOptions(paused=True)},
    {"waiting_ms": 5_000},
    {"waiting_ms": HOUR},
    {"works": [("here:1", HUNG)], "now_ms": HOUR},
    {"works": [("here:1", SLOW)], "now_ms": HOUR},
    {"works": [("here:1", FAILING)]},
    {"deadly": [("a", 1, "retrying")]},
    {"held": [GATE]},
    {"late": [("nightly", HOUR)], "consumers": 1},
    {"groups": [GROUP]},
    {"producing": ["here:1"]},
    {"unread": [("audit", 5)]},
    {"overdue_ms": [HOUR]},
    {"options": FULL, "depth": Depth(ready=9)},
    {"options": FULL, "depth": Depth(ready=10)},
    {"staged": [("sink", 5, HOUR)]},
    {"depth": Depth(dead=1)},
    {"target_exists": False},
    {"verified": Verification((Deviation("counter", "5", "x"),), (), 1)},
    {"verified": Verification((), ("leases",), 1)},
]
CLUSTERS: list[dict[str, Any]] = [
    {"client": {"database_status": {"available": False}}},
    {"client": {"database_status": {"healthy": False}}},
    {"cluster": {"qos": {"performance_limited_by": {"name": "disk"}}}},
]
STORES = [
    *(diagnosis.commits("full", full=True), diagnosis.space(1, "/"), diagnosis.data(["a row"])),
    *(diagnosis.skew(60), diagnosis.skew(5), diagnosis.latency(9_999, 1), diagnosis.pace(1)),
    *(diagnosis.durability("off"), *(one for each in CLUSTERS for one in diagnosis.cluster(each))),
]


def test_the_table_of_the_doctor_says_what_is_a_problem_and_what_a_warning() -> None:
    session = Session("here", 1, 0, 0, 0)
    found = {
        "queues": [
            diagnosis.unreadable("orders", "another format"),
            *incidents.silent(session, HOUR, "gone"),
            *(one for each in QUEUES for one in incidents.of(_seen(**each))),
        ],
        "store": STORES,
    }
    page = (ROOT / "docs" / "operating.md").read_text()
    for state in (PROBLEM, WARNING):
        (row,) = re.findall(rf"^\| {state}: [^|]*\|([^|]*)\|([^|]*)\|$", page, re.MULTILINE)
        for said, findings in zip(row, found.values(), strict=True):
            assert {*re.findall(r"`(\w+)`", said)} == _checks(findings, state)


def _seen(**seen: Any) -> Seen:
    return Seen("orders", **{"options": OPTIONS, "depth": Depth(), **seen})


def _checks(findings: list[Finding], state: str) -> set[str]:
    return {each.check for each in findings if each.state == state}
