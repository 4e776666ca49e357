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
from typing import Annotated, Any

from typer import Argument, Option

from fdbqueue.cli import terminal
from fdbqueue.cli.parameters import AsJson
from fdbqueue.store.binding import DEFAULT, Engine

from .declare import app

ROOT = Path(__file__).resolve().parent.parent.parent

SCHEMES = "first", "auto", "staged"
BENCHMARKS: Mapping[str, Sequence[str]] = {
    "schemes": ("bench", "schemes", *SCHEMES, "--consumers", "1,4", "--seconds", "2"),
    "producers": ("bench", "producers", "--threads", "1,8", "--rounds", "1"),
    "blocks": ("bench", "blocks", "--rounds", "10", "--messages", "2000"),
    "aio": ("bench", "aio", "--rounds", "1", "--waiting", "10"),
    "fairness": ("bench", "fairness", "--only", "costs", "--backlog", "2000", "--rounds", "1"),
    "spark": ("bench", "spark", "--rows", "60000", "--repeat", "1"),
    "engine": ("bench_engine", "--rounds", "3", "--large", "20000", "--seconds", "1"),
    "worker": ("bench_worker", "--messages", "0", "--backlog", "2000", "--handlers", "0,1"),
}  # fmt: skip
"""For each benchmark the program and its arguments. A row of its output is a rate."""
LABELS = ("scheme", "consumers", "way", "threads", "operation", "messages")
"""The fields that tell rows of one benchmark apart, in the output of earlier commits."""

Run = Callable[[Sequence[str]], Any]
"""Runs a program in ``tools/`` with arguments; returns the JSON that it prints, or None if it
cannot."""


def rates(found: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The rows in what a benchmark prints, of which more is better."""
    match found:
        case {"name": row, "figure": figure, **others}:
            unit = str(others.get("unit", "/s"))
            if others.get("bar") is None and (unit.endswith("/s") or unit in ("µs", "ms")):
                yield row, figure if unit.endswith("/s") else 1 / max(1e-9, figure)
        case {"rates": dict(named)}:
            yield from named.items()
        case {"rate": rate, **others}:
            labels: Any = others.get("plan", others)
            yield ", ".join(str(labels[each]) for each in LABELS if each in labels), rate
        case {"messages/s": rate}:
            yield name, rate
        case dict():
            for label, each in found.items():
                if not isinstance(each, int | float):
                    yield from rates(each, label)
                elif name.endswith("_us") or label.endswith("_ms"):
                    yield f"{name} {label}", 1 / max(1e-9, each)
                elif name.endswith("_per_s") or label[-2:] in (" 1", " 4"):
                    yield f"{name} {label}", each
        case list():
            for each in found:
                yield from rates(each)


@app.command("beside")
def beside(
    commit: Annotated[str, Argument(metavar="COMMIT", help="What to compare with.")],
    rows: Annotated[
        list[str] | None,
        Argument(metavar="ROW…", help="Only rows whose names begin so; by default all."),
    ] = None,
    rounds: Annotated[int, Option(metavar="N", min=1, help="Of which the median counts.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Run the benchmarks of a commit and of this tree in turn, and print the ratio of each rate.

    The commit is checked out into a temporary directory, and installed there into an environment of
    its own, which takes minutes. Each tree is measured by its own programs. Above 1, this tree is
    faster.
    """
    with checked_out(commit) as tree:
        found = compare(program(tree), program(ROOT), rows or [], rounds, terminal.note)
    if as_json:
        terminal.print_json(found)
    elif found:
        ratios = [(row, f"{ratio:.2f}") for row, ratio in found.items()]
        terminal.print_table(["row", "ratio"], ratios, ["ratio"])
    else:
        raise terminal.CommandError("there is no row that both have", exit_code=1)


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
    """The programs of a tree. On the embedded engine each run has a store of its own."""
    left_out = {"PYTHONPATH", "VIRTUAL_ENV"}
    if DEFAULT.engine is Engine.EMBEDDED:
        left_out.add("FDBQUEUE_STORE")
    environment = {name: text for name, text in os.environ.items() if name not in left_out}

    def run(arguments: Sequence[str]) -> Any:
        in_tree = """
            source "$0/tools/setup.sh" >&2 || exit
            [[ -x tools/$1 ]] || set -- bench "${1#bench_}" "${@:2}"
            exec "tools/$1" "${@:2}"
        """
        done = subprocess.run(
            ["bash", "-c", in_tree, str(tree), *arguments, "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,  # 1: a bar does not hold
        )
        try:
            return json.loads(done.stdout)
        except ValueError:
            return None

    return run
