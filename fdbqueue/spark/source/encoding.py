"""Which columns a write takes, and how their values become messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from ...errors import InvalidInput, InvalidPayload, InvalidSchema
from ...queue.bulk.sinks import Stager
from ...values.model import NewMessage
from ...values.options import DEFAULT_PRIORITY
from ...values.records import record
from ...values.serializers import BUILT_IN
from . import json_text

CORRUPT = "_corrupt_record"
"""The column in which Spark's readers of JSON and CSV keep what they could not read."""

_SECONDS = "a number of seconds, or an interval"
_PLAIN = {"payload", "priority", "headers", CORRUPT}

COLUMNS: dict[str, str] = {
    "payload": "BINARY, STRING, or a STRUCT, ARRAY or MAP, which become JSON",
    "priority": "an integer",
    "headers": "a MAP from STRING, or a STRUCT, of STRING, numbers or BOOLEAN",
    "delay": _SECONDS,
    "at": "a TIMESTAMP",
    "ttl": _SECONDS,
    "max_attempts": "an integer",
    "key": "STRING",
    "dedup_id": "STRING",
    "unique": "STRING",
}
"""The columns that a write takes, and their types. ``payload`` must be there."""

Bad = Callable[[int, str], None]
"""Takes a row that is no message: its number in the partition, and what is wrong."""


class Encoder:
    """Turns the rows of Arrow batches into messages. Raises ``InvalidSchema`` when made."""

    def __init__(self, schema: StructType) -> None:
        check(schema)
        self._names = schema.fieldNames()
        types = {each.name: each.dataType for each in schema.fields}
        self._convert = {name: _converter(name, type_) for name, type_ in types.items()}
        self._json = isinstance(types["payload"], _NESTED)
        self._plain = set(self._names) <= _PLAIN
        self._before = 0

    def content_type(self, given: str) -> str:
        """That of the payloads; ``given`` is that of bytes and text."""
        return BUILT_IN["json"].content_type if self._json else given

    def stage(self, rows: pa.RecordBatch, stager: Stager, bad: Bad) -> None:
        """Stage the rows of a batch; those that are no messages go to ``bad``."""
        columns = {
            name: self._convert[name](column)
            for name, column in zip(self._names, rows.columns, strict=True)
        }
        corrupt = columns.pop(CORRUPT, None)
        if corrupt is not None:
            for n, text in enumerate(corrupt):
                if text is not None:
                    columns["payload"][n] = _Unreadable(text)
        put = self._put_plain if self._plain else self._put
        put(columns, rows.num_rows, stager, bad)
        self._before += rows.num_rows

    def _put_plain(
        self, columns: dict[str, list[Any]], count: int, stager: Stager, bad: Bad
    ) -> None:
        priorities = columns.get("priority") or repeat(None, count)
        headers = columns.get("headers") or repeat(None, count)
        rows = zip(columns["payload"], priorities, headers, strict=True)
        for n, (payload, priority, each) in enumerate(rows, self._before + 1):
            try:
                if type(payload) is not bytes:
                    _refuse(payload)
                stager.plain(payload, DEFAULT_PRIORITY if priority is None else priority, each)
            except InvalidInput as error:
                bad(n, str(error))

    def _put(self, columns: dict[str, list[Any]], count: int, stager: Stager, bad: Bad) -> None:
        for n, values in enumerate(zip(*columns.values(), strict=True), self._before + 1):
            # What is null is as if it were not there.
            given = {k: v for k, v in zip(columns, values, strict=True) if v is not None}
            try:
                payload = given.pop("payload", None)
                if payload is None or type(payload) is _Unreadable:
                    _refuse(payload)
                stager.add(NewMessage(payload, **given))
            except InvalidInput as error:
                bad(n, str(error))


def check(schema: StructType) -> None:
    """Raise ``InvalidSchema`` if the columns cannot be written."""
    names = schema.fieldNames()
    for field in schema.fields:
        name, type_ = field.name, field.dataType
        if name == CORRUPT:
            continue
        if name not in COLUMNS:
            raise InvalidSchema(
                column=name, problem=f"there is no such column to write; there are {_KNOWN}"
            )
        if names.count(name) > 1:
            raise InvalidSchema(column=name, problem="it is there twice")
        if not _FITS[name](type_):
            raise InvalidSchema(
                column=name, problem=f"it is {COLUMNS[name]}, not {type_.simpleString().upper()}"
            )
        if name == "payload" and isinstance(type_, _NESTED):
            json_text.writer(type_)
    if "payload" not in names:
        raise InvalidSchema(column="payload", problem=f"it is missing; there are {_KNOWN}")


_KNOWN = ", ".join(COLUMNS)
_NESTED = (StructType, ArrayType, MapType)
_SCALARS = (StringType, IntegralType, FractionalType, BooleanType)


def _is_header(type_: DataType) -> bool:
    return isinstance(type_, _SCALARS)


def _is_headers(type_: DataType) -> bool:
    if isinstance(type_, MapType):
        return isinstance(type_.keyType, StringType) and _is_header(type_.valueType)
    return isinstance(type_, StructType) and all(_is_header(f.dataType) for f in type_.fields)


def _is_seconds(type_: DataType) -> bool:
    return isinstance(type_, IntegralType | FractionalType | DayTimeIntervalType)


def _is_text(type_: DataType) -> bool:
    return isinstance(type_, StringType)


def _is_whole(type_: DataType) -> bool:
    return isinstance(type_, IntegralType)


_FITS: dict[str, Callable[[DataType], bool]] = {
    "payload": lambda type_: isinstance(type_, (BinaryType, StringType, *_NESTED)),
    "priority": _is_whole,
    "headers": _is_headers,
    "delay": _is_seconds,
    "at": lambda type_: isinstance(type_, TimestampType),
    "ttl": _is_seconds,
    "max_attempts": _is_whole,
    "key": _is_text,
    "dedup_id": _is_text,
    "unique": _is_text,
}


# -- values -----------------------------------------------------------------------------------


@record
class _Unreadable:
    """Stands where a row has no payload, for Spark could not read it."""

    text: str


def _refuse(payload: object) -> None:
    if isinstance(payload, _Unreadable):
        raise InvalidPayload(expected="readable", kind=repr(payload.text[:200]))
    raise InvalidPayload(expected="there", kind="null")


def _converter(name: str, type_: DataType) -> Callable[[pa.Array], list[Any]]:
    """How the values of a column become a list."""
    if isinstance(type_, StringType) and name == "payload":
        return lambda column: _list(column.cast(pa.binary()))
    value: Callable[[Any], Any] | None = None
    if name == "headers":
        value = _headers(type_)
    elif isinstance(type_, _NESTED):
        text = json_text.writer(type_)
        value = lambda each: text(each).encode()  # noqa: E731
    elif isinstance(type_, DayTimeIntervalType):
        value = timedelta.total_seconds
    elif isinstance(type_, DecimalType):
        value = float
    if value is None:
        return _list
    convert = value
    return lambda column: [None if each is None else convert(each) for each in _list(column)]


def _list(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _headers(type_: DataType) -> Callable[[Any], Any]:
    """What makes headers of a value of a type."""
    if isinstance(type_, MapType):
        inner = _header(type_.valueType)
        return lambda pairs: {name: _or_null(inner, value) for name, value in pairs}
    assert isinstance(type_, StructType)
    fields = {each.name: _header(each.dataType) for each in type_.fields}
    return lambda row: {name: _or_null(fields[name], value) for name, value in row.items()}


def _header(type_: DataType) -> Callable[[Any], Any]:
    """What makes a header of a value of a type. One type is always the same kind of header."""
    if not isinstance(type_, DecimalType):
        return _same
    if type_.scale == 0 and type_.precision <= _INT_DIGITS:
        return int
    return float if type_.precision <= _FLOAT_DIGITS else json_text.plain


_INT_DIGITS = 18
"""So many digits fit into the 64 bits of a header."""
_FLOAT_DIGITS = 15
"""So many digits come out of a float as they went in, wherever the point is."""


def _or_null(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
