"""What the doctor makes of what it sees."""

from __future__ import annotations

import pytest

from fdbqueue import Bounds, Depth, QueueOptions
from fdbqueue.cli.monitor import diagnosis, incidents
from fdbqueue.cli.monitor.findings import OK, PROBLEM, WARNING, Finding
from fdbqueue.cli.monitor.incidents import Seen
from fdbqueue.queue.admin.verification import Deviation, Verification


def of(**seen: object) -> list[tuple[str, str]]:
    found = incidents.of(
        Seen("orders", **{"options": QueueOptions(), "depth": Depth(), **seen})  # type: ignore[arg-type]
    )
    return [(finding.state, finding.check) for finding in found]


def test_a_queue_that_is_well_has_no_findings() -> None:
    assert of(overdue_ms=[50]) == []
    assert of(verified=Verification((), (), 3)) == []


@pytest.mark.parametrize(
    ("seen", "state", "check"),
    [
        ({"options": QueueOptions(paused=True)}, WARNING, "pause"),
        ({"overdue_ms": [60_000]}, WARNING, "leases"),
        ({"depth": Depth(dead=1)}, WARNING, "dead"),
        ({"target_exists": False}, PROBLEM, "dead"),
        (
            {"options": QueueOptions(bounds=Bounds(messages=10)), "depth": Depth(ready=9)},
            WARNING,
            "limits",
        ),
        (
            {"options": QueueOptions(bounds=Bounds(messages=10)), "depth": Depth(ready=10)},
            PROBLEM,
            "limits",
        ),
        (
            {"options": QueueOptions(bounds=Bounds(bytes=10)), "depth": Depth(ready_bytes=9)},
            WARNING,
            "limits",
        ),
        ({"verified": Verification((Deviation("counter", "5", "x"),), (), 1)}, PROBLEM, "counters"),
        ({"verified": Verification((), ("leases",), 1)}, WARNING, "counters"),
        (
            {"verified": Verification((Deviation("consumer dead", "5", "x"),), (), 1)},
            OK,
            "counters",
        ),
    ],
)
def test_what_is_wrong_with_a_queue_is_one_finding(
    seen: dict[str, object], state: str, check: str
) -> None:
    assert of(**seen) == [(state, check)]


def test_both_bounds_are_told_apart() -> None:
    options = QueueOptions(bounds=Bounds(messages=10, bytes=10))
    found = [*incidents.of(Seen("orders", options, Depth(ready=10, ready_bytes=10)))]
    assert [finding.advice.split()[-1] for finding in found] == [
        "bounds.messages=20",
        "bounds.bytes=20",
    ]


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (diagnosis.pace(1_000_000), OK),
        (diagnosis.pace(100_000), WARNING),
        (diagnosis.pace(90_000_000), WARNING),
        (diagnosis.skew(0.5), OK),
        (diagnosis.skew(-5), WARNING),
        (diagnosis.skew(100), PROBLEM),
        (diagnosis.latency(1, 1), OK),
        (diagnosis.latency(1_000, 1), WARNING),
        (diagnosis.space(10**12, "/data"), OK),
        (diagnosis.space(10**6, "/data"), PROBLEM),
        (diagnosis.durability("full"), OK),
        (diagnosis.durability("normal"), WARNING),
        (diagnosis.data([]), OK),
        (diagnosis.data(["rows that are not what was written: 2"]), PROBLEM),
    ],
)
def test_the_store_and_the_clocks(finding: Finding, state: str) -> None:
    assert finding.state == state
    assert bool(finding.advice) is (state != OK)


def test_what_a_cluster_says_is_told() -> None:
    well = {"client": {"database_status": {"available": True, "healthy": True}}}
    assert [finding.state for finding in diagnosis.cluster(well)] == [OK]
    assert [finding.state for finding in diagnosis.cluster({})] == [OK]
    ill = {
        "client": {"database_status": {"available": True, "healthy": False}},
        "cluster": {
            "messages": [{"name": "m", "description": "a disk is full"}],
            "qos": {"performance_limited_by": {"name": "log_server_write_queue"}},
        },
    }
    assert [finding.check for finding in diagnosis.cluster(ill)] == ["cluster", "limits", "cluster"]
    gone = {"client": {"database_status": {"available": False}}}
    assert [finding.state for finding in diagnosis.cluster(gone)] == [PROBLEM]


def test_advice_can_be_pasted_into_a_shell() -> None:
    seen = Seen("two words; reboot", QueueOptions(), Depth(dead=1))
    (finding,) = incidents.of(seen)
    assert finding.advice == "fdbq message find 'two words; reboot' --state dead"
