"""What goes through JSON comes out as it was, and as Spark's own functions have it."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.errors import CorruptData, InvalidSchema
from fdbqueue.spark.source import payload_columns
from fdbqueue.spark.source.encoding import check
from fdbqueue.spark.source.write import BatchWriter

from .columns import read, schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""Spark's own default leaves out what is shorter than a millisecond."""

SCALARS: list[types.DataType] = [
    types.StringType(),
    types.BooleanType(),
    types.ByteType(),
    types.ShortType(),
    types.IntegerType(),
    types.LongType(),
    types.FloatType(),
    types.DoubleType(),
    types.DateType(),
    types.TimestampType(),
    types.TimestampNTZType(),
    types.BinaryType(),
]


TEXT = types.StringType()
BITS: dict[type, int] = {
    types.ByteType: 8,
    types.ShortType: 16,
    types.IntegerType: 32,
    types.LongType: 64,
}


def parsed(type_: types.DataType, *texts: str, strict: bool = True) -> list[Any]:
    ids = [f"id-{n}" for n in range(len(texts))]
    made = payload_columns.reader("json", type_, strict)([text.encode() for text in texts], ids)
    return told(made)


def told(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that can be compared, NaN and zeros with their signs too."""
    return [plain(each) for each in values.to_pylist()]


def plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case float():
            return "NaN" if isnan(value) else repr(value)
    return value


def wrote(
    db: fdb.Database, queue: Queue, source: dict[str, str], columns: types.StructType, *rows: Any
) -> list[fdbqueue.Message]:
    """What rows become that a task stages and the driver publishes, without Java."""
    arrays = [
        pa.array([row[n] for row in rows], to_arrow_type(each.dataType, timezone="UTC"))
        for n, each in enumerate(columns)
    ]
    batch = pa.record_batch(arrays, names=columns.fieldNames())
    writer = BatchWriter.of(source, columns)
    staged = writer.stage("exact", 0, iter([batch]))
    writer.publish([staged])
    return list(queue.browse(db))


def some_type(dice: random.Random, depth: int = 0) -> types.DataType:
    match dice.randrange(6 if depth < 3 else 3):
        case 0:
            precision = dice.randint(1, 38)
            return types.DecimalType(precision, dice.randint(0, precision))
        case 3:
            fields = [f"f{n}" for n in range(dice.randint(1, 4))]
            return types.StructType(
                [types.StructField(name, some_type(dice, depth + 1)) for name in fields]
            )
        case 4:
            return types.ArrayType(some_type(dice, depth + 1))
        case 5:
            return types.MapType(types.StringType(), some_type(dice, depth + 1))
    return dice.choice(SCALARS)


def some_value(dice: random.Random, type_: types.DataType) -> Any:
    if dice.random() < 0.1:
        return None
    text = "".join(dice.choices('aZ0 "\\/\n\té☃😀\u2028{}[]', k=dice.randrange(6)))
    moment = datetime(1970, 1, 1) + timedelta(
        days=dice.choice([0, 20_000, -20_000, dice.randint(-700_000, 2_900_000)]),
        microseconds=dice.randrange(86_400_000_000),
    )
    match type_:
        case types.StructType():
            return {each.name: some_value(dice, each.dataType) for each in type_}
        case types.ArrayType():
            return [some_value(dice, type_.elementType) for _ in range(dice.randrange(4))]
        case types.MapType():
            return [
                (f"{text}{n}", some_value(dice, type_.valueType)) for n in range(dice.randrange(3))
            ]
        case types.DecimalType():
            digits = dice.randrange(10 ** dice.randint(1, type_.precision))
            return Decimal(dice.choice([1, -1]) * digits).scaleb(-type_.scale)
        case types.StringType():
            return text
        case types.BooleanType():
            return dice.random() < 0.5
        case types.FloatType():
            return number(dice, "f")
        case types.DoubleType():
            return number(dice, "d")
        case types.DateType():
            return moment.date()
        case types.TimestampType():
            return moment.replace(tzinfo=UTC)
        case types.TimestampNTZType():
            return moment
        case types.BinaryType():
            return dice.randbytes(dice.randrange(5))
    limit = 1 << (BITS[type(type_)] - 1)
    return dice.choice([0, -1, limit - 1, -limit, dice.randrange(-limit, limit)])


def number(dice: random.Random, kind: str) -> float:
    """Any float of 64 or 32 bits, NaN and the infinities among them."""
    special = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 0.1, 1e22]
    found = dice.choice(
        [*special, *struct.unpack(f"<{kind}", dice.randbytes(struct.calcsize(kind)))]
    )
    return float(struct.unpack("f", struct.pack("f", found))[0]) if kind == "f" else float(found)


def test_any_value_goes_through_json_as_with_sparks_own_functions(spark: SparkSession) -> None:
    dice = random.Random(17)
    columns = schema(**{f"c{n}": schema(v=some_type(dice)) for n in range(16)})
    given = {
        each.name: pa.array(
            [some_value(dice, each.dataType) or {"v": None} for _ in range(6)],
            to_arrow_type(each.dataType, timezone="UTC"),
        )
        for each in columns
    }
    ours = {
        each.name: [
            payload_columns.writer(each.dataType)(one).decode()
            for one in given[each.name].to_pylist()
        ]
        for each in columns
    }

    # When Spark reads what we write, and writes what we read
    from_json = (F.from_json(each.name, each.dataType.json()).alias(each.name) for each in columns)
    to_json = (F.to_json(each.name, MICROSECONDS).alias(each.name) for each in columns)
    theirs = spark.createDataFrame(pa.table(ours)).select(*from_json).toArrow()
    texts = spark.createDataFrame(pa.table(given), columns).select(*to_json).toArrow()

    # Then all have what was there
    for each in columns:
        there = told(given[each.name])
        assert parsed(each.dataType, *ours[each.name]) == there, ours[each.name]
        assert told(theirs[each.name]) == there, ours[each.name]
        written = texts[each.name].to_pylist()
        assert parsed(each.dataType, *written) == there, written


def test_any_number_is_read_as_spark_reads_it(spark: SparkSession) -> None:
    dice = random.Random(17)
    numbers = ["0", "-0", "-0.0", "0.10", "1E5", "1e-5", "12345678901234567.123456789", "2.5e0"]
    numbers += [
        "99999999999999.99",
        "19999999999999999.99",
        "1e28",
        "0.0000000005",
        "-0.0000000015",
    ]
    for _ in range(60):
        digits = str(dice.randrange(10 ** dice.randint(1, 28)))
        point = dice.randrange(len(digits) + 1)
        tail = dice.choice(["", "", f"e{dice.randint(-9, 9)}"])
        numbers.append(f"{int(digits[:point] or 0)}.{digits[point:] or 0}{tail}")
    others = ["[1, 2.50]", '{"a" : 1e2 , "b":"\\u00e9" }', "true", "null", '"text"']
    type_ = schema(d=types.DecimalType(38, 9), x="DOUBLE", f=types.FloatType())
    texts = [f'{{"{each.name}": {text} }}' for text in [*numbers, *others] for each in type_]

    frame = spark.createDataFrame(pa.table({"text": texts}))
    theirs = told(frame.select(F.from_json("text", type_).alias("read")).toArrow()["read"])

    for text, there, found in zip(texts, theirs, parsed(type_, *texts, strict=False), strict=True):
        # Where it does not fit, Spark makes the field null, and here it is the payload.
        nothing = dict.fromkeys(type_.fieldNames())
        assert (found or nothing) == there, text


def test_a_text_takes_any_value_as_it_is_written() -> None:
    values = ["0.10", "1E5", "-1e-400", "12345678901234567.1234567890123456789", "NaN", "true"]
    values += ["[1, 2.50 ]", '{"a" : [{}, 1e2] , "b":"\\u00e9", "b": null }', "[[[]]]"]
    for text in values:
        (row,) = parsed(schema(s="STRING", n="INT"), f'{{"n": 1, "s": {text} }}')
        assert row == {"s": text, "n": 1}
        (row,) = parsed(schema(o=types.ArrayType(TEXT)), f'{{"o": ["é", {text} , null]}}')
        assert row == {"o": ["é", text, None]}


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (types.DecimalType(38, 9), "1e30"),
        (types.DecimalType(38, 9), "NaN"),
        (types.DecimalType(38, 9), '"Infinity"'),
        (types.DecimalType(5, 2), "1e999999999"),
        (types.DecimalType(5, 2), "999.995"),
        (types.DoubleType(), "1e400"),
        (types.FloatType(), "1e39"),
        (types.DoubleType(), '"1.5"'),
        (types.LongType(), "NaN"),
        (types.LongType(), "9223372036854775808"),
        (types.LongType(), "1.0"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(type_: types.DataType, text: str) -> None:
    with pytest.raises(CorruptData, match=r"message id-0"):
        parsed(schema(v=type_), f'{{"v": {text}}}')
    assert parsed(schema(v=type_), f'{{"v": {text}}}', strict=False) == [None]


@pytest.mark.parametrize(
    "type_",
    [
        types.VariantType(),
        types.DayTimeIntervalType(),
        types.YearMonthIntervalType(),
        types.CalendarIntervalType(),
        types.TimeType(),
    ],
)
def test_what_json_cannot_hold_is_refused_before_anything_is_read_or_written(
    type_: types.DataType,
) -> None:
    nested = schema(a=types.ArrayType(schema(v=type_)))
    with pytest.raises(InvalidSchema, match="cannot be written as JSON"):
        check(schema(payload=nested))
    with pytest.raises(InvalidSchema, match="cannot be read from JSON"):
        payload_columns.reader("json", nested, True)
    with pytest.raises(InvalidSchema, match="headers"):
        check(schema(payload="STRING", headers=schema(v=type_)))
    with pytest.raises(InvalidSchema, match="cannot be written as JSON"):
        check(schema(payload=types.MapType(nested, types.LongType())))


def test_decimals_keep_their_digits_in_payloads_and_headers(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    large, exact, short = (
        types.DecimalType(20, 2),
        types.DecimalType(38, 9),
        types.DecimalType(5, 2),
    )
    nested = schema(a=large, b=exact)
    headers = schema(large=large, whole=types.DecimalType(18, 0), short=short)
    row = (
        {"a": Decimal("19999999999999999.99"), "b": Decimal("12345678901234567.123456789")},
        {
            "large": Decimal("19999999999999999.99"),
            "whole": Decimal(10**17),
            "short": Decimal("1.5"),
        },
    )
    (message,) = wrote(db, queue, source, schema(payload=nested, headers=headers), row)
    assert message.payload == b'{"a":19999999999999999.99,"b":12345678901234567.123456789}'
    assert message.content_type == "application/json"
    assert message.headers == {"large": "19999999999999999.99", "whole": 10**17, "short": 1.5}
    (found,) = read(source, columns=schema(payload=nested))
    assert found["payload"] == row[0]
