"""Payload columns: bytes, text, or JSON by the types of Spark, without loss of digits.

msgspec reads and writes JSON. This module says which of its types each type of Spark is, and has
what the two see differently: a text takes any value, as it is written, and there are NaN and
infinities. Spark's ``from_json`` reads what is written here as the same values, and the other way
round. A payload that does not fit, or is no JSON or UTF-8, fails the read or becomes null, as the
user chooses.
"""

from __future__ import annotations

import re
import struct
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from math import isfinite, isnan
from typing import Annotated, Any, TypedDict

import pyarrow as pa
from msgspec import DecodeError, Meta, Raw, json
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from ...errors import CorruptData, InvalidSchema

Convert = Callable[[Any], Any]
Reader = Callable[[Sequence[bytes | None], Sequence[str | None]], pa.Array]

_READ, _WRITTEN = "read from", "written as"

_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_BARE = re.compile(rb'("(?:[^"\\]|\\.)*")|(-?(?:NaN|Infinity))')
"""Texts, and what is no number outside of them."""
_typed_dict: Any = TypedDict
_encoder = json.Encoder(decimal_format="number")
_strings = json.Decoder(str)


def reader(kind: str, type_: types.DataType, strict: bool) -> Reader:
    """The function that makes a column of payloads and the ids of their messages.

    kind: "bytes", "string" or "json". strict: raise ``CorruptData`` for a payload that does not
    fit, instead of making it null. A payload of None stays null. Raises ``InvalidSchema``.
    """
    if kind == "bytes":
        return lambda payloads, ids: pa.array(payloads, pa.binary())
    # One by one: Arrow's own reader of JSON lines crashes over some values that are no objects.
    read = _parser(type_) if kind == "json" else bytes.decode
    arrow = to_arrow_type(type_, timezone="UTC")

    def one(payload: bytes | None, message_id: str | None) -> Any:
        if payload is None:
            return None
        try:
            return read(payload)
        except (ValueError, ArithmeticError, RecursionError) as error:
            if not strict:
                return None
            raise CorruptData(
                what=f"the payload of message {message_id}",
                problem=f"{error}; set the option badPayloads to 'null' to read such payloads as "
                "null",
            ) from None

    return lambda payloads, ids: pa.array(map(one, payloads, ids), arrow)


def _parser(type_: types.DataType) -> Callable[[bytes], Any]:
    """The function that reads JSON as what PyArrow takes for a type. It raises ``ValueError`` or
    ``RecursionError``. Raises ``InvalidSchema`` for a type that JSON cannot express."""
    made: Any = _type(type_, _READ)
    # Numbers stay texts until their type is known: a float would lose digits of a DECIMAL.
    decoder = json.Decoder(made, dec_hook=_read, float_hook=_Number)
    finish = _inside(type_, {types.StringType: _text}, list) or _same

    def read(payload: bytes) -> Any:
        try:
            return finish(decoder.decode(payload))
        except DecodeError:
            # Only now: NaN is rare, and to look for it would cost every payload.
            quoted = _BARE.sub(lambda found: found[1] or b'"%b"' % found[2], payload)
            if quoted == payload:
                raise
            return finish(decoder.decode(quoted))

    return read


def writer(type_: types.DataType) -> Callable[[Any], bytes]:
    """The function that writes a value of a type, as PyArrow gives it, as JSON.

    Raises ``InvalidSchema`` for a type that JSON cannot express.
    """
    _type(type_, _WRITTEN)
    prepare = _inside(type_, {types.FloatType: _single, types.DoubleType: _double}, _object)
    return _encoder.encode if prepare is None else lambda value: _encoder.encode(prepare(value))


def _type(type_: types.DataType, verb: str) -> Any:
    """What msgspec is to read for a type. ``Raw`` may be null by itself."""
    made: Any
    match type_:
        case types.StructType():
            fields = {each.name: _type(each.dataType, verb) for each in type_}
            made = _typed_dict("Fields", fields, total=False)
        case types.ArrayType():
            made = list[_type(type_.elementType, verb)]  # type: ignore[misc]
        case types.MapType() if type(type_.keyType) in (
            _LEAVES if verb == _WRITTEN else (types.StringType,)
        ):
            made = dict[str, _type(type_.valueType, verb)]  # type: ignore[misc]
        case types.DecimalType():
            made = _leaf(_decimal(type_.precision, type_.scale))
        case _ if type(type_) in _LEAVES:
            made = _LEAVES[type(type_)]
        case _:
            raise InvalidSchema(
                column="payload",
                problem=f"{type_.simpleString().upper()} cannot be {verb} JSON: make it a STRING",
            )
    return made if made is Raw else made | None


def _inside(
    type_: types.DataType,
    leaves: Mapping[type[types.DataType], Convert],
    join: Callable[[Iterable[tuple[Any, Any]]], Any],
) -> Convert | None:
    """The function that converts the leaves of a value, and its maps; None if there are none."""
    made: Convert | None = None
    match type_:
        case types.StructType():
            fields = {each.name: _inside(each.dataType, leaves, join) for each in type_}
            some = {name: inner for name, inner in fields.items() if inner is not None}
            made = partial(_fields, some) if some else None
        case types.ArrayType():
            inner = _inside(type_.elementType, leaves, join)
            made = None if inner is None else lambda values: [*map(inner, values)]
        case types.MapType():
            key, value = (
                _inside(each, leaves, join) or _same for each in (type_.keyType, type_.valueType)
            )
            made = lambda pairs: join([(key(k), value(v)) for k, v in _pairs(pairs)])  # noqa: E731
        case _:
            made = leaves.get(type(type_))
    convert = made
    return None if convert is None else lambda value: None if value is None else convert(value)


def _fields(some: Mapping[str, Convert], row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: inner(row.get(name)) for name, inner in some.items()}


def _pairs(given: Any) -> Any:
    return given.items() if isinstance(given, dict) else given


def _object(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """An object of a map whose keys may be no texts."""
    return {
        key if type(key) is str else _encoder.encode(key).decode().strip('"'): value
        for key, value in pairs
    }


def _same(value: Any) -> Any:
    return value


class _Number(str):
    """The text of a number that is not an integer."""

    __slots__ = ()


class _Leaf(type):
    """The class of a type whose values a function reads, which may be of any class."""

    def __instancecheck__(cls, value: object) -> bool:
        return True


def _read(leaf: Any, value: Any) -> Any:
    return leaf.read(value)


def _leaf(read: Convert) -> Any:
    return _Leaf("Leaf", (), {"read": staticmethod(read)})


def _of_text(read: Callable[[str], Any]) -> Any:
    def leaf(value: Any) -> Any:
        if type(value) is not str:
            raise ValueError(f"{value!r:.80} is not a string")
        return read(value)

    return _leaf(leaf)


def _integer(bits: int) -> Any:
    limit = 1 << (bits - 1)
    return Annotated[int, Meta(ge=-limit, le=limit - 1)]


def _number(kind: str, largest: float, value: Any) -> float:
    """Takes NaN and infinities as texts too, as Spark writes them."""
    if type(value) not in (int, _Number) and value not in _NO_NUMBERS:
        raise ValueError(f"{value!r:.80} is not a number")
    found = float(value)
    if abs(found) > largest and value not in _NO_NUMBERS:
        raise ValueError(f"{value} does not fit {kind}")
    return found


def _decimal(precision: int, scale: int) -> Convert:
    # Spark rounds like this. The context also keeps huge numbers from being expanded.
    exactly = Context(prec=precision, rounding=ROUND_HALF_UP)
    last = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if type(value) not in (int, _Number, str):
            raise ValueError(f"{value!r:.80} is not a number")
        try:
            found = Decimal(value).quantize(last, context=exactly)
        except ArithmeticError:
            found = Decimal("NaN")
        if not found.is_finite():
            raise ValueError(f"{value} does not fit DECIMAL({precision},{scale})")
        return found

    return convert


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _local_moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo:
        raise ValueError(f"{text} has a time zone")
    return moment


def _text(value: Raw | str) -> str | None:
    if isinstance(value, str):  # a key of a map
        return value
    written = bytes(value)
    if written[:1] == b'"':
        return _strings.decode(written)
    return None if written == b"null" else written.decode()


_LEAVES: dict[type[types.DataType], Any] = {
    types.StringType: Raw,
    types.NullType: type(None),
    types.BooleanType: bool,
    types.ByteType: _integer(8),
    types.ShortType: _integer(16),
    types.IntegerType: _integer(32),
    types.LongType: _integer(64),
    types.FloatType: _leaf(partial(_number, "FLOAT", (2 - 2**-24) * 2.0**127)),
    types.DoubleType: _leaf(partial(_number, "DOUBLE", sys.float_info.max)),
    types.DecimalType: Decimal,
    types.DateType: _of_text(date.fromisoformat),
    types.TimestampType: _of_text(_moment),
    types.TimestampNTZType: _of_text(_local_moment),
    types.BinaryType: _of_text(partial(b64decode, validate=True)),
}


def _double(value: float) -> float | str:
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _single(value: float) -> float | str:
    """The shortest double that a 32-bit float reads as itself. Nine digits are always enough."""
    if not isfinite(value):
        return _double(value)
    packed = struct.pack("f", value)
    texts = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next(each for each in texts if struct.pack("f", each) == packed)
