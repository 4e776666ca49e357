"""The pages of the documentation on Spark: all of their blocks run, as they say."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fdbqueue
from docs.examples import levels
from fdbqueue import NewMessage, Queue
from fdbqueue.store.binding import DEFAULT, Engine
from tests.acceptance.running import FDBQ, prepared
from tests.docs.runner import run_blocks
from tests.docs.test_pages import PAGES, needs_spark, runnable, title

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory of its own, to which Python and Spark keep."""
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    files.setWorkingDirectory(hadoop.Path(tmp_path.as_uri()))
    yield
    files.setWorkingDirectory(before)


@pytest.mark.usefixtures("spark", "place")
@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)], ids=title)
def test_the_blocks_of_a_page_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page finds a session that is there; starting one takes longer than all that it does."""
    places = [str(FDBQ.parent), os.environ["PATH"]]
    if DEFAULT.engine is Engine.EMBEDDED:  # Else what is prepared has the cluster's bindings.
        places.insert(0, str(prepared().directory))
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    run_blocks(runnable(page))


def test_the_example_job_shows_the_levels_of_a_queue(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # Others use this session, too.
    db = fdbqueue.open()
    queue = Queue.open(db, "example-levels")
    queue.enqueue_many(db, [b"tea", NewMessage(b"a telegram", priority=9)])
    levels.main("example-levels")
    queue.delete(db)
    shown = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert shown[1:] == [["|", "0|", "1|"], ["|", "5|", "1|"]]
