"""One Spark session for all tests of the pipeline; where there is no Java, it says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fdbqueue.spark
from fdbqueue import Queue, fdb
from fdbqueue.store.binding import DEFAULT, Engine
from tests.needs import require_spark
from tests.spark import prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def java() -> None:
    """Something that Spark runs on, also for tests whose processes start it."""
    require_spark()
    if DEFAULT.engine is Engine.EMBEDDED:  # Else what is prepared has the cluster's bindings.
        os.environ.update(prepared.environment())


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores, that starts fast."""
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
