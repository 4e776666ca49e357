"""The benchmarks of an earlier commit and of this tree in turn, by the programs of each."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from fdbqueue.cli import terminal
from fdbqueue.store.binding import DEFAULT, Engine

ROOT = Path(__file__).resolve().parent.parent.parent

BENCHMARKS: Mapping[str, Sequence[str]] = {
    "schemes": ("schemes", "first", "auto", "staged", "--consumers", "1,4", "--seconds", "2"),
    "producers": ("producers", "--threads", "1,8", "--rounds", "1"),
    "blocks": ("blocks", "--rounds", "10", "--messages", "2000", "--seconds", "0"),
    "aio": ("aio", "--rounds", "1", "--waiting", "10"),
}
"""The arguments of tools/bench for each benchmark that gives rows. A row is a rate."""
LABELS = ("scheme", "consumers", "way", "threads", "operation", "messages")
"""The fields that tell rows of one benchmark apart."""

Rates = dict[str, float]
Run = Callable[[Sequence[str]], Any]
"""Runs ``tools/bench`` with arguments; returns the JSON that it prints, or None if it cannot."""


def rates(found: Any) -> Iterator[tuple[str, float]]:
    """The rows in what a benchmark prints."""
    match found:
        case {"rates": dict(named)}:
            yield from named.items()
        case {"rate": rate, **others}:
            labels: Any = others.get("plan", others)
            yield ", ".join(str(labels[each]) for each in LABELS if each in labels), rate
        case dict():
            for each in found.values():
                yield from rates(each)
        case list():
            for each in found:
                yield from rates(each)


def compare(
    earlier: Run, this: Run, rows: Sequence[str], rounds: int, say: Callable[[str], object]
) -> dict[str, float]:
    """The median ratio of this tree to the earlier one, for each row that both have.

    rows: how the names of wanted rows begin; none means all.
    """
    ratios: dict[str, list[float]] = {}
    for n in range(rounds):
        for name, arguments in BENCHMARKS.items():
            if rows and not any(row.partition(":")[0] == name for row in rows):
                continue
            say(f"{name}, {n + 1} of {rounds} …")
            # Neither always comes first.
            order = (earlier, this) if n % 2 == 0 else (this, earlier)
            found = {run: dict(rates(run(arguments))) for run in order}
            for row, rate in found[this].items():
                full = f"{name}: {row}"
                if row in found[earlier] and (not rows or full.startswith(tuple(rows))):
                    ratios.setdefault(full, []).append(rate / max(1e-9, found[earlier][row]))
    return {row: median(each) for row, each in ratios.items()}


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The tree of a commit in a temporary directory; its tools make its environment."""
    with tempfile.TemporaryDirectory(prefix="fdbqueue-beside-") as directory:
        command = ["git", "-C", str(ROOT), "archive", commit]
        archive = subprocess.run(command, check=False, capture_output=True)
        if archive.returncode:
            raise terminal.CommandError(f"{commit}: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
        yield Path(directory)


def program(tree: Path) -> Run:
    """The ``tools/bench`` of a tree. On the embedded engine each run has a store of its own."""
    left_out = {"PYTHONPATH", "VIRTUAL_ENV"}
    if DEFAULT.engine is Engine.EMBEDDED:
        left_out.add("FDBQUEUE_STORE")
    environment = {name: text for name, text in os.environ.items() if name not in left_out}

    def run(arguments: Sequence[str]) -> Any:
        done = subprocess.run(
            [tree / "tools" / "bench", *arguments, "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,  # 1: a bar does not hold
        )
        lines = done.stdout.splitlines()
        try:
            return json.loads(lines[-1]) if lines else None
        except ValueError:
            return None

    return run
