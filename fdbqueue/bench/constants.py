"""A data source that yields constants, and drops what is written to it: what Spark itself costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..spark.rows import TABLES

PARTITIONS = 10
BATCH_ROWS = 10_000


@dataclass
class Piece(InputPartition):
    """So many rows."""

    rows: int


class Constants(DataSource):
    """``format("constants")`` has the columns of ready messages; ``rows`` and ``size`` say how many
    there are, and how many bytes their payloads have."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "constants"

    def schema(self) -> str:
        """The columns."""
        return ", ".join(f"{name} {type_}" for name, type_ in TABLES["ready"].items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        return ConstantReader(int(self.options["rows"]), int(self.options["size"]), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``DataFrame.write``."""
        return DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    """Takes all rows, and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the rows of a task."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


class ConstantReader(DataSourceReader):
    """Yields the same batch again and again."""

    def __init__(self, rows: int, size: int, schema: StructType) -> None:
        self._rows = rows
        self._size = size
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Pieces of one size."""
        pieces: list[InputPartition] = [
            Piece(self._rows // PARTITIONS + (n < self._rows % PARTITIONS))
            for n in range(PARTITIONS)
        ]
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As many rows as the piece has."""
        assert isinstance(partition, Piece)
        batch = constant(self._schema, min(partition.rows, BATCH_ROWS), self._size)
        for begin in range(0, partition.rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.rows - begin))


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
