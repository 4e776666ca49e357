"""A run of tools/chaos: real processes, killed, paused and disturbed, and nothing is violated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import DEADLINE

TOOLS = Path(__file__).parents[2] / "tools"


def chaos(
    environment: dict[str, str], history: Path, *arguments: object, deadline: float
) -> dict[str, Any]:
    """The figures of a run that must show no violation."""
    done = subprocess.run(
        [sys.executable, "-m", "chaosrun", "--history", history, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=deadline,
        env={**environment, "PYTHONPATH": os.pathsep.join([str(TOOLS), *sys.path])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert told[-1] == "0 violations"
    figures: dict[str, Any] = json.loads(told[1])
    return figures


def test_nothing_is_violated_by_processes_that_are_tortured(
    environment: dict[str, str], tmp_path: Path, embedded: bool
) -> None:
    # When seven processes are tortured
    arguments = ("--seed", 9, "--operations", 500, "--seconds", DEADLINE / 2, "--every", 0.3)
    figures = chaos(environment, tmp_path / "h", *arguments, "--processes", 7, deadline=DEADLINE)
    # Then they were indeed, and every guarantee held
    assert figures["kills"] > 0
    assert figures["messages"] > 0
    assert (figures["interrupted"] > 0) is embedded
    assert sum(figures["retried"].values()) > 0
    handled = "".join(each.read_text() for each in (tmp_path / "h").glob("tasks-*.jsonl"))
    assert '"handle"' in handled


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_violated_in_ten_minutes_of_it(
    environment: dict[str, str], tmp_path: Path, seed: int
) -> None:
    figures = chaos(environment, tmp_path / "h", "--seed", seed, "--seconds", 600, deadline=1_500)
    assert figures["kills"] >= 100
