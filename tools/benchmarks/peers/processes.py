"""The processes of a run: started with a job each, told when to begin, and killed at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .child import Job
from .peer import Server

TOOLS = Path(__file__).resolve().parents[2]
WARM_UP = 0.5


class Failed(Exception):
    """Raised when a process of a run failed."""


@contextmanager
def started(
    job: Job, server: Server, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process with a job; killed at the end."""
    paths = [server.environment.get("PYTHONPATH", str(TOOLS.parent)), str(TOOLS)]
    process = subprocess.Popen(
        # Without the current directory, which would come before the checkout to measure.
        [sys.executable, "-P", "-W", "ignore", "-m", "benchmarks.peers.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            **server.environment,
            **(environment or {}),
            "PYTHONPATH": os.pathsep.join(paths),
        },
    )
    try:
        _tell(process, job.to_json())
        if (line := _line(process)) != "ready\n":
            raise Failed(f"{job.peer}: a process for {job.role} did not start: {line!r}")
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def run_all(
    jobs: Sequence[Job],
    server: Server,
    seconds: float = 0.0,
    mark: Callable[[], object] | None = None,
) -> list[dict[str, Any]]:
    """Run jobs at the same time; calls ``mark`` when the measured time begins and at the end."""
    with ExitStack() as stack:
        processes = [stack.enter_context(started(job, server)) for job in jobs]
        begin = time.monotonic_ns() + 50_000_000
        measured = begin + int(WARM_UP * 1e9)
        span = [begin, measured, measured + int(seconds * 1e9)]
        if mark is not None:
            for process in processes:
                _tell(process, json.dumps(span))
            time.sleep(max(0, measured - time.monotonic_ns()) / 1e9)
            mark()
        lines = [_line(process) for process in processes]
        if mark is not None:
            mark()
    if not all(lines):
        raise Failed(f"{jobs[0].peer}: a process for {jobs[0].role} failed, see above")
    return [{**json.loads(line), "span": span} for line in lines]
