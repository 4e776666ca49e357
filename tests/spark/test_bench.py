"""The measurements of the pipeline run, and judge what they promise to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import spark as pipeline
from benchmarks.constant_source import Constants
from benchmarks.spark_setup import Setup

from fdbqueue import fdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_group_tells_its_figures(
    spark: SparkSession, db: fdb.Database, space: fdb.Subspace
) -> None:
    spark.dataSource.register(Constants)
    setup = Setup(spark, db, space, 1_000, 10, 1)
    rates = [rate for group in pipeline.GROUPS.values() for rate in group(setup)]
    assert all(rate.figure >= 0 for rate in rates)
    assert {rate.bar.name for rate in rates if rate.bar} == {
        "batch read of ready messages: rows/s",
        "batch write of messages: rows/s",
        "stream that takes messages: rows/s",
        "ms of ours in an empty micro-batch",
    }
