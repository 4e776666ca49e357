"""Histories: what every process meant to do, and what came of it, one JSON line each.

A line is written before an operation begins and after it has ended, each in one write to a file
of the process's own: so a process that is killed leaves the intent of what it was doing. Times are
the monotonic clock in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fdbqueue.store import world

FILE_BYTES = 1 << 19


@dataclass(slots=True)
class Operation:
    """One operation of one actor. ``ended`` is None where the process did not live to see it."""

    who: str
    n: int
    name: str
    queue: str
    began: int
    wall_ms: int
    what: dict[str, Any] = field(default_factory=dict)
    ended: int | None = None
    ended_wall_ms: int | None = None
    result: Any = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it is known to have succeeded."""
        return self.ended is not None and self.error is None

    def __str__(self) -> str:
        end = "killed before it ended" if self.ended is None else f"{self.ended / 1e6:.3f}"
        came = "" if self.ended is None else f" -> {self.error or _short(self.result)}"
        return (
            f"[{self.began / 1e6:.3f} .. {end}] {self.who} #{self.n} "
            f"{self.name} {self.queue} {_short(self.what)}{came}"
        )


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 300 else text[:300] + "…"


class Recorder:
    """Writes the history of one process; its threads share it.

    It goes on in another file when one has grown, and so is written also where none may be large.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = world.Lock()
        self._n = self._files = self._size = 0
        self._file = self._open()

    def _open(self) -> int:
        path = self._path.with_suffix(f".{self._files:05}{self._path.suffix}")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, who: str, name: str, queue: str, **what: Any) -> int:
        """Write down an intent; returns its number."""
        with self._lock:
            self._n += 1
            n = self._n
        # Time is taken inside: before the operation begins, after the number is known.
        self._write(
            who=who,
            n=n,
            name=name,
            queue=queue,
            what=what,
            began=world.monotonic_ns(),
            wall=world.store_time_ns() // 1_000_000,
        )
        return n

    def end(self, who: str, n: int, result: Any = None, error: str | None = None) -> None:
        """Write down an outcome."""
        self._write(
            who=who,
            n=n,
            ended=world.monotonic_ns(),
            wall=world.store_time_ns() // 1_000_000,
            result=result,
            error=error,
        )

    def note(self, who: str, name: str, queue: str = "", **what: Any) -> None:
        """Write down what needs no outcome."""
        self.end(who, self.begin(who, name, queue, **what))

    def _write(self, **line: Any) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._size and self._size + len(data) > FILE_BYTES:
                os.close(self._file)
                self._files, self._size = self._files + 1, 0
                self._file = self._open()
            self._size += os.write(self._file, data)


def read(paths: Iterable[Path]) -> list[Operation]:
    """The operations of several files, by when they began."""
    return assembled(_lines(paths))


def assembled(lines: Iterable[dict[str, Any]]) -> list[Operation]:
    """The operations that lines tell about, by when they began."""
    found: dict[tuple[str, int], Operation] = {}
    for line in lines:
        key = (line["who"], line["n"])
        if "began" in line:
            found[key] = Operation(
                who=line["who"],
                n=line["n"],
                name=line["name"],
                queue=line["queue"],
                began=line["began"],
                wall_ms=line["wall"],
                what=line["what"],
            )
        else:
            operation = found[key]
            operation.ended, operation.ended_wall_ms = line["ended"], line["wall"]
            operation.result, operation.error = line["result"], line["error"]
    return sorted(found.values(), key=lambda operation: operation.began)


def _lines(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The lines of all files, those of one process in the order in which it wrote them."""
    for path in sorted(paths):
        for text in path.read_bytes().splitlines():
            yield json.loads(text)
