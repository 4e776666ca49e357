"""The measurements of the pipeline run, and judge what they promise to."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from benchmarks import spark as pipeline
from benchmarks.constant_source import Constants
from benchmarks.spark_setup import Setup

from fdbqueue import fdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BARS = {
    "batch read of ready messages",
    "batch write of messages",
    "stream that takes messages",
    "ours in an empty micro-batch",
}


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1, id="one of the groups"),
        pytest.param(len(pipeline.GROUPS), id="every group", marks=pytest.mark.slow),
    ],
)
def test_a_group_tells_its_figures(
    spark: SparkSession, db: fdb.Database, space: fdb.Subspace, count: int
) -> None:
    spark.dataSource.register(Constants)
    setup = Setup(spark, db, space, 1_000, 10, 1)
    groups = random.sample(sorted(pipeline.GROUPS), count)
    rates = [rate for group in groups for rate in pipeline.GROUPS[group](setup)]
    assert rates
    assert all(rate.figure >= 0 for rate in rates)
    bars = {rate.name for rate in rates if rate.bar}
    assert bars <= BARS
    assert count == 1 or bars == BARS
