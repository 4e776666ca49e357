"""``format("fdbqueue")``: picks the reader or writer for a request."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..stores import SharedQueue
from . import batch, browse_stream, consume_stream, streams, write
from .rows import Layout
from .settings import BATCH, STREAM, Location, Options


class FdbQueueSource(DataSource):
    """The data source. Spark makes one in several processes, so the constructor does nothing."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "fdbqueue"

    def schema(self) -> str:
        """The columns of a read without a schema of the user's.

        Spark asks for them first, so this is where a missing queue is reported.
        """
        options = Options(self.options, {**BATCH, **STREAM})
        layout = Layout.of(options)
        return layout.ddl(SharedQueue.find(Location.of(options)).serializer)

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
        if streams.Settings.of(self.options).mode == streams.CONSUME:
            return consume_stream.ConsumeReader.of(self.options, schema)
        return browse_stream.BrowseReader.of(self.options, schema)
