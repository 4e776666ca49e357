"""Drivers and workers that are really killed: every row of a stream comes once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.sinks import sinks

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


def test_a_stream_whose_driver_is_killed_at_every_step_enqueues_each_row_once(
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
    seen = []
    try:
        # In the first run, a worker is killed and a task fails besides, after they have staged.
        for step in ("staged", "publishing", "published"):
            assert run(step, tmp_path, environment) == -signal.SIGKILL
            seen.append(queue.depth(db).enqueued)
        assert run("none", tmp_path, environment) == 0

        assert seen[0] == 0
        assert 0 < seen[1] < ROWS
        assert seen[2] == ROWS
        assert (tmp_path / "a worker was killed").exists()
        assert (tmp_path / "a task failed").exists()
        assert Counter(message.payload for message in queue.browse(db)) == expected
        (state,) = sinks(db, queue).values()
        assert (state.done, state.batch) == (FILES - 1, -1)
        assert fdbqueue.verify(db, queue).ok
    finally:
        queue.delete(db)
