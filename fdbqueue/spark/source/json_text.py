"""JSON without loss: numbers are read as they are written, and written as they are.

``json`` makes a float of every number with a point, and prints what a float holds. Here a number
keeps its text until the type of its column says what it is; and the writers are made by type, so
that each value is printed by what it is.
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
    """A number that is no integer, or NaN or an infinity, as it is written."""

    __slots__ = ()


class Object(dict[str, Any]):
    """An object, and where it is written: the whole text, where it begins, and where it ends."""

    at: tuple[str, int, int]


class Array(list[Any]):
    """An array, and where it is written."""

    at: tuple[str, int, int]


class NeedsText(Exception):
    """Raised when the text of a value is asked for, and ``loads`` did not keep it."""


_NUMBERS: dict[str, Any] = {"parse_float": Number, "parse_constant": Number}
_decoder = json.JSONDecoder(**_NUMBERS)


class _Exact(json.JSONDecoder):
    """Keeps the text of objects and arrays: in Python, so it is the slower one."""

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
    """Parse JSON; numbers that are no integers become ``Number``.

    exact: whether objects and arrays keep their text, for ``written``. Raises ``ValueError`` and
    ``RecursionError``.
    """
    text = payload.decode(json.detect_encoding(payload), "surrogatepass")
    return (_exact if exact else _decoder).decode(text)


def written(value: Any) -> str:
    """The text that a parsed value is written as. Raises ``NeedsText``."""
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
    """What writes a value of a type, as PyArrow gives it, as JSON.

    Raises ``InvalidSchema`` for a type of which JSON has no values.
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
    """The shortest text that is this number of 32 bits; nine digits tell each of them."""
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
"""Of what is not listed, JSON has nothing that Spark's ``from_json`` would take as the same."""
