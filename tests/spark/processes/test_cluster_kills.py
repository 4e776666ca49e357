"""A standalone master with two workers on this machine, whose executors or driver are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fdbqueue import Depth, NewMessage, Queue, fdb
from tests.patience import DEADLINE, eventually

PROGRAM = "tests.spark.processes.clustered"
MESSAGES = 180
JOBS = ("write", "drain", "foreachBatch", "parquet")


@pytest.fixture(scope="module")
def master(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master that has two workers."""
    directory = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    listening = ["--host", "127.0.0.1", "--webui-port", "0"]
    worker = ["worker.Worker", *listening, "--cores", "1", "--memory", "1g"]
    environment = {
        **os.environ,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = directory / "log"
    processes = []
    try:
        for n, arguments in enumerate(
            (
                ["master.Master", *listening, "--port", str(port)],
                [*worker, "--work-dir", str(directory / "1"), address],
                [*worker, "--work-dir", str(directory / "2"), address],
            )
        ):
            with log.open("ab") as out:
                command = [spark_class(), f"org.apache.spark.deploy.{arguments[0]}"]
                processes.append(
                    subprocess.Popen(
                        [*command, *arguments[1:]],
                        env=environment,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                    )
                )
            said = "I have been elected leader" if n == 0 else "Registering worker"
            eventually(lambda: log.read_text().count(said) >= max(1, n))  # noqa: B023
        yield address
    finally:
        for each in processes:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["executor", "driver"])
@pytest.mark.parametrize("job", JOBS)
def test_each_message_comes_to_the_far_end_once(
    db: fdb.Database,
    environment: dict[str, str],
    master: str,
    tmp_path: Path,
    job: str,
    victim: str,
) -> None:
    environment |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "STRUCK_DIRECTORY": str(tmp_path),
    }
    arguments = [sys.executable, "-m", PROGRAM, master, job, victim]
    source, sink = Queue.open(db, "source"), Queue.open(db, "sink")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    try:
        source.enqueue_many(db, [NewMessage(b"%03d" % n, priority=n % 10) for n in range(MESSAGES)])
        # When a process of the cluster is killed while tasks read
        done = run()
        assert (tmp_path / "struck").exists(), done.stderr[-2_000:]
        if victim == "driver":
            assert done.returncode == -signal.SIGKILL, done.stderr[-2_000:]
            assert source.admin.verify(db).ok
            done = run()
        # Then Spark, or another driver, goes on, and nothing is lost or doubled
        assert done.returncode == 0, done.stderr[-2_000:]
        assert json.loads(done.stdout) == [f"{n:03d}" for n in range(MESSAGES)]
        left = Depth(enqueued=MESSAGES, done=MESSAGES)
        if job == "write":
            left = Depth(enqueued=MESSAGES, ready=MESSAGES, ready_bytes=3 * MESSAGES)
        assert source.depth(db) == left
        assert source.admin.verify(db).ok
        assert sink.admin.verify(db).ok
    finally:
        source.delete(db)
        sink.delete(db)
