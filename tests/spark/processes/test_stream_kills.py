"""Drivers and workers that are really killed: every message comes to the far end once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fdbqueue.spark
from fdbqueue import Depth, NewMessage, Queue, fdb
from tests.patience import DEADLINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = "tests.spark.processes.killed_stream"
MESSAGES, BATCH = 180, 60
IMPATIENT = b"Timed out while waiting for the Python worker to connect back"
"""Spark gives a new process of Python ten seconds, which is too little on a busy machine."""
STEPS = (
    "before the offset is written",
    "before the tasks read",
    "before the sink commits",
    "while the sink publishes",
    "before the commit is written",
    "before the batch is acknowledged",
    "before the batch before is committed",
    "after the batch before is committed",
)
"""In the order in which Spark comes by them; the one of a dead planner is in the contract tests."""
BEFORE_TASKS = STEPS[:2]
TASK_EVENTS = ("a worker was killed", "a worker was killed that had staged", "a task failed")


class Driver:
    """A process that has begun to start, and goes when it is told to."""

    def __init__(self, step: str, directory: Path, environment: dict[str, str]) -> None:
        python = environment.get("PYSPARK_PYTHON", sys.executable)
        self._arguments = [python, "-m", PROGRAM, step, str(directory)]
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._killed = directory / f"killed {step}"
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._arguments,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def go(self) -> None:
        """Let it go until it is killed at its step."""
        while True:
            _, said = self._process.communicate(b"go\n", timeout=DEADLINE)
            if self._killed.exists():
                return
            # Then the query failed; it goes on where it was, as any other does.
            assert IMPATIENT in said, said.decode()
            self._start()

    def stop(self) -> None:
        """Let nothing of it go on."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


@contextmanager
def drivers(
    steps: Sequence[str], directory: Path, environment: dict[str, str]
) -> Iterator[Iterator[Driver]]:
    """One driver for each step; the next one starts while the one before is at work."""
    started: list[Driver] = []

    def one_after_another() -> Iterator[Driver]:
        for n in range(len(steps)):
            for step in steps[len(started) : n + 2]:
                started.append(Driver(step, directory, environment))
            yield started[n]

    try:
        yield one_after_another()
    finally:
        for driver in started:
            driver.stop()


def finish(
    spark: SparkSession, db: fdb.Database, source: Queue, sink: Queue, checkpoint: Path
) -> None:
    """Let another driver, which nobody kills, go on until all messages are taken."""
    (
        spark.readStream.format("fdbqueue")
        .options(**fdbqueue.spark.options(db, source))
        .options(mode="consume", consumer="stream", maxMessagesPerBatch=BATCH)
        .load()
        .select("payload", "priority")
        .writeStream.format("fdbqueue")
        .options(**fdbqueue.spark.options(db, sink))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1, id="one of the steps"),
        pytest.param(len(STEPS), id="every step", marks=pytest.mark.slow),
    ],
)
def test_a_stream_whose_driver_is_killed_takes_each_message_once(
    spark: SparkSession,
    db: fdb.Database,
    environment: dict[str, str],
    tmp_path: Path,
    count: int,
) -> None:
    steps = sorted(random.sample(STEPS, count), key=STEPS.index)
    source, sink = Queue.open(db, "source"), Queue.open(db, "sink")
    sent = [NewMessage(b"%d" % n, priority=n % 10) for n in range(MESSAGES)]
    try:
        source.enqueue_many(db, sent)
        with drivers(steps, tmp_path, environment) as runs:
            for step, driver in zip(steps, runs, strict=True):
                driver.go()
                assert (tmp_path / f"killed {step}").exists()
                assert source.admin.verify(db).ok
                if step == "while the sink publishes":
                    assert 0 < sink.depth(db).enqueued < BATCH
        assert source.depth(db).leased
        if steps[-1] not in BEFORE_TASKS:
            assert all((tmp_path / event).exists() for event in TASK_EVENTS)
        finish(spark, db, source, sink, tmp_path / "checkpoint")
        assert Counter(each.payload for each in sink.browse(db)) == Counter(
            each.payload for each in sent
        )
        assert source.depth(db) == Depth(enqueued=MESSAGES, done=MESSAGES)
        (state,) = sink.streams.sinks(db).values()
        assert state.batch == -1
        assert source.admin.verify(db).ok
        assert sink.admin.verify(db).ok
    finally:
        source.delete(db)
        sink.delete(db)
