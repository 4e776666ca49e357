"""The check of chaos runs as a Spark job: it finds what the checker of tools/chaos finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chaosrun import checker
from chaosrun.history import Operation, read
from chaosrun.rules import rules

from fdbqueue.cli.main import run
from tests.unit.test_chaos_checker import (
    EXCUSED,
    PLANTED,
    A,
    B,
    History,
    browsed,
    crowd,
    excused,
    fifo,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from fdbqueue.spark.checks.job import check_lines
from fdbqueue.spark.checks.operations import Rules
from fdbqueue.spark.checks.violations import Verdict
from tests.patience import DEADLINE

RULES = Rules.parse(rules())


def lines(one: Operation) -> Iterator[str]:
    """What a recorder writes of an operation."""
    who = {"who": one.who, "n": one.n}
    about = {"name": one.name, "queue": one.queue, "what": one.what}
    yield json.dumps({**who, **about, "began": one.began, "wall": one.wall_ms})
    if one.ended is not None:
        came = {"result": one.result, "error": one.error}
        yield json.dumps({**who, "ended": one.ended, "wall": one.ended_wall_ms, **came})


def both(
    spark: SparkSession, histories: dict[str, list[Operation]]
) -> tuple[dict[str, Counter[str]], Verdict]:
    """What the checker of tools/chaos finds in each of several histories, and the Spark job."""
    ordered = {
        name: sorted(operations, key=lambda one: one.began)
        for name, operations in histories.items()
    }
    theirs = {
        name: Counter(one.kind for one in checker.check(operations))
        for name, operations in ordered.items()
    }
    rows = [
        (name, line)
        for name, operations in ordered.items()
        for one in operations
        for line in lines(one)
    ]
    return theirs, check_lines(spark.createDataFrame(rows, "run string, value string"), RULES)


def test_both_checkers_find_the_same(spark: SparkSession) -> None:
    # Given histories with every violation that there is, planted one by one, and some without
    histories: dict[str, list[Operation]] = {"clean": History().operations}
    for plant, _ in PLANTED:
        history = History()
        plant(history)
        histories[plant.__name__] = history.operations
    for n, rows in enumerate([(A, B), (A,), (A, A, B), (B, A), (A, B, ("z", 0, "eu"))]):
        histories[f"browsed {n}"] = browsed(*rows).operations
    for queue in ("staged", "auto", "filtered", "relaxed"):
        history = History(queue)
        fifo(history)
        histories[f"fifo {queue}"] = history.operations
    for size, limit, name in (
        (16, 1, "receive"),
        (17, 1, "receive"),
        (17, 17, "receive"),
        (2, 9, "dequeue"),
    ):
        history, last = crowd(size)
        last.what["limit"], last.name = limit, name
        histories[f"crowd {size} {limit} {name}"] = history.operations
    for at, size in ((6_300, 64), (6_300, 4), (6_400, 4), (6_700, 4)):
        history, last = crowd(10)
        change = history.add(at, "options", who="nemesis", window=size)
        change.queue = "relaxed"
        histories[f"window {size} at {at}"] = history.operations
    for name in EXCUSED:
        histories[name] = excused(name).operations
    # When both look at them
    theirs, verdict = both(spark, histories)
    # Then every kind is among what they find, and they find the same, kind by kind
    kinds = {kind for found in theirs.values() for kind in found}
    assert kinds >= {kind for _, kind in PLANTED} | {"behind the window", "not seen", "seen twice"}
    assert {name: verdict.kinds(name) for name in histories} == {
        name: dict(found) for name, found in theirs.items()
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The histories of a short run of tools/chaos."""
    directory = tmp_path_factory.mktemp("chaos") / "histories"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "chaosrun", "--history", directory, "--seed", "4"),
            *("--operations", "100", "--seconds", str(DEADLINE / 2)),
            *("--processes", "3", "--every", "1"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={
            **os.environ,
            "FDBQUEUE_STORE": str(directory.parent / "store.fdbq"),
            "PYTHONPATH": os.pathsep.join([str(Path(checker.__file__).parents[1]), *sys.path]),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.mark.slow
def test_of_two_runs_the_violations_of_one_are_shown(
    spark: SparkSession, ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a run without violations, and the same with another end of a message
    spoilt = tmp_path / "spoilt"
    shutil.copytree(ran, spoilt)
    operations = read(ran.glob("*.jsonl"))
    end = next(each for each in operations if each.name == "ack" and each.queue == "first")
    at = end.began + 1
    lie = Operation("liar\x1b[31m", 1, "ack", "first", at, 1, end.what, at + 1, 1)
    (spoilt / "liar.jsonl").write_text("\n".join(lines(lie)))
    assert end.ok
    # When the command checks both
    assert run(["pipeline", "check", "--run", str(ran), "--run", str(spoilt)]) == 1
    # Then it has checked all operations of both
    told = capsys.readouterr().out
    assert f"checked {2 * len(operations) + 1:,} operations" in told
    # And it shows what was done to the message, in the run that is violated, and no more
    (shown,) = [line for line in told.splitlines() if line.startswith("VIOLATION")]
    assert shown == f"VIOLATION settled twice: first {end.what['tags'][0]} (in {spoilt})"
    assert "liar\\x1b[31m #1 ack first" in told
    assert f"{end.who} #{end.n} ack first" in told
    assert "enqueue first" in told
    assert told.splitlines()[-1].endswith("settled twice")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "there is no history in it"),
        (["{"], "1 of its lines are not operations"),
        (['{"who": "a", "n": 1, "ended": 5}'], "1 of its lines are not operations"),
        (
            ['{"who": "a", "n": 1, "name": "ack", "queue": "q", "began": 1, "wall": 1}'],
            "does not describe its queues",
        ),
    ],
)
def test_what_is_no_history_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: list[str],
    problem: str,
) -> None:
    if lines:
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert run(["pipeline", "check", "--run", str(tmp_path)]) != 0
    assert problem in capsys.readouterr().err
    assert run(["pipeline", "check"]) == 2
