"""The processor time of a process and all its descendants."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_PARENT, _TIMES = 1, slice(11, 15)
"""Fields of ``/proc/PID/stat`` after the name: parent, and times including ended children."""


def cpu_seconds(root: int | None = None) -> float | None:
    """Processor time of a process and all its descendants; None without ``/proc``.

    root: the process; by default this one.
    """
    if not (_PROC / "self" / "stat").exists():
        return None
    parents, times = {}, {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended
            parents[int(entry.name)] = int(fields[_PARENT])
            times[int(entry.name)] = sum(map(int, fields[_TIMES]))
    return sum(times[pid] for pid in _below(root or os.getpid(), parents)) / os.sysconf(
        "SC_CLK_TCK"
    )


def _below(root: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    new = {root}
    while new:
        found |= new
        new = {pid for pid, parent in parents.items() if parent in new} - found
    return found
