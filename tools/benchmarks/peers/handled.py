"""The handler of every peer's own worker: it records which message it got, and when.

With a pause it takes that long, and records in the middle: who is killed before has not handled the
message, and who is killed behind has, but did not acknowledge it.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

FILE = "FDBQUEUE_BENCH_HANDLED"
"""The environment variable with the file that all workers append to."""
PAUSE = "FDBQUEUE_BENCH_PAUSE"
"""The environment variable with the seconds that a message takes, none by default."""
_ROW = struct.Struct(">QQ")
_opened: dict[int, int] = {}


def record(payload: bytes | str) -> None:
    """Append the message's number and the time to the file, in one write."""
    process = os.getpid()
    if process not in _opened:
        _opened[process] = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    pause = float(os.environ.get(PAUSE, "0")) / 2
    if pause:
        time.sleep(pause)
    os.write(_opened[process], _ROW.pack(int(payload), time.monotonic_ns()))
    if pause:
        time.sleep(pause)


def read(path: Path) -> list[tuple[int, int]]:
    """The number of every handled message, and when it was handled, in nanoseconds."""
    data = path.read_bytes() if path.exists() else b""
    return [*_ROW.iter_unpack(data[: len(data) - len(data) % _ROW.size])]
