"""Making ``format("fdbqueue")`` known to a session."""

from __future__ import annotations

import threading
from functools import wraps
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = threading.Lock()


def register(spark: SparkSession) -> None:
    """Make ``format("fdbqueue")`` known to a session, in all threads. Harmless if it is already.

    Spark looks up the format of a write in the active session of the thread, and a new thread has
    none. So ``write.format("fdbqueue")``, also of a stream, makes the session of its data the
    active one of its thread.

    Raises ``MissingPackage`` if Spark's Python packages are missing or too old.
    """
    try:
        from .source.source import FdbQueueSource
    except ImportError as error:
        raise MissingPackage(
            purpose=f"Spark ({error})", package="pyspark>=4.2 and pyarrow>=18", extra="spark"
        ) from None
    with _lock:
        spark.dataSource.register(FdbQueueSource)
        _activate_where_written(FdbQueueSource.name())


def _activate_where_written(name: str) -> None:
    from pyspark.sql import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    writers: list[Any] = [DataFrameWriter, DataStreamWriter]
    for writer in writers:
        if not hasattr(writer.format, "activates"):
            writer.format = _activating(writer.format, name)


def _activating(original: Any, name: str) -> Any:
    @wraps(original)
    def format(self: Any, source: str) -> Any:
        if source == name:
            _activate(self._df.sparkSession)
        return original(self, source)

    format.__dict__["activates"] = True
    return format


def _activate(spark: Any) -> None:
    """Make a session the active one of this thread, as ``createDataFrame`` does."""
    sessions = type(spark)._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)
