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
    """Make ``format("fdbqueue")`` known to a session, in all threads. Again does no harm.

    Spark looks for the format of a write in the active session of the thread that writes, and a
    thread that has just been started has none. So from now on ``write.format("fdbqueue")``, also
    of a stream, makes the session of what is written the active one of its thread.

    Raises ``MissingPackage`` where Spark's Python packages are too old or not there.
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
