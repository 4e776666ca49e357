"""What a command imports: every module costs each command, whether it needs it or not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
sys.argv = ["fdbq", *sys.argv[1:]]
from fdbqueue.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
NOT_NEEDED = {
    "fdbqueue.messages.streams.planning",
    "fdbqueue.messages.streams.staging",
    "fdbqueue.testing",
    "fdbqueue.worker",
    "lark",
    "opentelemetry",
    "pyspark",
    "pytest",
    "rich",
    "tenacity",
}
COMMANDS = [
    "queue create orders",
    "queue list",
    "enqueue orders hello",
    "message find orders",
    "receive orders --ack",
    "message find orders --state dead",
    "message find orders --state leased",
    "status",
]
NOT_FOR_HELP = NOT_NEEDED | {"fdb", "fdbqueue.store.binding"}


def imported(line: str, status: int = 0, **environment: str) -> set[str]:
    """The modules that a process has in the end."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("FDB")}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *line.split()],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stderr
    return set(ran.stderr.split())


def test_a_command_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    first, *others = COMMANDS
    for line in (first, *random.sample(others, 3)):
        found = imported(line, FDBQUEUE_STORE=f"embedded:{tmp_path}/store.fdbq")
        assert not NOT_NEEDED & found, line


@pytest.mark.parametrize(
    ("line", "status"),
    [("--help", 0), ("--version", 0), ("queue --help", 0), ("queue list --bad-option", 2)],
)
def test_help_and_wrong_usage_import_no_bindings(line: str, status: int) -> None:
    assert not NOT_FOR_HELP & imported(line, status)


def test_a_command_on_a_cluster_does_not_import_the_engine(tmp_path: Path) -> None:
    cluster = tmp_path / "fdb.cluster"
    cluster.write_text("test:test@127.0.0.1:1")
    script = "import sys\ntry: import fdbqueue.store.binding\nexcept Exception as error:\n"
    script += "    assert 'libfdb_c' in str(error), error\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "FDBQUEUE_STORE": str(cluster)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"sqlite3", "fdbqueue.store.embedded.capi"} & set(ran.stdout.split())
