"""Making ``format("fdbqueue")`` known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MissingPackage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``format("fdbqueue")`` known to a session. Once for each; again does no harm.

    Raises ``MissingPackage`` where Spark's Python packages are too old or not there.
    """
    try:
        from .source.source import FdbQueueSource
    except ImportError as error:
        raise MissingPackage(
            purpose=f"Spark ({error})", package="pyspark>=4.2 and pyarrow>=18", extra="spark"
        ) from None
    spark.dataSource.register(FdbQueueSource)
