"""Drivers and workers that are really killed: every row comes once.

Here while rows are staged and published; the other steps are those of test_consume_kills.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.sinks import sinks
from fdbqueue.spark import drain
from tests.acceptance.running import FDBQ

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(__file__).parent / "programs" / "write_stream.py"
FILES, ROWS = 2, 500
DEADLINE = 240

pytestmark = pytest.mark.usefixtures("spark")  # skipped where there is no Java


def run(step: str, directory: Path, environment: dict[str, str]) -> int:
    done = subprocess.run(
        [sys.executable, PROGRAM, step, directory],
        check=False,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=DEADLINE,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def test_a_stream_whose_workers_and_driver_are_killed_enqueues_each_row_once(
    db: fdb.Database, environment: dict[str, str], tmp_path: Path
) -> None:
    queue = Queue.open(db, "sink")
    given = tmp_path / "in"
    given.mkdir()
    expected = Counter[bytes]()
    for file in range(FILES):
        rows = [{"payload": f"{file}/{n}", "priority": n % 10} for n in range(ROWS)]
        (given / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))
        expected.update(row["payload"].encode() for row in rows)  # type: ignore[attr-defined]
    try:
        # In the first run, a worker is killed and a task fails besides, after they have staged.
        assert run("publishing", tmp_path, environment) == -signal.SIGKILL
        begun = queue.depth(db).enqueued
        assert run("none", tmp_path, environment) == 0

        assert 0 < begun < ROWS
        assert (tmp_path / "a worker was killed").exists()
        assert (tmp_path / "a task failed").exists()
        assert Counter(message.payload for message in queue.browse(db)) == expected
        (state,) = sinks(db, queue).values()
        assert (state.done, state.batch) == (FILES - 1, -1)
        assert fdbqueue.verify(db, queue).ok
    finally:
        queue.delete(db)


def test_a_drain_that_is_killed_goes_on_and_writes_each_message_once(
    spark: SparkSession, db: fdb.Database, environment: dict[str, str], tmp_path: Path
) -> None:
    queue, path = Queue.open(db, "drained"), tmp_path / "out"
    names = [b"%d" % n for n in range(3_000)]
    queue.enqueue_many(db, names)
    process = subprocess.Popen(
        [FDBQ, "pipeline", "drain", "drained", path, "--batch", "100"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # Given a drain that is killed, with its Java, when it has done some batches
        while queue.depth(db).done < 300:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert queue.depth(db).done < len(names)

        # When it is run again
        drain(db, queue, path, spark=spark)

        # Then the files have each message once
        rows = spark.read.parquet(str(path)).select("payload").collect()
        assert Counter(bytes(row.payload) for row in rows) == Counter(names)
        depth = queue.depth(db)
        assert (depth.done, depth.leased) == (len(names), 0)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        queue.delete(db)
