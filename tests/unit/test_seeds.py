"""A failure of something random says how to have it again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RANDOM = """
import random

import pytest
from hypothesis import given, strategies as st

DRAWN = []

def test_of_chance():
    assert random.random() == "chance"

@pytest.mark.parametrize("name", ["it's"])
def test_of_examples(name):
    @given(st.integers())
    def examples(number):
        DRAWN.append(number)

    examples()
    assert DRAWN == "examples"
"""


def ran(directory: Path, *arguments: str, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("FDBQUEUE_TESTS_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.seeds", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def failures(told: str) -> list[str]:
    return re.findall(r"^E +AssertionError: assert (.*) ==", told, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.long
def test_the_command_that_is_printed_runs_what_failed_again_with_the_same_chances(
    tmp_path: Path,
) -> None:
    # Given tests that fail with whatever chance gives them
    (tmp_path / "test_random.py").write_text(RANDOM)
    told = ran(tmp_path, "-vv")
    seen = failures(told)
    assert len(seen) == 2
    # When the commands are run that are printed for them
    commands = [shlex.split(line) for line in told.splitlines() if " tools/test " in line]
    assert len(commands) == 2
    for (setting, _, nodeid), before in zip(commands, seen, strict=True):
        variable, _, seed = setting.partition("=")
        # Then they fail with the same
        assert failures(ran(tmp_path, "-vv", nodeid, **{variable: seed})) == [before]
    # And another run is given something else
    assert set(failures(ran(tmp_path, "-vv"))).isdisjoint(seen)
