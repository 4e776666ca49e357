"""``fdbq bench``: it answers, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess

import pytest

from fdbqueue import Queue, fdb
from fdbqueue.cli.bench.processes import ROOT
from tests.acceptance.running import FDBQ, Fdbq
from tests.patience import DEADLINE

SHORT = ("--seconds", "0.1")


def left_behind(db: fdb.Database) -> int:
    """How many keys of benchmarks the store holds, up to a hundred."""
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


@pytest.mark.parametrize(
    "arguments",
    [("quick", "--seconds", "0"), ("quick", "--bytes", "7")],
)
def test_what_cannot_be_measured_is_refused(fdbq: Fdbq, arguments: tuple[str, ...]) -> None:
    fdbq.refused("bench", *arguments, code=2)
