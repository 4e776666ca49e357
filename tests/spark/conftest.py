"""One Spark session for all tests of the pipeline; where there is no Java, it says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fdbqueue.spark
from fdbqueue import MissingJava, MissingPackage, Queue, fdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores, that starts fast."""
    try:
        session = fdbqueue.spark.local(
            "fdbqueue-tests",
            master="local[2]",
            short=True,
            config={
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    except (MissingPackage, MissingJava) as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
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
