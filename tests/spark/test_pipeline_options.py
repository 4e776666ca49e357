"""What ``fdbq pipeline`` tells without Java, and what it keeps to itself."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fdbqueue
import fdbqueue.spark
from fdbqueue import Queue
from fdbqueue.cli.main import run
from fdbqueue.cli.pipeline import session

pytest.importorskip("pyspark")


@pytest.fixture
def name() -> str:
    """A queue in the store that ``fdbq`` uses by itself."""
    Queue.open(fdbqueue.open(), "unstarted")
    return "unstarted"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drain", "QUEUE", "out", "--payload", "json"], "payloadSchema"),
        (["drain", "QUEUE", "out", "--schema", "a INT"], "payloadSchema"),
        (["drain", "QUEUE", "out", "--header-columns", "a b c"], "headerColumns"),
        (["drain", "QUEUE", "out", "--consumer", "\n"], "invalid name"),
        (["load", "QUEUE", "a.txt"], "name one of parquet"),
        (["load", "QUEUE", "nowhere.json"], "Path does not exist"),
        (["load", "QUEUE", __file__, "--format", "csv", "--id", "\n"], "invalid name"),
        (["replay", "QUEUE", "--all", "--yes", "--header-columns", "a b c"], "headerColumns"),
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
    monkeypatch.setattr("fdbqueue.spark.session.local", start)
    assert run(["pipeline", *(name if word == "QUEUE" else word for word in arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_what_java_says_by_itself_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    def tell(word: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", f"import os; os.write(2, b'{word}')"])

    with session._silent_children():
        silent = tell("warning")
    heard = tell("error")
    assert silent.wait() == heard.wait() == 0
    assert capfd.readouterr().err == "error"


def test_spark_finds_the_data_source_by_itself() -> None:
    root = Path(fdbqueue.__file__).parents[1]
    assert "pyspark_fdbqueue" in {each.name for each in pkgutil.iter_modules([str(root)])}
    import pyspark_fdbqueue

    assert pyspark_fdbqueue.DefaultSource.name() == "fdbqueue"
