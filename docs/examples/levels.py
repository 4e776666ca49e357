"""An example job on Spark: how many messages of a queue are ready, by level.

Usage: spark-submit levels.py QUEUE
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import fdbqueue.spark


def main(name: str) -> None:
    """Print the table."""
    spark = SparkSession.builder.appName(f"levels of {name}").getOrCreate()
    fdbqueue.spark.register(spark)
    ready = spark.read.format("fdbqueue").load(name)
    ready.groupBy("level").count().orderBy("level").show()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
