"""The declarative pipeline of the examples, as ``spark-pipelines`` runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fdbqueue import Depth, Queue, fdb

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "pipeline"


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_each_run_takes_what_is_ready_and_writes_it_once(
    db: fdb.Database, environment: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark.pipelines", reason="pyspark 4.1 or later")
    pytest.importorskip("grpc", reason="spark-pipelines is a client of Spark Connect")
    pytest.importorskip("yaml", reason="spark-pipelines reads its specification with it")
    import pyspark

    project = shutil.copytree(EXAMPLE, tmp_path / "pipeline")
    specification = project / "spark-pipeline.yml"
    text = specification.read_text().replace("/var/lib/alerts", str(tmp_path / "storage"))
    specification.write_text(text)
    environment |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("PYSPARK_DRIVER_PYTHON", None)
    command = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"

    def run() -> None:
        done = subprocess.run(
            [str(command), "run"],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]

    flights, alerts = (Queue.open(db, name, serializer=None) for name in ("flights", "alerts"))
    try:
        for delay in (5, 75):
            flights.enqueue(db, b'{"carrier": "UA", "delay": %d}' % delay)
        run()
        flights.enqueue(db, b'{"carrier": "AA", "delay": 99}')
        run()
        assert [each.payload for each in alerts.browse(db)] == [b'"UA is late"', b'"AA is late"']
        assert flights.depth(db) == Depth(enqueued=3, done=3)
    finally:
        flights.delete(db)
        alerts.delete(db)
