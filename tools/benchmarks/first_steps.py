"""The way of a new user, from a clone to a worker on real data: the commands of the docs, timed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fdbqueue.cli import terminal
from fdbqueue.values.records import record

from .checkout import ROOT

PAGE, HEADING = Path("docs/getting-started.md"), "## Try it on real data"
WORKER = "fdbq worker "
UNTIL_EMPTY = """until fdbq queue list --json | grep -q '"ready": 0, "delayed": 0, "leased": 0'
do kill -0 $! && sleep 0.1 || exit; done"""


@record
class Step:
    """A command, and the seconds until it was done; the worker's, until it had handled all."""

    command: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def commands(page: str) -> list[str]:
    """The commands of the page, without their comments."""
    _, found, after = page.partition(f"\n{HEADING}\n")
    block = re.search(r"^```text\n(.*?)^```$", after, re.MULTILINE | re.DOTALL)
    if not found or block is None:
        raise terminal.CommandError(f"{PAGE} has no commands below {HEADING!r}")
    return [line.removeprefix("$ ").partition("  #")[0] for line in block[1].splitlines()]


def run() -> Iterator[Step]:
    """Clone the project into a temporary directory, and follow the page there."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fdbqueue-start-")))
        shell = stack.enter_context(_shell(directory))
        clone = f"git clone --quiet {ROOT} fdbqueue && cd fdbqueue"
        yield Step("git clone, from this disk", _timed(shell, clone))
        for command in commands((directory / "fdbqueue" / PAGE).read_text()):
            handle = _handle_all if command.startswith(WORKER) else _timed
            yield Step(command, handle(shell, command))


def _handle_all(shell: subprocess.Popen[str], command: str) -> float:
    """Run the worker until its queue is empty."""
    return _timed(shell, f"{command} & {UNTIL_EMPTY}; kill -TERM $!; wait $!")


def _timed(shell: subprocess.Popen[str], command: str) -> float:
    """Have the shell run a command; returns the seconds that it took."""
    assert shell.stdin is not None
    assert shell.stdout is not None
    began = time.perf_counter()
    print(f"{{ {command}; }} >&2 </dev/null; echo $?", file=shell.stdin, flush=True)
    answer = shell.stdout.readline().strip()
    if answer != "0":
        raise terminal.CommandError(f"{command!r} failed with {answer or 'the shell'}")
    return time.perf_counter() - began


@contextmanager
def _shell(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell with an empty store, and as on a machine that never installed anything."""
    leave_out = ("VIRTUAL_ENV", "PYTHONPATH", "FDB_CLUSTER_FILE")
    environment = {name: text for name, text in os.environ.items() if name not in leave_out}
    environment["PIP_NO_CACHE_DIR"] = "1"
    environment["FDBQUEUE_STORE"] = f"embedded:{directory}/start.fdbq"
    with ExitStack() as stack:
        log = stack.enter_context((directory / "log").open("w"))
        shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
        try:
            yield shell
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
