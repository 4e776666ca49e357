"""Payload columns: bytes, text, or JSON by a schema.

JSON follows Spark's ``from_json``: fields outside the schema are dropped, missing ones are null,
and a text takes any value as written. A number goes from its text to its column, never through a
float that cannot hold it. A payload that does not fit, or is no JSON or UTF-8, fails the read or
becomes null, as the user chooses.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from ...errors import CorruptData, InvalidSchema
from . import json_text
from .json_text import NeedsText, Number

Reader = Callable[[Sequence[bytes | None], Sequence[str | None]], pa.Array]
Convert = Callable[[Any], Any]


def reader(kind: str, type_: types.DataType, strict: bool) -> Reader:
    """The function that makes a column of payloads and the ids of their messages.

    kind: "bytes", "string" or "json". strict: raise ``CorruptData`` for a payload that does not
    fit, instead of making it null. A payload of None stays null. Raises ``InvalidSchema``.
    """
    if kind == "bytes":
        return lambda payloads, ids: pa.array(payloads, pa.binary())
    if kind == "string":
        return lambda payloads, ids: _texts(payloads, ids, strict)
    return _json(type_, strict)


def _texts(payloads: Sequence[bytes | None], ids: Sequence[str | None], strict: bool) -> pa.Array:
    try:
        return pa.array(payloads, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [_one(bytes.decode, *each, strict) for each in zip(payloads, ids, strict=True)],
            pa.string(),
        )


def _one(convert: Convert, payload: bytes | None, message_id: str | None, strict: bool) -> Any:
    if payload is None:
        return None
    try:
        return convert(payload)
    except (ValueError, ArithmeticError, RecursionError) as error:
        if not strict:
            return None
        raise CorruptData(
            what=f"the payload of message {message_id}",
            problem=f"{error}; set the option badPayloads to 'null' to read such payloads as null",
        ) from None


def _json(type_: types.DataType, strict: bool) -> Reader:
    # One by one: Arrow's own reader of JSON lines crashes over some values that are no objects.
    convert, arrow = _converter(type_), to_arrow_type(type_, timezone="UTC")

    def parse(payload: bytes) -> Any:
        try:
            return convert(json_text.loads(payload))
        except NeedsText:
            return convert(json_text.loads(payload, exact=True))

    def read(payloads: Sequence[bytes | None], ids: Sequence[str | None]) -> pa.Array:
        found = [_one(parse, *each, strict) for each in zip(payloads, ids, strict=True)]
        try:
            return pa.array(found, arrow)
        except UnicodeEncodeError:
            found = [_one(text, *each, strict) for each in zip(payloads, ids, strict=True)]
            return pa.array(found, arrow)

    def text(payload: bytes) -> Any:
        # Half of a surrogate pair is valid JSON, but Arrow cannot hold it.
        value = parse(payload)
        pa.array([value], arrow)
        return value

    return read


def _converter(type_: types.DataType) -> Convert:
    """The function from parsed JSON to what Arrow takes for a type; it raises ``ValueError``."""
    inner: Convert
    match type_:
        case types.StructType():
            inner = _struct({each.name: _converter(each.dataType) for each in type_})
        case types.ArrayType():
            inner = _list(_converter(type_.elementType))
        case types.MapType() if isinstance(type_.keyType, types.StringType):
            inner = _map(_converter(type_.valueType))
        case types.DecimalType():
            inner = _decimal(type_.precision, type_.scale)
        case _:
            known = _CONVERTERS.get(type(type_))
            if known is None:
                raise InvalidSchema(
                    column="payload",
                    problem=f"{type_.simpleString().upper()} cannot be read from JSON",
                )
            inner = known
    return lambda value: None if value is None else inner(value)


def _struct(fields: dict[str, Convert]) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        given = _of(dict, value)
        return {name: inner(given.get(name)) for name, inner in fields.items()}

    return convert


def _list(element: Convert) -> Convert:
    return lambda value: [element(each) for each in _of(list, value)]


def _map(inner: Convert) -> Convert:
    return lambda value: [(name, inner(each)) for name, each in _of(dict, value).items()]


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind and not (kind in (dict, list) and isinstance(value, kind)):
        raise ValueError(f"{_shown(value)} is not {_KINDS[kind]}")
    return value


def _shown(value: Any) -> str:
    return str(value) if type(value) is Number else json.dumps(value)[:80]


_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
}


def _integer(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        whole: int = _of(int, value)
        if not -limit <= whole < limit:
            raise ValueError(f"{whole} does not fit {bits} bits")
        return whole

    return convert


def _number(kind: str, largest: float, value: Any) -> float:
    """Takes NaN and infinities as texts too, as Spark writes them."""
    if type(value) not in (int, Number) and value not in _NO_NUMBERS:
        raise ValueError(f"{_shown(value)} is not a number")
    found = float(value)
    if abs(found) > largest and (type(value) is int or value.lstrip("-+") not in _NO_NUMBERS):
        raise ValueError(f"{_shown(value)} does not fit {kind}")
    return found


_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_LARGEST_FLOAT, _LARGEST_DOUBLE = (2 - 2**-24) * 2.0**127, sys.float_info.max


def _decimal(precision: int, scale: int) -> Convert:
    # Spark rounds like this. The context also keeps huge numbers from being expanded.
    exactly = Context(prec=precision, rounding=ROUND_HALF_UP)
    last = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if type(value) not in (int, Number, str):
            raise ValueError(f"{_shown(value)} is not a number")
        try:
            found = Decimal(value).quantize(last, context=exactly)
        except ArithmeticError:
            found = Decimal("NaN")
        if not found.is_finite():
            raise ValueError(f"{_shown(value)} does not fit DECIMAL({precision},{scale})")
        return found

    return convert


def _text(value: Any) -> str:
    return value if type(value) is str else json_text.written(value)


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_of(str, value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _local_moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_of(str, value))
    if moment.tzinfo:
        raise ValueError(f"{value} has a time zone")
    return moment


_CONVERTERS: dict[type, Convert] = {
    types.StringType: _text,
    types.BooleanType: lambda value: _of(bool, value),
    types.ByteType: _integer(8),
    types.ShortType: _integer(16),
    types.IntegerType: _integer(32),
    types.LongType: _integer(64),
    types.FloatType: partial(_number, "FLOAT", _LARGEST_FLOAT),
    types.DoubleType: partial(_number, "DOUBLE", _LARGEST_DOUBLE),
    types.DateType: lambda value: date.fromisoformat(_of(str, value)),
    types.TimestampType: _moment,
    types.TimestampNTZType: _local_moment,
    types.BinaryType: lambda value: base64.b64decode(_of(str, value), validate=True),
}
