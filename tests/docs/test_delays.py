"""The example on real data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "docs" / "examples"
WORK = """
import time
from delays import db, flights, worker
with worker:
    while flights.depth(db).done < 150:
        time.sleep(0.01)
"""


@pytest.fixture
def python(tmp_path: Path) -> list[str]:
    """A Python beside the examples, with a store of its own."""
    store = f"FDBQUEUE_STORE=embedded:{tmp_path}/flights.fdbq"
    return ["env", f"--chdir={EXAMPLES}", store, sys.executable]


def told(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_each_flight_counts_once_however_often_its_worker_runs(python: list[str]) -> None:
    told(*python, "delays.py", "send", "150")
    for _ in range(2):
        told(*python, "-c", WORK)

    header, *rows = told(*python, "delays.py", "show").splitlines()
    assert header.split() == ["airline", "flights", "minutes", "late"]
    assert sum(int(row.split()[1]) for row in rows) == 150


def test_a_typo_shows_how_the_example_is_called(python: list[str]) -> None:
    done = subprocess.run(
        [*python, "delays.py", "send", "many"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "delays.py send 10000" in done.stderr
