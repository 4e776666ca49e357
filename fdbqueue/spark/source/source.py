"""``format("fdbqueue")``: which reader or writer serves what was asked for."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .. import stores
from . import batch, browse_stream, consume_stream, streams, write
from .rows import Layout
from .settings import BATCH, STREAM, Given, Place


class FdbQueueSource(DataSource):
    """The data source. Spark makes one in several processes, so making it does nothing."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "fdbqueue"

    def schema(self) -> str:
        """The columns that a read has, where the user names no schema.

        It is asked for first, so here the queue is looked for. Raises what ``batch.reader`` does.
        """
        given = Given(self.options, (*BATCH, *STREAM))
        columns = Layout.of(given).ddl()
        stores.look(Place.of(given))
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        return batch.reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``DataFrame.write``."""
        return write.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``DataFrame.writeStream``."""
        return write.stream_writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        if streams.mode(self.options) == streams.CONSUME:
            return consume_stream.reader(self.options, schema)
        return browse_stream.reader(self.options, schema)
