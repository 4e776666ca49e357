"""One Spark session for all tests of the pipeline; where there is no Java, it says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fdbqueue.spark
from fdbqueue import Queue, fdb
from tests.needs import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def java() -> None:
    """Something that Spark runs on, for tests whose processes start it."""
    require_spark()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores, that starts fast."""
    require_spark()
    session = fdbqueue.spark.local(
        "fdbqueue-tests",
        master="local[2]",
        short=True,
        config={"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))},
    )
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a streaming query keeps its offsets."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def source(db: fdb.Database, queue: Queue) -> dict[str, str]:
    """The options that name the fresh queue."""
    return fdbqueue.spark.options(db, queue)
