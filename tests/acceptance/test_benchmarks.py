"""``tools/bench``: it measures and judges, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.processes import ROOT

from fdbqueue import fdb
from fdbqueue.store.binding import DEFAULT, Engine
from tests.acceptance.running import Ended, run_anew, run_prepared

SHORT = ("--seconds", "0.1")
Bench = Callable[..., Ended]
TOOLS = Path(__file__).parents[2] / "tools"
JSON = ("--json",)


def rows(done: Ended) -> dict[str, Any]:
    """The rows of a benchmark, by name; its exit code says whether all bars hold."""
    found = json.loads(done.out)
    assert done.code == (0 if all(row["holds"] for row in found) else 1)
    return {row["name"]: row for row in found}


def left_behind(db: fdb.Database) -> int:
    """How many keys of benchmarks the store holds, up to a hundred."""
    scratch = fdb.Subspace((ROOT,)).range()
    return len(db.get_range(scratch.start, scratch.stop, limit=100))


@pytest.fixture
def bench(environment: dict[str, str]) -> Bench:
    """Runs the benchmarks as ``tools/bench`` does."""
    path = os.pathsep.join([str(TOOLS), *sys.path])

    def run(*arguments: str, code: int | None = 0) -> Ended:
        command = ["-m", "benchmarks", *arguments]
        used = {**environment, "PYTHONPATH": path}
        if DEFAULT.engine is Engine.EMBEDDED:  # Else what is prepared has the cluster's bindings.
            done = run_prepared(command, used)
        else:
            done = run_anew([sys.executable, *command], used)
        assert code in (None, done.code), done
        return done

    return run


def test_schemes_and_bars_write_their_figures(bench: Bench, db: fdb.Database) -> None:
    short = (*SHORT, "--warm-up", "0.1", *JSON)

    told = bench("schemes", "auto", "plain recipe", "--consumers", "2", *short)

    assert [*rows(told)] == ["auto, 2", "plain recipe, 2"]

    (bar,) = rows(bench("bars", "--only=batches", "--repeat=1", "--consumers=2", *short, code=None))
    assert bar.startswith("batches of 100")
    assert left_behind(db) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("schemes", "fifo"), "unknown scheme 'fifo'"),
        (("schemes", "--consumers", "1,none"), "'none' is not a number"),
        (("schemes", "--consumers", "0"), "'0' is not a number"),
        (("bars", "--only", "luck"), "unknown group 'luck'"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    bench: Bench, arguments: tuple[str, ...], problem: str
) -> None:
    done = bench(*arguments, code=2)

    assert done.out == ""
    assert done.err.startswith("fdbq: ")
    assert problem in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (
            ("producers", "--threads", "4", "--rounds", "1", *SHORT),
            ["enqueue, 4", "enqueue of 100, 4", "producer, each waits, 4", "producer, nobody"],
        ),
    ],
    ids=lambda given: given[0],
)
def test_a_benchmark_tells_its_rows_and_leaves_nothing(
    db: fdb.Database, bench: Bench, arguments: Sequence[str], names: list[str]
) -> None:
    done = bench(*arguments, *JSON, code=None)

    found = json.loads(done.out)
    assert len(found) == len(names)
    assert all(row["name"].startswith(name) for row, name in zip(found, names, strict=True)), found
    assert all(row["figure"] >= 0 for row in found)
    assert done.code == (0 if all(row["holds"] for row in found) else 1)
    assert left_behind(db) == 0


def tables(text: str) -> dict[str, dict[str, list[str]]]:
    """The rows of tables in Markdown, by the first cells of the table and of the row."""
    found = {}
    for table in re.findall(r"(?:^\|.+\n)+", text, re.MULTILINE):
        lines = [line for line in table.splitlines() if not line.startswith("|---")]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        found[rows[0][0]] = {row[0]: row[1:] for row in rows}
    return found


def test_the_page_on_capacity_shows_what_operations_cost_and_which_conflict(
    bench: Bench, db: fdb.Database
) -> None:
    page = (TOOLS.parent / "docs" / "capacity.md").read_text()
    shown, printed = tables(page), tables(bench("costs").out)
    costs, counted = shown["one call"], printed.pop("one call")
    conflicts = printed.pop("runs")

    # Then what conflicts, and all counts, are as printed
    assert not printed
    assert shown["runs"] == conflicts
    column = counted.pop("one call").index("bytes")
    sizes = {name: int(row.pop(column).replace(",", "")) for name, row in counted.items()}
    assert costs.pop("one call")[column] == "bytes"
    told = {name: int(row.pop(column).replace(",", "")) for name, row in costs.items()}
    if (
        DEFAULT.engine is not Engine.EMBEDDED
    ):  # How futures of a cluster are asked is the bindings'.
        for row in (*costs.values(), *counted.values()):
            row[1] = "waits"
    assert costs == counted
    # And so are bytes, but for keys with versions, which are longer in an old database
    assert told == pytest.approx(sizes, rel=0.1)
    # And the model reckons with these
    used = re.findall(r'^    "(.+)": \((\d+), ([\d_]+)\),$', page, re.MULTILINE)
    assert len(used) == 8
    for name, keys, size in used:
        assert (keys, int(size)) == (costs[name][column - 1], told[name])
    assert left_behind(db) == 0
