"""What pages say of defaults, limits and states is what the code does."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from fdbqueue import Bounds, Depth, Queue, fdb
from fdbqueue.cli.monitor import diagnosis, incidents
from fdbqueue.cli.monitor.diagnosis import PROBLEM, WARNING, Finding
from fdbqueue.cli.monitor.incidents import Seen
from fdbqueue.errors import InvalidArgument
from fdbqueue.queue.admin.backlogs import WaitingMessages
from fdbqueue.queue.admin.verification import Deviation, Verification
from fdbqueue.schema.consumers import Running, Session, Work
from fdbqueue.values.groups import Group
from fdbqueue.values.options import (
    QueueOptions,
)
from fdbqueue.values.states import State
from tests.docs.test_pages import PAGES, ROOT

OPTIONS = QueueOptions()


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
            *incidents.silent(session, HOUR, "gone", ()),
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
