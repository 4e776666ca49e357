"""Schemas of payloads as texts: what Spark makes of them, without its Java."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types

from fdbqueue.spark.source import ddl
from tests import seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMPLE = ["STRING", "boolean", "TINYINT", "SMALLINT", "INT", "Integer", "BIGINT", "LONG", "FLOAT"]
SIMPLE += ["DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY", "DECIMAL", "DECIMAL(9)"]
SIMPLE += ["DEC( 38 , 18 )"]


def made(chance: random.Random, depth: int = 3) -> str:
    """Some fields, as somebody may write them."""
    names = chance.sample(["a", "`b c`", "`d``e`", "_f", "g1", "h"], chance.randint(1, 4))
    return chance.choice([", ", ","]).join(
        f"{name}{chance.choice([' ', ': '])}{type_of(chance, depth)}"
        + chance.choice(["", "", " NOT NULL", " COMMENT 'it''s, <that>'"][: 3 if depth < 3 else 4])
        for name in names
    )


def type_of(chance: random.Random, depth: int) -> str:
    kind = chance.choice(["STRUCT", "ARRAY", "map", *SIMPLE]) if depth else chance.choice(SIMPLE)
    if kind == "STRUCT":
        return f"STRUCT<{made(chance, depth - 1)}>"
    if kind == "ARRAY":
        return f"ARRAY<{type_of(chance, depth - 1)}>"
    return f"map<STRING, {type_of(chance, depth - 1)}>" if kind == "map" else kind


def test_a_schema_is_what_spark_reads_from_the_same_text(spark: SparkSession) -> None:
    chance = random.Random(seeds.SEED)
    for _ in range(60):
        text = made(chance)
        wanted = types.StructType.fromDDL(text)
        assert shape(ddl.parse(text)) == shape(wanted), text
        assert ddl.parse(wanted.json()) == wanted


def shape(type_: types.DataType) -> object:
    """A type without comments and what must not be null: a payload has neither."""
    match type_:
        case types.StructType():
            return [(each.name, shape(each.dataType)) for each in type_]
        case types.ArrayType():
            return ["array", shape(type_.elementType)]
        case types.MapType():
            return ["map", shape(type_.keyType), shape(type_.valueType)]
    return type_
