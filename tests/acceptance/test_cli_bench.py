"""``fdbq bench``: it answers, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fdbqueue import Queue, fdb
from fdbqueue.cli.bench.measure import ROOT
from tests.acceptance.running import FDBQ, Fdbq
from tests.patience import DEADLINE

SHORT = ("--seconds", "0.1")


def left_behind(db: fdb.Database) -> int:
    scratch = fdb.Subspace((ROOT,)).range()
    return len(db.get_range(scratch.start, scratch.stop, limit=100))


def test_quick_tells_how_fast_the_store_is_and_touches_no_queue(
    db: fdb.Database, fdbq: Fdbq, name: str, store: str
) -> None:
    Queue(name).enqueue(db, b"mine")

    told = fdbq.ok("bench", "quick", *SHORT, "--processes", "2", "--batch", "10", "--json").json

    assert told["store"] == store
    steps = told["steps"]
    assert [(each["name"], each["processes"], each["batch"]) for each in steps] == [
        ("commit of one key", 1, 1),
        *(
            (what, processes, batch)
            for processes, batch in ((1, 1), (2, 1), (1, 10), (2, 10))
            for what in ("enqueue", "receive and ack")
        ),
        ("enqueue to delivery", 2, 1),
    ]
    assert all(each["p50_ms"] <= each["p99_ms"] for each in steps)
    assert all(each["rate"] > 0 for each in steps[:-1])
    assert left_behind(db) == 0
    assert [message.payload for message in Queue(name).peek(db, 10)] == [b"mine"]


def test_bench_alone_is_quick_for_people(fdbq: Fdbq) -> None:
    told = fdbq.ok("bench", "quick", *SHORT)

    header, *steps = told.out.splitlines()
    assert header.split() == ["processes", "batch", "messages/s", "p50", "ms", "p99", "ms"]
    assert len(steps) == 10
    assert "quick" in fdbq.ok("bench", "--help").out


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_removes_what_it_wrote(
    db: fdb.Database, fdbq: Fdbq, signum: signal.Signals
) -> None:
    with subprocess.Popen(
        [FDBQ, "bench", "quick", "--seconds", "60"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=fdbq.environment,
        text=True,
        start_new_session=True,
    ) as process:
        while not left_behind(db):
            assert process.poll() is None
        process.send_signal(signum)
        _, told = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "fdbq: interrupted"
    assert "Traceback" not in told
    assert left_behind(db) == 0


def test_schemes_and_bars_write_their_figures(fdbq: Fdbq, db: fdb.Database, tmp_path: Path) -> None:
    file, picture = tmp_path / "figures.json", tmp_path / "bench.png"
    short = (*SHORT, "--warm-up", "0.1", "--json-file", str(file))

    told = fdbq.ok(
        "bench", "schemes", "auto", "plain recipe", "--consumers", "2", *short,
        "--plot", str(picture),
    )  # fmt: skip

    assert "plain recipe" in told.out
    assert [run["plan"]["scheme"] for run in json.loads(file.read_text())["runs"]] == [
        "auto",
        "plain recipe",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")

    judged = fdbq("bench", "bars", "--only", "batches", "--repeat", "1", *short, "--json")
    (bar,) = judged.json
    assert judged.code == (0 if bar["holds"] else 1)
    assert bar["name"].startswith("batches of 100")
    assert left_behind(db) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("schemes", "fifo"),
        ("schemes", "--consumers", "1,none"),
        ("schemes", "--consumers", "0"),
        ("bars", "--only", "luck"),
        ("quick", "--seconds", "0"),
        ("quick", "--bytes", "7"),
    ],
)
def test_what_cannot_be_measured_is_refused(fdbq: Fdbq, arguments: tuple[str, ...]) -> None:
    fdbq.refused("bench", *arguments, code=2)


def test_a_sign_of_life_costs_the_same_beside_many(db: fdb.Database, fdbq: Fdbq) -> None:
    rows = fdbq.ok("bench", "beats", "--consumers", "50,300", "--json").json

    cases = [(row["consumers"], row["processes"]) for row in rows]
    assert cases == [(50, "one"), (50, "many"), (300, "one"), (300, "many")]
    assert all(row["most_rows"] <= 3 and row["written"] == 3 for row in rows)
    assert left_behind(db) == 0
