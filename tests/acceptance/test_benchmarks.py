"""``tools/bench``: it measures and judges, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.processes import ROOT

from fdbqueue import Queue, fdb
from fdbqueue.store.binding import DEFAULT, Engine
from tests.patience import DEADLINE

SHORT = ("--seconds", "0.1")
Bench = Callable[..., subprocess.CompletedProcess[str]]
TOOLS = Path(__file__).parents[2] / "tools"
METRICS = {
    *("claim_p50_ms", "claim_p95_ms", "claim_p99_ms"),
    *("enqueue_rate", "completion_rate", "queue_depth"),
}
"""What an independent harness wants of every sample."""


def left_behind(db: fdb.Database) -> int:
    """How many keys of benchmarks the store holds, up to a hundred."""
    scratch = fdb.Subspace((ROOT,)).range()
    return len(db.get_range(scratch.start, scratch.stop, limit=100))


@pytest.fixture
def bench(environment: dict[str, str]) -> Bench:
    """Runs the benchmarks as ``tools/bench`` does."""
    path = os.pathsep.join([str(TOOLS), *sys.path])

    def run(*arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env={**environment, "PYTHONPATH": path},
        )
        assert code in (None, done.returncode), done
        return done

    return run


def test_schemes_and_bars_write_their_figures(
    bench: Bench, db: fdb.Database, tmp_path: Path
) -> None:
    file, picture = tmp_path / "figures.json", tmp_path / "bench.png"
    short = (*SHORT, "--warm-up", "0.1", "--json-file", str(file))

    told = bench(
        "schemes", "auto", "plain recipe", "--consumers", "2", *short,
        "--plot", str(picture),
    )  # fmt: skip

    assert "plain recipe" in told.stdout
    assert [run["plan"]["scheme"] for run in json.loads(file.read_text())["runs"]] == [
        "auto",
        "plain recipe",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")

    judged = bench("bars", "--only", "batches", "--repeat", "1", *short, "--json", code=None)
    (bar,) = json.loads(judged.stdout)
    assert judged.returncode == (0 if bar["holds"] else 1)
    assert bar["name"].startswith("batches of 100")
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

    assert done.stdout == ""
    assert done.stderr.startswith("fdbq: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_sign_of_life_costs_the_same_beside_many(db: fdb.Database, bench: Bench) -> None:
    rows = json.loads(bench("beats", "--consumers", "50,300", "--json").stdout)

    cases = [(row["consumers"], row["processes"]) for row in rows]
    assert cases == [(50, "one"), (50, "many"), (300, "one"), (300, "many")]
    assert all(row["most_rows"] <= 3 and row["written"] == 3 for row in rows)
    assert left_behind(db) == 0


def test_the_ends_of_a_group_are_measured_beside_those_of_other_messages(
    db: fdb.Database, bench: Bench
) -> None:
    (found,) = json.loads(bench("groups", "--messages", "100", "--json").stdout)

    assert found["messages"] == 100
    assert found["ended"] > 0
    assert found["alone"] > 0
    assert left_behind(db) == 0


def test_producers_are_measured_beside_enqueues(bench: Bench, db: fdb.Database) -> None:
    done = bench("producers", "--threads", "1,4", "--seconds", "0.1", "--rounds", "1", "--json")

    found = {(one["way"], one["threads"]): one for one in json.loads(done.stdout)}
    ways = ("enqueue", "enqueue of 100", "producer, each waits", "producer, nobody waits")
    assert sorted(found) == sorted((way, threads) for way in ways for threads in (1, 4))
    assert found["enqueue", 4]["shared"] <= 1 < found["producer, nobody waits", 1]["shared"]
    assert left_behind(db) == 0


@pytest.mark.slow
def test_tasks_are_measured_beside_a_thread(bench: Bench, db: fdb.Database) -> None:
    done = bench("aio", "--seconds", "0.1", "--rounds", "1", "--waiting", "5", "--json", code=None)

    found = json.loads(done.stdout)["bars"]
    assert len(found) == 5
    assert done.returncode == (0 if all(bar["holds"] for bar in found) else 1)
    assert left_behind(db) == 0


@pytest.mark.slow
def test_who_has_no_credit_is_measured_beside_arrivals(bench: Bench, db: fdb.Database) -> None:
    done = bench("credit", "--seconds", "0.3", "--json", code=None)

    found = json.loads(done.stdout)["bars"]
    assert len(found) == 4
    assert done.returncode == (0 if all(bar["holds"] for bar in found) else 1)
    assert left_behind(db) == 0


@pytest.mark.slow
def test_wake_ups_are_counted_for_the_queue_and_for_a_subscription(
    bench: Bench, db: fdb.Database
) -> None:
    done = bench("wakeups", "--messages", "16", "--subscriptions", "10", "--json", code=None)

    found = {bar["name"]: bar for bar in json.loads(done.stdout)["bars"]}
    assert len(found) == 8
    assert found["64 consumers of a subscription, one message: woken"]["figure"] == 1
    assert found["a subscription, a message that it does not want: woken"]["figure"] == 0
    assert done.returncode == (0 if all(bar["holds"] for bar in found.values()) else 1)
    assert left_behind(db) == 0


@pytest.mark.slow
def test_keys_are_measured_beside_messages_without(bench: Bench, db: fdb.Database) -> None:
    # Given queues that were filled before, and kept for the drain
    small = ("fairness", "--backlog", "1000", "--quiet", "100", "--keep", "small")
    bench(*small, "--only", "fill")
    assert left_behind(db) > 0

    done = bench(
        *(*small, "--only", "costs,waits,drain", "--calls", "10", "--rounds", "1", "--json"),
        code=None,
    )

    found = json.loads(done.stdout)
    bars, figures = ({one["name"]: one for one in found[each]} for each in ("bars", "figures"))
    assert len(bars) == 4
    assert all(one["figure"] > 0 for one in found["figures"] + found["bars"])
    assert 0 < figures["messages of the noisy key meanwhile"]["figure"] < 100
    assert done.returncode == (0 if all(bar["holds"] for bar in bars.values()) else 1)
    assert left_behind(db) == 0


def test_limits_of_keys_hold_while_workers_are_killed(bench: Bench, db: fdb.Database) -> None:
    done = bench(
        *("fairness", "--only", "limits", "--workers", "3", "--keys", "10", "--kills", "--json")
    )

    found = json.loads(done.stdout)
    used, out, held = [one["figure"] for one in found["bars"]]
    assert 0.95 <= used <= 1
    assert out == 10
    assert 1 < held <= 10
    figures = {one["name"]: one["figure"] for one in found["figures"]}
    assert figures["workers killed"] == 3
    assert left_behind(db) == 0


@pytest.mark.slow
def test_messages_enqueued_together_are_measured_beside_rows_and_blind_sets(
    db: fdb.Database, bench: Bench
) -> None:
    done = bench(
        "blocks", "--rounds", "1", "--messages", "1000", "--seconds", "0.3", "--json", code=None
    )

    found = json.loads(done.stdout)
    mutations = {(one["operation"], one["messages"]): one["mutations"] for one in found["costs"]}
    assert mutations["blind sets", 100] == 1
    assert mutations["enqueue", 100] < 0.1 < mutations["enqueue, a row each", 100]
    assert mutations["enqueue", 800] < mutations["enqueue", 100]
    assert done.returncode == (0 if all(bar["holds"] for bar in found["bars"]) else 1)
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
    shown, printed = tables(page), tables(bench("costs").stdout)
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


@pytest.mark.parametrize(
    "producer",
    [
        {"PRODUCER_PACING": "harness"},
        {"PRODUCER_PACING": "adapter", "PRODUCER_RATE": "200"},
        {"PRODUCER_MODE": "depth-target", "TARGET_DEPTH": "20"},
    ],
    ids=lambda given: "-".join(given.values()),
)
def test_an_independent_harness_reads_rates_depths_and_latencies(
    environment: dict[str, str], db: fdb.Database, producer: dict[str, str]
) -> None:
    manifest = json.loads((TOOLS / "benchmarks" / "harness" / "adapter.json").read_text())
    settings = {"WORKER_COUNT": "2", "SAMPLE_EVERY_S": "0.2", "PRODUCER_BATCH_MAX": "8"}
    queue = Queue.open(db, "long_horizon")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.harness"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **environment,
            **settings,
            **producer,
            "PYTHONPATH": os.pathsep.join([str(TOOLS), *sys.path]),
        },
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # Given the line that describes it, as the manifest does
        described = json.loads(process.stdout.readline())
        assert described["kind"] == "descriptor"
        assert (
            described.items()
            >= {
                name: manifest[name] for name in ("system", "db_name", "event_tables", "extensions")
            }.items()
        )
        # When it may enqueue, by itself or as it is told
        process.stdin.write("ENQUEUE 20\nwhat?\nENQUEUE 5\n")
        process.stdin.flush()
        # Then samples tell of messages, until as many as that are done
        seen: dict[str, float] = {}
        while not set(seen) >= METRICS or not seen["completion_rate"] or queue.depth(db).done < 25:
            sample = json.loads(process.stdout.readline())
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", sample["t"])
            assert (sample["system"], sample["kind"]) == ("fdbqueue", "adapter")
            assert (sample["subject_kind"], sample["subject"]) == ("adapter", "")
            assert (sample["instance_id"], sample["window_s"] >= 0) == (0, True)
            seen[sample["metric"]] = sample["value"]
        assert set(seen) <= {*METRICS, "producer_target_rate"}
        assert seen["claim_p50_ms"] > 0
        # And a signal ends it
        process.send_signal(signal.SIGTERM)
        assert all(json.loads(line)["metric"] for line in process.stdout)
        assert process.wait(DEADLINE) == 0
        assert "harness" not in producer.values() or queue.depth(db).enqueued == 25
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        queue.delete(db)


def test_the_harness_is_told_which_setting_is_none(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.harness"],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={
            **environment,
            "PYTHONPATH": os.pathsep.join([str(TOOLS), *sys.path]),
            "PRODUCER_RATE": "many",
        },
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fdbqueue: PRODUCER_RATE: 'many' is not a number\n"
