"""What a command imports: every module costs each command, whether it needs it or not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    "asyncio",
    "click",
    "concurrent.futures",
    "difflib",
    "fdbqueue.testing",
    "fdbqueue.worker",
    "importlib.abc",
    "importlib.resources",
    "lark",
    "opentelemetry",
    "pyspark",
    "pytest",
    "rich",
    "tenacity",
    "typer",
}


def test_a_command_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    store = {"FDBQUEUE_STORE": f"embedded:{tmp_path}/store.fdbq"}
    for each in [("create", "orders"), ("list",)]:
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT, "queue", *each],
            env={**os.environ, **store},
            capture_output=True,
            text=True,
            check=True,
        )
    assert not NOT_NEEDED & set(ran.stderr.split())
