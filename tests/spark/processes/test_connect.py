"""Everything as a client of Spark Connect, whose server has executors of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fdbqueue import fdb

PROGRAM = "tests.spark.processes.connected"


@pytest.mark.slow
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_jobs_tables_and_streams_need_no_java_in_their_process(
    db: fdb.Database, environment: dict[str, str], tmp_path: Path, master: str
) -> None:
    pytest.importorskip("grpc", reason="the client of Spark Connect: pip install pyspark[connect]")
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, str(tmp_path), master],
        env={**os.environ, **environment, **paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout) == {
        "loaded": 3,
        "late": 2,
        "copied": 3,
        "replayed": 1,
        "drained": 3,
        "done": 3,
        "checked": [True, 3],
        "said": True,
    }
