"""The units and manifests of docs/kit start what there is, and give it the time that it needs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from fdbqueue.worker.runtime import HURRY_SECONDS
from fdbqueue.worker.worker import SHUTDOWN_SECONDS
from tests.acceptance.running import FDBQ
from tests.docs.test_kit import DOCS
from tests.patience import DEADLINE
from tests.unit.test_commands import parse

KIT = DOCS / "kit"
UNIT = KIT / "fdbqueue-worker@.service"
STOPPED = SHUTDOWN_SECONDS + 3 * HURRY_SECONDS
"""Seconds after which a worker has stopped, at most."""


# -- systemd ---------------------------------------------------------------------------------


def unit() -> dict[str, str]:
    """The settings of the unit, each with its last value."""
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M))


def variables() -> dict[str, str]:
    """The variables that the unit's comment shows."""
    return dict(re.findall(r"^#   ([A-Z_]+)=(.*)$", UNIT.read_text(), re.M))


def test_the_unit_starts_a_worker_with_options_that_there_are() -> None:
    line = unit()["ExecStart"]
    for name, value in variables().items():
        line = line.replace(f"${{{name}}}", value).replace(f"${name}", value)
    words = shlex.split(line)
    assert "$" not in line
    assert Path(words[0]).name == "fdbq"
    parse(["fdbq", *words[1:]])
    assert "FDB_CLUSTER_FILE" in variables()


def test_the_unit_lets_a_worker_finish_and_tells_it_once() -> None:
    assert int(unit()["TimeoutStopSec"]) > STOPPED
    assert unit()["KillMode"] == "mixed"
    assert "KillSignal" not in unit()
    assert unit()["Restart"] == "on-failure"


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    text = UNIT.read_text().replace(unit()["ExecStart"].split()[0], str(FDBQ))
    (tmp_path / UNIT.name).write_text(text)
    instance = tmp_path / UNIT.name.replace("@", "@orders")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", instance],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    mine = [line for line in done.stderr.splitlines() if UNIT.name in line]
    if not mine and done.returncode:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr}")
    assert mine == []
