"""The units and manifests of docs/kit start what there is, and give it the time that it needs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fdbqueue.store.connection import Connection
from fdbqueue.worker.health import Probes, routes
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
NO_DATABASE: Any = None
PATHS = routes(Probes([], Connection(NO_DATABASE), lambda: False), None, list).keys()


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


# -- Kubernetes ------------------------------------------------------------------------------


def manifests(name: str = "kubernetes.yml") -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KIT / name).read_text()))


def pods() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The Deployments: their names, the specifications of their pods, and their containers."""
    for each in manifests():
        if each["kind"] == "Deployment":
            template = each["spec"]["template"]
            assert each["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
            (container,) = template["spec"]["containers"]
            yield each["metadata"]["name"], template["spec"], container


def test_containers_run_commands_with_options_that_there_are() -> None:
    assert [container["command"][1] for _, _, container in pods()] == ["worker", "metrics"]
    for _, _, container in pods():
        parse(container["command"])


def test_probes_ask_where_the_worker_answers() -> None:
    ((_, _, worker), _) = pods()
    command = worker["command"]
    host, _, port = command[command.index("--health") + 1].rpartition(":")
    assert host == "0.0.0.0"
    assert worker["ports"] == [{"name": "health", "containerPort": int(port)}]
    asked = {
        name: worker[name]["httpGet"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert all(each["port"] == "health" for each in asked.values())
    paths = [each["path"] for each in asked.values()]
    assert paths == ["/livez", "/livez", "/readyz"]
    assert {*paths} <= PATHS


def test_a_pod_has_the_time_to_finish() -> None:
    ((_, pod, _), _) = pods()
    assert pod["terminationGracePeriodSeconds"] > STOPPED
