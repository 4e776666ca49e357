"""The tables of a queue, read without Spark's Java: what the executors do."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types

from fdbqueue.spark.source import batch_read
from fdbqueue.spark.source.columns import TABLES

TYPES: dict[str, types.DataType] = {
    "STRING": types.StringType(),
    "INT": types.IntegerType(),
    "BIGINT": types.LongType(),
    "DOUBLE": types.DoubleType(),
    "BOOLEAN": types.BooleanType(),
    "BINARY": types.BinaryType(),
    "TIMESTAMP": types.TimestampType(),
    "MAP<STRING,STRING>": types.MapType(types.StringType(), types.StringType()),
}


def schema(**columns: str | types.DataType) -> types.StructType:
    return types.StructType(
        [
            types.StructField(name, TYPES[type_] if isinstance(type_, str) else type_)
            for name, type_ in columns.items()
        ]
    )


def read(
    source: dict[str, str],
    table: str = "ready",
    columns: types.StructType | None = None,
    **options: str,
) -> list[dict[str, Any]]:
    """The rows of a table, in the order of its pieces."""
    reader = batch_read.reader(
        {**source, "table": table, **{name.lower(): text for name, text in options.items()}},
        columns or schema(**TABLES[table]),
    )
    return [
        row
        for piece in reader.partitions()
        for found in reader.read(piece)
        for row in found.to_pylist()
    ]
