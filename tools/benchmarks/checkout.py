"""Earlier commits of fdbqueue, measured beside this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fdbqueue.cli import terminal
from fdbqueue.store.binding import DEFAULT, Engine

ROOT = Path(__file__).resolve().parent.parent.parent

TAKER = """
import sys, time
import fdbqueue
db, root = fdbqueue.open(), fdbqueue.fdb.Subspace(rawPrefix=bytes.fromhex(sys.argv[1]))
for line in sys.stdin:
    count, payload = int(line), b"x" * int(sys.argv[2])
    queue = fdbqueue.Queue.open(db, f"earlier {count}", root=root)
    queue.enqueue_many(db, [payload] * count)
    began = time.perf_counter()
    held = queue.receive_many(db, count)
    assert len(held) == count
    queue.ack_many(db, held)
    print(time.perf_counter() - began, flush=True)
"""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The source tree of a commit in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="fdbqueue-baseline-") as directory:
        command = ["git", "-C", str(ROOT), "archive", commit, "fdbqueue"]
        archive = subprocess.run(command, check=False, capture_output=True)
        if archive.returncode:
            raise terminal.CommandError(f"--baseline {commit}: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
        yield Path(directory)


class Taker:
    """A process of an earlier commit that receives and acknowledges batches when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def take(self, count: int) -> float:
        """Receive and acknowledge a batch; returns the seconds that it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())


@contextmanager
def taker(commit: str, space: bytes, size: int) -> Iterator[Taker]:
    """A ``Taker`` for payloads of ``size`` bytes. On the embedded engine it has a store of its own
    beside this one: earlier ones store messages in other ways."""
    with ExitStack() as stack:
        source, environment = stack.enter_context(checked_out(commit)), dict(os.environ)
        if DEFAULT.path is not None and DEFAULT.engine is Engine.EMBEDDED:
            beside = os.path.dirname(os.path.abspath(DEFAULT.path))
            own = stack.enter_context(tempfile.TemporaryDirectory(dir=beside))
            environment["FDBQUEUE_STORE"] = f"embedded:{own}/earlier.fdbq"
        process = subprocess.Popen(
            [sys.executable, "-c", TAKER, space.hex(), str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=source,  # searched first
            env=environment,
        )
        try:
            yield Taker(process)
        finally:
            process.kill()
            process.communicate()
