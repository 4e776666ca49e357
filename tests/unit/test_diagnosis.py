"""What the doctor makes of what it sees."""

from __future__ import annotations

from fdbqueue import Bounds, Depth, QueueOptions
from fdbqueue.cli.monitor import incidents
from fdbqueue.cli.monitor.incidents import Seen


def of(**seen: object) -> list[tuple[str, str]]:
    found = incidents.of(
        Seen("orders", **{"options": QueueOptions(), "depth": Depth(), **seen})  # type: ignore[arg-type]
    )
    return [(finding.state, finding.check) for finding in found]


def test_both_bounds_are_told_apart() -> None:
    options = QueueOptions(bounds=Bounds(messages=10, bytes=10))
    found = [*incidents.of(Seen("orders", options, Depth(ready=10, ready_bytes=10)))]
    assert [finding.advice.split()[-1] for finding in found] == [
        "bounds.messages=20",
        "bounds.bytes=20",
    ]


def test_advice_can_be_pasted_into_a_shell() -> None:
    seen = Seen("two words; reboot", QueueOptions(), Depth(dead=1))
    (finding,) = incidents.of(seen)
    assert finding.advice == "fdbq message find 'two words; reboot' --state dead"
