"""JSON without loss of digits.

``json`` turns every number with a point into a float. Here a number keeps its text until the type
of its column is known, and values are written by the type of their column.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from json import decoder, scanner
from math import isfinite, isnan
from typing import Any

from pyspark.sql import types

from ...errors import InvalidSchema

Write = Callable[[Any], str]


# -- reading ----------------------------------------------------------------------------------


class Number(str):
    """The text of a number that is not an integer, of NaN or of an infinity."""

    __slots__ = ()


class Object(dict[str, Any]):
    """An object, with the whole text, and where in it the object begins and ends."""

    at: tuple[str, int, int]


class Array(list[Any]):
    """An array, with the same."""

    at: tuple[str, int, int]


class NeedsText(Exception):
    """Raised when ``loads`` did not keep the text that is needed."""


_NUMBERS: dict[str, Any] = {"parse_float": Number, "parse_constant": Number}
_decoder = json.JSONDecoder(**_NUMBERS)


class _Exact(json.JSONDecoder):
    """Keeps the text of objects and arrays. Slower: it runs in Python."""

    def __init__(self) -> None:
        super().__init__(**_NUMBERS)
        library: Any = decoder
        scan: Any = scanner
        parts: Any = self
        parts.parse_object = lambda at, strict, _, *more: library.JSONObject(
            at, strict, self._scan, *more
        )
        parts.parse_array = lambda at, _: library.JSONArray(at, self._scan)
        self._inner = scan.py_make_scanner(parts)
        parts.scan_once = self._scan

    def _scan(self, text: str, begin: int) -> tuple[Any, int]:
        value, end = self._inner(text, begin)
        if type(value) is dict:
            value = Object(value)
        elif type(value) is list:
            value = Array(value)
        else:
            return value, end
        value.at = (text, begin, end)
        return value, end


_exact = _Exact()


def loads(payload: bytes, *, exact: bool = False) -> Any:
    """Parse JSON. Numbers that are not integers become ``Number``.

    exact: keep the text of objects and arrays, for ``written``. Raises ``ValueError``,
    ``RecursionError``.
    """
    text = payload.decode(json.detect_encoding(payload), "surrogatepass")
    return (_exact if exact else _decoder).decode(text)


def written(value: Any) -> str:
    """The text of a parsed value. Raises ``NeedsText``."""
    match value:
        case Object() | Array():
            text, begin, end = value.at
            return text[begin:end]
        case dict() | list():
            raise NeedsText
        case Number():
            return str(value)
    return json.dumps(value)


# -- writing ----------------------------------------------------------------------------------


def writer(type_: types.DataType) -> Write:
    """The function that writes a value of a type, as PyArrow gives it, as JSON.

    Raises ``InvalidSchema`` for a type that JSON cannot express.
    """
    inner = _writer(type_)
    return lambda value: "null" if value is None else inner(value)


def _writer(type_: types.DataType) -> Write:
    match type_:
        case types.StructType():
            return _struct([(f"{_text(each.name)}:", writer(each.dataType)) for each in type_])
        case types.ArrayType():
            element = writer(type_.elementType)
            return lambda values: f"[{','.join(map(element, values))}]"
        case types.MapType() if type(type_.keyType) in _WRITERS:
            key, value = _key(_writer(type_.keyType)), writer(type_.valueType)
            return lambda pairs: f"{{{','.join(f'{key(k)}:{value(v)}' for k, v in pairs)}}}"
    known = _WRITERS.get(type(type_))
    if known is None:
        raise InvalidSchema(
            column="payload",
            problem=f"{type_.simpleString().upper()} cannot be written as JSON: make it a STRING",
        )
    return known


def _struct(fields: list[tuple[str, Write]]) -> Write:
    def write(row: dict[str, Any]) -> str:
        parts = [
            name + each(value) for (name, each), value in zip(fields, row.values(), strict=True)
        ]
        return f"{{{','.join(parts)}}}"

    return write


def _key(write: Write) -> Write:
    def key(value: Any) -> str:
        text = write(value)
        return text if text.startswith('"') else f'"{text}"'

    return key


def _float(value: float) -> str:
    if isfinite(value):
        return repr(value)
    return '"NaN"' if isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _single(value: float) -> str:
    """The shortest text of a 32-bit float. Nine digits are always enough."""
    if not isfinite(value) or value == 0:
        return _float(value)
    packed = struct.pack("f", value)
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next(text for text in texts if struct.pack("f", float(text)) == packed)


def plain(value: Decimal) -> str:
    """A decimal without an exponent."""
    return f"{value:f}"


_text: Write = json.encoder.encode_basestring


def _moment(value: Any) -> str:
    return f'"{value.isoformat()}"'


_WRITERS: dict[type, Write] = {
    types.StringType: _text,
    types.CharType: _text,
    types.VarcharType: _text,
    types.BooleanType: lambda value: "true" if value else "false",
    types.ByteType: str,
    types.ShortType: str,
    types.IntegerType: str,
    types.LongType: str,
    types.FloatType: _single,
    types.DoubleType: _float,
    types.DecimalType: plain,
    types.BinaryType: lambda value: f'"{base64.b64encode(value).decode()}"',
    types.DateType: _moment,
    types.TimestampType: _moment,
    types.TimestampNTZType: _moment,
    types.NullType: lambda _: "null",
}
"""Types that Spark's ``from_json`` reads back as the same values."""
