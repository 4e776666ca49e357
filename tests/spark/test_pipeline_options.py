"""What ``fdbq stream`` tells without Java, and what it keeps to itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fdbqueue
import fdbqueue.spark
from fdbqueue import Queue
from fdbqueue.cli.main import run
from fdbqueue.cli.streams import spark_session

pytest.importorskip("pyspark")


@pytest.fixture
def name() -> str:
    """A queue in the store that ``fdbq`` uses by itself."""
    Queue.open(fdbqueue.open(), "unstarted")
    return "unstarted"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stream", "drain", "QUEUE", "out", "--payload", "json"], "payloadSchema"),
        (
            ["stream", "drain", "QUEUE", "out", "--payload", "bytes", "--schema", "a INT"],
            "payloadSchema",
        ),
        (["stream", "drain", "QUEUE", "out", "--header-columns", "a b c"], "headerColumns"),
        (["stream", "drain", "QUEUE", "out", "--consumer", "\n"], "it must have "),
        (["stream", "load", "QUEUE", "a.txt"], "name one of parquet"),
        (["stream", "load", "QUEUE", "nowhere.json"], "there is no such file"),
        (["stream", "load", "QUEUE", __file__, "--format", "csv", "--id", "\n"], "it must have "),
        (
            ["message", "retry", "QUEUE", "--where", "TRUE", "--yes", "--header-columns", "a b c"],
            "headerColumns",
        ),
    ],
)
def test_options_are_checked_before_java_starts(
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    def start(*_: object, **__: object) -> None:
        pytest.fail("Java is started")

    monkeypatch.setattr(fdbqueue.spark, "local", start)
    monkeypatch.setattr("fdbqueue.spark.spark_session.local", start)
    assert run([name if word == "QUEUE" else word for word in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_what_java_says_by_itself_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    def tell(word: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", f"import os; os.write(2, b'{word}')"])

    with spark_session._silent_children():
        silent = tell("warning")
    heard = tell("error")
    assert silent.wait() == heard.wait() == 0
    assert capfd.readouterr().err == "error"


def test_spark_finds_the_data_source_by_itself_in_any_directory(tmp_path: Path) -> None:
    script = "import pkgutil; print(*(each.name for each in pkgutil.iter_modules()))"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert {"fdbqueue", "pyspark_fdbqueue"} <= set(found.stdout.split())
    import pyspark_fdbqueue

    assert pyspark_fdbqueue.DefaultSource.name() == "fdbqueue"


WRITERS = """
import threading

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
import fdbqueue.spark

fdbqueue.spark.register(spark)
failed = []

def write(rows):
    try:
        rows.write.format("fdbqueue").mode("append").save("threads")
    except Exception as error:
        failed.append(error)

def in_threads(session):
    rows = session.createDataFrame([(b"a",)], "payload BINARY")
    threads = [threading.Thread(target=write, args=[rows]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

in_threads(spark)
in_threads(spark.newSession())  # in which nothing was registered
assert not failed, failed
"""


@pytest.mark.slow
def test_threads_write_as_soon_as_the_session_has_started(tmp_path: Path) -> None:
    store = f"embedded:{tmp_path}/store.fdbq"
    here = {**os.environ, "FDBQUEUE_STORE": store, "PYSPARK_PYTHON": sys.executable}
    fdbq = [sys.executable, "-c", "import sys; from fdbqueue.cli import main; main()"]
    subprocess.run([*fdbq, "queue", "create", "threads"], env=here, check=True)
    subprocess.run([sys.executable, "-c", WRITERS], env=here, cwd=tmp_path, check=True)
    shown = subprocess.run(
        [*fdbq, "queue", "show", "threads", "--json"], env=here, capture_output=True, check=True
    )
    assert json.loads(shown.stdout)["depth"]["ready"] == 8
