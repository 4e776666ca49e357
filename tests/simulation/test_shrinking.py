"""A failure becomes a small one, and is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from simulation import lanes
from simulation.run import Settings
from simulation.shrink import shrink
from workload.history import Operation

from tests.simulation.test_simulation import simulate


def fails_with_a_death(settings: Settings, seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Fails for every third seed, where somebody dies, among at least ten operations."""
    for seed in seeds:
        fails = seed % 3 == 0 and "death" not in settings.without and settings.operations >= 10
        others = ["verify: something else"] * (settings.operations < 10)
        yield {"seed": seed, "problems": ["liveness: stuck"] if fails else others}


def test_what_a_failure_does_not_need_is_left_out() -> None:
    first = Settings(seed=6, operations=1_000)
    found, outcome = shrink(first, {"problems": ["liveness: is stuck"]}, fails_with_a_death)
    assert 10 <= found.operations < 20
    assert "death" not in found.without
    assert {"conflict", "worker", "enqueue_one"} <= found.without
    assert outcome["problems"] == ["liveness: stuck"]


def operation(who: str, name: str, began: float, ended: float | None, **more: Any) -> Operation:
    over = None if ended is None else int(ended * 1e9)
    return Operation(who, 1, name, "first", int(began * 1e9), 0, ended=over, **more)


def test_each_operation_is_drawn_in_the_lane_of_its_client_beside_those_under_way() -> None:
    shown = [
        operation("a", "enqueue", 1.0, None, what={"text": "<&>"}),
        operation("b", "receive", 2.0, 3.0, result=["x"]),
    ]
    _, first, second = lanes.text(shown)
    assert first.split()[:3] == ["1.0000", "for", "ever"]
    assert second.split()[2:5] == ["│", "●", "receive"]
    drawn = ElementTree.fromstring(lanes.svg(shown))
    bars = [each for each in drawn.iter() if each.tag.endswith("rect")]
    assert [float(each.attrib["width"]) > 0 for each in bars] == [True, True]
    assert len({each.attrib["y"] for each in bars}) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    ["miscounts", "keeps_slots", "forgets_outcomes", "publishes_twice", "cuts_a_row_away"],
)
def test_a_planted_fault_is_shown_in_a_few_lines(mutant: str) -> None:
    told = simulate("--seeds", "60", "--operations", "300", "--mutant", mutant, "--shrink")
    assert 1 < len(told[-1]["shown"]) <= 1 + lanes.MOST_LINES
