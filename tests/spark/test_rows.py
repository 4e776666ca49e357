"""How payloads and headers become columns."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from pyspark.sql import types

from fdbqueue import Queue, fdb
from fdbqueue.errors import CorruptData, InvalidSchema
from fdbqueue.schema.envelope import Envelope
from fdbqueue.spark.source import payload_columns
from fdbqueue.values.model import HeaderValue, Position

from .columns import read, schema

TEXT, WHOLE = types.StringType(), types.LongType()


def struct(**fields: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, each) for name, each in fields.items()])


def parsed(type_: types.DataType, *texts: str | bytes, strict: bool = True) -> list[Any]:
    data = [text if isinstance(text, bytes) else text.encode() for text in texts]
    ids = [f"id-{n}" for n in range(len(data))]
    found: list[Any] = payload_columns.reader("json", type_, strict)(data, ids).to_pylist()
    return found


def test_json_takes_the_fields_of_the_schema() -> None:
    type_ = struct(a=WHOLE, b=TEXT)
    assert parsed(type_, '{"a": 1, "b": "x", "c": [1]}', '{"b": null}') == [
        {"a": 1, "b": "x"},
        {"a": None, "b": None},
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"a": "x"}', '{"a": 1.5}', "", "\xff", "1" * 5000])
def test_what_does_not_fit_fails_and_names_the_message_or_is_null(text: str) -> None:
    type_, data = struct(a=WHOLE), text.encode("latin-1")
    with pytest.raises(CorruptData, match="message id-1"):
        parsed(type_, '{"a": 1}', data)
    assert parsed(type_, '{"a": 1}', data, '{"a": 3}', strict=False) == [
        {"a": 1},
        None,
        {"a": 3},
    ]


def test_json_of_several_lines_is_one_value() -> None:
    assert parsed(struct(a=WHOLE), '{\n"a":\n1}', '{"a": 2}\n') == [{"a": 1}, {"a": 2}]
    assert parsed(struct(a=WHOLE), '{"a": 1}{"a": 2}', '{"a": 3}', strict=False)[0] is None


def test_types_beside_the_common_ones() -> None:
    type_ = struct(
        d=types.DecimalType(10, 2),
        day=types.DateType(),
        at=types.TimestampType(),
        data=types.BinaryType(),
        tags=types.ArrayType(TEXT),
        named=types.MapType(TEXT, types.DoubleType()),
        small=types.ByteType(),
        inner=struct(x=types.BooleanType()),
        any=TEXT,
    )
    text = json.dumps(
        {
            "d": 12.34,
            "day": "2026-05-01",
            "at": "2026-05-01T12:00:00Z",
            "data": "AP8=",
            "tags": ["a", None],
            "named": {"x": 1},
            "small": 127,
            "inner": {"x": True},
            "any": {"k": 1},
        }
    )
    (row,) = parsed(type_, text)
    assert row["d"] == Decimal("12.34")
    assert row["day"].isoformat() == "2026-05-01"
    assert row["at"].isoformat() == "2026-05-01T12:00:00+00:00"
    assert row["data"] == b"\x00\xff"
    assert row["tags"] == ["a", None]
    assert row["named"] == [("x", 1.0)]
    assert (row["small"], row["inner"], row["any"]) == (127, {"x": True}, '{"k": 1}')
    assert parsed(struct(small=types.ByteType()), '{"small": 128}', strict=False) == [None]


def test_a_type_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="INTERVAL"):
        payload_columns.reader("json", struct(a=types.DayTimeIntervalType()), True)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abxy"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_any_json_is_read_or_null(values: list[Any]) -> None:
    type_ = struct(a=WHOLE, b=TEXT, x=types.ArrayType(types.BooleanType()), y=struct(a=WHOLE))
    found = parsed(type_, *map(json.dumps, values), strict=False)
    for value, row in zip(values, found, strict=True):
        if row is None:
            continue
        assert row["a"] == value.get("a")
        text = value.get("b")
        assert row["b"] == (text if text is None or isinstance(text, str) else json.dumps(text))
        assert row["x"] == value.get("x")
        inner = value.get("y")
        assert row["y"] == (None if inner is None else {"a": inner.get("a")})
    again = [one for value in values for one in parsed(type_, json.dumps(value), strict=False)]
    assert found == again


def test_payloads_are_text_if_they_are_utf8(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    columns = schema(payload="STRING")
    queue.enqueue(db, "grün".encode())
    assert read(source, columns=columns) == [{"payload": "grün"}]
    bad = queue.enqueue(db, b"\xff")
    with pytest.raises(CorruptData, match=bad):
        read(source, columns=columns)
    rows = read(source, columns=columns, badPayloads="null")
    assert [row["payload"] for row in rows] == ["grün", None]


def test_headers_are_columns_with_types(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    queue.enqueue(db, b"", headers={"region": "eu", "n": 3, "weight": 1, "paid": True})
    queue.enqueue(db, b"", headers={"region": 7, "n": "three", "weight": None, "paid": 0})
    queue.enqueue(db, b"")
    columns = schema(region="STRING", n="BIGINT", weight="DOUBLE", paid="BOOLEAN")
    rows = read(source, columns=columns, headerColumns="region, n, weight, paid")
    assert [tuple(row.values()) for row in rows] == [
        ("eu", 3, 1.0, True),
        ("7", None, None, None),
        (None, None, None, None),
    ]


def test_headers_as_json_keep_their_types(
    db: fdb.Database, queue: Queue, source: dict[str, str]
) -> None:
    headers: dict[str, HeaderValue] = {"n": 3, "s": "3", "x": 0.5, "none": None}
    queue.enqueue(db, b"", headers=headers)
    (row,) = read(source, columns=schema(headers="STRING"))
    assert json.loads(row["headers"]) == headers


STORED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


NAMES = [each.encode_name for each in structs.fields(Envelope)]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([*NAMES, "unknown"]), STORED))
def test_whatever_is_stored_is_a_row_or_told_to_be_corrupt(
    db: fdb.Database, queue: Queue, source: dict[str, str], stored: dict[str, Any]
) -> None:
    db[queue._keys.ready_key(Position(5, 1, b"random"))] = b"\x01" + msgpack.packb(stored)
    for options in ({}, {"selector": "priority > 3"}, {"since": "2020-01-01"}):
        try:
            assert len(read(source, "ready", None, **options)) <= 1
        except CorruptData:
            continue
