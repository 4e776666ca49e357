"""Simulated processes keep every guarantee, whatever the seed; see docs/simulation.md."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from simulation import mutants

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
FRESH_OPERATIONS = 20_000
"""Which takes less than a minute of two cores."""
OPERATIONS = 300
"""Of a seed."""
CORPUS = [
    line
    for line in (HERE / "corpus.txt").read_text().splitlines()
    if line and not line.startswith("#")
]

pytestmark = pytest.mark.long


def simulate(*arguments: str, **environment: str) -> list[dict[str, Any]]:
    """What came of each seed."""
    found = subprocess.run(
        [sys.executable, "-m", "simulation", "--json", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={
            **os.environ,
            "FDBQUEUE_STORE": "embedded:/nonexistent/simulated",
            "PYTHONPATH": "tools",
            **environment,
        },
    )
    assert found.stdout, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def sound(outcomes: list[dict[str, Any]]) -> None:
    for outcome in outcomes:
        problems = "\n".join(outcome["problems"])
        around = "\n".join(map(str, outcome.get("around", ())))
        assert not problems, f"{outcome['again']}\n{problems}\n{around}"


@pytest.mark.promise(1, 2, 3, 4, 5, 6, 7)
def test_fresh_seeds_keep_every_guarantee() -> None:
    first, count = str(random.randrange(10**9)), str(-(-FRESH_OPERATIONS // OPERATIONS))
    found = simulate("--seed", first, "--seeds", count, "--operations", str(OPERATIONS))
    sound(found)
    assert sum(outcome["operations"] for outcome in found) >= FRESH_OPERATIONS


@pytest.mark.sample(4)
@pytest.mark.parametrize("line", CORPUS)
def test_what_once_failed_does_not_fail_again(line: str) -> None:
    sound(simulate(*line.split()))


def test_a_seed_is_one_history_whatever_the_hash_seed_and_what_ran_before() -> None:
    few = ("--operations", "100")
    both = simulate("--seed", "12", "--seeds", "2", *few, PYTHONHASHSEED="1")
    first, second = sorted(both, key=lambda outcome: outcome["seed"])
    (alone,) = simulate("--seed", "13", *few, PYTHONHASHSEED="2")
    assert second["digest"] == alone["digest"] != first["digest"]


@pytest.fixture(scope="module")
def idle() -> list[str]:
    """What is wrong after some time without messages."""
    (found,) = simulate("--seed", "11", "--operations", "100", "--idle", "300")
    problems: list[str] = found["problems"]
    assert all(one.startswith(("idle: ", "left: ")) for one in problems), problems
    return problems


def test_idle_consumers_ask_the_store_at_most_every_ten_seconds(idle: list[str]) -> None:
    assert not [one for one in idle if one.startswith("idle: ")]


def test_idle_stores_have_only_rows_that_stay(idle: list[str]) -> None:
    assert not [one for one in idle if one.startswith("left: ")]


MUTANTS = sorted(mutants.TABLE)
IN_THE_SUITE = ("forgets_outcomes", "miscounts")


def finds(mutant: str, *settings: str) -> None:
    first, most = str(random.randrange(10**9)), str(50_000 // OPERATIONS)
    outcomes = simulate(
        *("--seed", first, "--seeds", most, "--operations", str(OPERATIONS), *settings),
        *("--mutant", mutant, "--until-found"),
    )
    assert outcomes[-1]["problems"]


@pytest.mark.parametrize("mutant", IN_THE_SUITE)
def test_a_planted_fault_is_found(mutant: str) -> None:
    finds(mutant, "--idle", "0")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("time", range(3))
def test_a_planted_fault_is_found_from_any_seed(mutant: str, time: int) -> None:
    finds(mutant)
