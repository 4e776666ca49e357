"""``format("fdbqueue")``: picks the reader or writer for a request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ...errors import InvalidInput, QueueError
from ..stores import SharedQueue
from . import batch_read, browse_stream, consume_stream, stream_offsets, write
from .columns import Decoder, Layout
from .leading import leading
from .settings import BATCH, STREAM, Location, UserOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: tuple[Any, ...] = (
    batch_read.BatchReadSettings,
    stream_offsets.StreamSettings,
    write.WriteSettings,
)


class FdbQueueSource(DataSource):
    """The data source. Spark makes one when a table or a stream is named, and for each write.

    parallelism, pushdown: of the session, as ``known_to`` found them.
    """

    parallelism = 0
    pushdown = False

    @classmethod
    def known_to(cls, spark: SparkSession) -> type[FdbQueueSource]:
        """The data source for a session: the processes that plan its reads cannot ask it."""
        pushdown = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true"
        # In a plan, since Spark Connect has no context to ask for its parallelism.
        (plan,) = spark.sql("EXPLAIN SELECT id FROM range(1)").collect()
        found = re.search(r"splits=(?:Some\()?(\d+)", plan[0])
        parallelism = int(found[1]) if found else 0
        # Spark pickles a class that is in no module by value.
        return type(cls.__name__, (cls,), {"parallelism": parallelism, "pushdown": pushdown})

    @leading()
    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options, of whatever they can be: Spark does not say what they are for.

        Raises ``InvalidOptions``, ``InvalidSelector``, ``InvalidArgument``.
        """
        # What Spark says of a table in a catalog, before it forgets its options.
        options = {} if "provider" in options else options
        super().__init__(options)  # type: ignore[arg-type]
        problems: list[tuple[float, InvalidInput]] = []
        for kind in _SETTINGS:
            try:
                kind.of(options)
                return
            except InvalidInput as error:
                problems.append((sum(_likeness(name, kind.KNOWN) for name in options), error))
        # Of the kind whose options are most like those that were given: it is the one that was
        # meant.
        raise max(problems, key=lambda each: each[0])[1]

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "fdbqueue"

    @leading()
    def schema(self) -> StructType:
        """The columns of a read without a schema of the user's.

        Spark asks for them first, so this is where a missing queue is reported.
        """
        options = UserOptions(self.options, {**BATCH, **STREAM})
        layout = Layout.of(options)
        schema = layout.schema(SharedQueue.find(Location.of(options)).serializer)
        Decoder(layout, schema)
        return schema

    @leading()
    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        return batch_read.reader(self.options, schema, self.pushdown)

    @leading()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``DataFrame.write``."""
        return write.BatchWriter.of(self.options, schema, overwrite)

    @leading()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``DataFrame.writeStream``."""
        return write.StreamWriter.of(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        try:
            taking = stream_offsets.StreamSettings.of(self.options).mode == stream_offsets.CONSUME
            kind = consume_stream.ConsumeReader if taking else browse_stream.BrowseReader
            return kind.of(self.options, schema, self.parallelism)
        except QueueError as error:
            return stream_offsets.Refused(error)


def _likeness(name: str, known: Iterable[str]) -> float:
    """How much a name is like one of those that are known: 1 if it is one."""
    return max(SequenceMatcher(None, name.lower(), each.lower()).ratio() for each in known)
