"""The data pipeline on Spark: queues as tables and streams, and jobs on top of them.

``register`` makes ``format("fdbqueue")`` known to a session; ``local`` gives a session on this
machine, where there is none yet. Importing this needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MissingPackage
from .session import check_java, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..api import Queue
    from ..binding import fdb

__all__ = ["check_java", "local", "options", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("fdbqueue")`` known to a session. Once for each; again does no harm.

    Raises ``MissingPackage`` where Spark's Python packages are too old or not there.
    """
    try:
        from .source import FdbQueueSource
    except ImportError as error:
        raise MissingPackage(
            purpose=f"Spark ({error})", package="pyspark>=4.2 and pyarrow>=18", extra="spark"
        ) from None
    spark.dataSource.register(FdbQueueSource)


def options(db: fdb.Database, queue: Queue) -> dict[str, str]:
    """The options of the data source that name a queue in any store and subspace.

    For ``spark.read.format("fdbqueue").options(**options(db, queue))``, where ``queue`` alone does
    not say it: another store than this process uses by itself, or another subspace of queues.
    """
    from .stores import options_of

    return options_of(db, queue)
