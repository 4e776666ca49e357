"""A Spark data source of constants that discards what is written: the cost of Spark itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fdbqueue.spark.source.rows import TABLES

# Spark sends the classes themselves: its processes need not find this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

PARTITIONS = 10
BATCH_ROWS = 10_000


@dataclass
class Slice(InputPartition):
    """A number of rows."""

    rows: int


class Constants(DataSource):
    """``format("constants")``: a table with the columns of ready messages.

    Options: ``rows``, ``size`` (bytes of a payload) and, for a stream, ``batch`` (rows).
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "constants"

    def schema(self) -> str:
        """The columns."""
        return ", ".join(f"{name} {type_}" for name, type_ in TABLES["ready"].items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of ``spark.read``."""
        return ConstantReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of ``spark.readStream``."""
        return ConstantStream(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of ``DataFrame.write``."""
        return Discard()


class _Repeated:
    """Yields one batch repeatedly."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._rows, self._size = int(options["rows"]), int(options["size"])
        self._batch = int(options.get("batch", 0))
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice."""
        assert isinstance(partition, Slice)
        batch = constant(self._schema, min(partition.rows, BATCH_ROWS), self._size)
        for begin in range(0, partition.rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.rows - begin))


def _slices(rows: int, count: int) -> list[InputPartition]:
    return [Slice(rows // count + (n < rows % count)) for n in range(count)]


class ConstantReader(_Repeated, DataSourceReader):
    """The table."""

    def partitions(self) -> list[InputPartition]:
        """Slices of equal size."""
        return _slices(self._rows, PARTITIONS)


class ConstantStream(_Repeated, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream."""

    def initialOffset(self) -> dict[str, int]:
        """The offset before the first row."""
        return {"row": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: no rows are added later."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The offset after the next batch."""
        return {"row": min(self._rows, start["row"] + self._batch)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One slice for each core."""
        return _slices(end["row"] - start["row"], os.cpu_count() or 1)


class Discard(DataSourceArrowWriter):
    """Discards all rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read the rows and discard them."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def constant(schema: StructType, rows: int, size: int) -> pa.RecordBatch:
    """A batch of equal rows that look like messages."""
    values = {
        "id": "05-000000000001-0011223344556677",
        "payload": bytes(size),
        "headers": [("n", "1")],
        "priority": 4,
        "level": 5,
        "attempts": 0,
        "enqueued_at": 0,
        "content_type": "application/octet-stream",
        "blocked": False,
    }
    arrow = to_arrow_schema(schema, timezone="UTC")
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(each.name)] * rows, each.type) for each in arrow], schema=arrow
    )
