"""A data source that yields constants, and drops what is written to it: what Spark itself costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
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

from ...spark.source.rows import TABLES

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

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``; ``batch`` says how many rows a batch has."""
        rows, batch, size = (int(self.options[name]) for name in ("rows", "batch", "size"))
        return ConstantStream(rows, batch, size, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``DataFrame.write``."""
        return Dropper()


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
        return repeated(self._schema, partition, self._size)


class ConstantStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields the same batch again and again, in micro-batches."""

    def __init__(self, rows: int, batch: int, size: int, schema: StructType) -> None:
        self._rows = rows
        self._batch = batch
        self._size = size
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:
        """Before the first row."""
        return {"row": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing comes later."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Behind the next batch."""
        return {"row": min(self._rows, start["row"] + self._batch)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One piece for each core."""
        rows, cores = end["row"] - start["row"], os.cpu_count() or 1
        return [Piece(rows // cores + (n < rows % cores)) for n in range(cores)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As many rows as the piece has."""
        return repeated(self._schema, partition, self._size)


class Dropper(DataSourceArrowWriter):
    """Does nothing with what is written."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take it."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def repeated(schema: StructType, partition: InputPartition, size: int) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    assert isinstance(partition, Piece)
    batch = constant(schema, min(partition.rows, BATCH_ROWS), size)
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
