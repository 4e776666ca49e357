"""The processes of a run: started with a job each, told when to begin, and killed at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .peer import Peer, Server

TOOLS = Path(__file__).resolve().parents[2]
WARM_UP = 0.5


class Failed(Exception):
    """Raised when a process of a run failed."""


@contextmanager
def started(
    peer: Peer,
    server: Server,
    role: str,
    batch: int = 1,
    first: int = 0,
    count: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A process with a job, see ``child.run``; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", "benchmarks.peers.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            **server.environment,
            **(environment or {}),
            "PYTHONPATH": os.pathsep.join((str(TOOLS.parent), str(TOOLS))),
        },
    )
    try:
        tell(process, [peer.name, server.address, role, batch, first, count])
        if (line := _line(process)) != "ready\n":
            raise Failed(f"{peer.name}: a process for {role} did not start: {line!r}")
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def tell(process: subprocess.Popen[str], what: Any) -> None:
    """Send a line of JSON to a process."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def result(process: subprocess.Popen[str]) -> Any:
    """What a process has found; raises ``Failed``."""
    if not (line := _line(process)):
        raise Failed("a process failed, see above")
    return json.loads(line)


def send(peer: Peer, server: Server, first: int, count: int) -> None:
    """Enqueue messages with the numbers from ``first`` on."""
    with started(peer, server, "send", 100, first, count) as process:
        result(process)


def together(
    jobs: Sequence[Callable[[], Any]], seconds: float, mark: Callable[[], object]
) -> tuple[list[int], list[Any]]:
    """Run processes that make calls at the same time; returns when they began, from when on they
    were measured and until when, in nanoseconds, and what each found.

    mark: called when the measured time begins, and at the end.
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(job()) for job in jobs]
        begin = time.monotonic_ns() + 50_000_000
        measured = begin + int(WARM_UP * 1e9)
        span = [begin, measured, measured + int(seconds * 1e9)]
        for process in processes:
            tell(process, span)
        time.sleep(max(0, measured - time.monotonic_ns()) / 1e9)
        mark()
        found = [result(process) for process in processes]
        mark()
    return span, found
