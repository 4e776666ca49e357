"""Which process holds the commit lock of a store, as Linux tells it."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

_LOCKS = "/proc/locks"


class LockHolder(NamedTuple):
    """A process that holds the commit lock; stopped: by a signal, or a debugger."""

    pid: int
    command: str
    stopped: bool

    def __str__(self) -> str:
        state = "which is stopped" if self.stopped else "which runs"
        return f"process {self.pid} ({self.command}), {state}"


def lock_holder(path: str) -> LockHolder | None:
    """The process that holds the commit lock just now; None if none does, or it is not known.

    Each commit holds it for a moment. Processes of other containers are not known.
    """
    try:
        lock = os.stat(os.path.realpath(path) + "-lock")
        with open(_LOCKS) as locks:
            pids = [_holder(line.split(), lock.st_ino) for line in locks]
    except OSError:
        return None
    for pid in pids:
        if pid and _has_open(pid, lock):
            with contextlib.suppress(OSError, IndexError):
                return LockHolder(pid, _command(pid), _state(pid) in "tT")
    return None


def _holder(fields: list[str], inode: int) -> int:
    """Whose lock a line shows, if it is one of ``flock`` on this file; else 0."""
    # "1: FLOCK ADVISORY WRITE 42 fe:00:3411741 0 EOF"; one that waits has an arrow first.
    if len(fields) < 6 or fields[1] != "FLOCK" or fields[5].rpartition(":")[2] != str(inode):
        return 0
    return int(fields[4])


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Whether a process has the file open, as far as one may know: inodes repeat on other disks."""
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except PermissionError:
        # Another user's process: the inode says it is the one, and nothing more can be known.
        return True
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"{directory}/{name}"), file):
                return True
    return False


def _command(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().rstrip(b"\0").split(b"\0")
    return b" ".join(words).decode(errors="replace")[:100]


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]
