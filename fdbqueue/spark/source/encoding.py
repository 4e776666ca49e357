"""Writes: the columns they take, and how rows become messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
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
from ...queue.streams.sinks import Stager
from ...values.model import BYTES, NewMessage
from ...values.options import DEFAULT_PRIORITY
from ...values.serializers import JSON, Declared
from . import payload_columns

CORRUPT = "_corrupt_record"
"""The column of Spark's JSON and CSV readers for lines that they could not read."""

_NESTED = (StructType, ArrayType, MapType)
_SCALARS = (StringType, IntegralType, FractionalType, BooleanType)
_PLAIN = {"priority", "headers"}
"""What most messages have beside their payloads: these are staged at once."""


def _is(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda type_: isinstance(type_, types)


def _named(*kinds: type[DataType]) -> Callable[[DataType], bool]:
    """Whether a type has values of these kinds by names."""

    def check(type_: DataType) -> bool:
        if isinstance(type_, MapType):
            return isinstance(type_.keyType, StringType) and isinstance(type_.valueType, kinds)
        return isinstance(type_, StructType) and all(isinstance(f.dataType, kinds) for f in type_)

    return check


_TEXT = "STRING", _is(StringType)
_INTEGER = "an integer", _is(IntegralType)
_SECONDS = (
    "a number of seconds, or an interval",
    _is(IntegralType, FractionalType, DayTimeIntervalType),
)
COLUMNS: dict[str, tuple[str, Callable[[DataType], bool]]] = {
    "payload": (
        "BINARY, STRING, or a STRUCT, ARRAY or MAP, which become JSON",
        _is(BinaryType, StringType, *_NESTED),
    ),
    "priority": _INTEGER,
    "headers": ("a MAP from STRING, or a STRUCT, of STRING, numbers or BOOLEAN", _named(*_SCALARS)),
    "delay": _SECONDS,
    "at": ("a TIMESTAMP", _is(TimestampType)),
    "ttl": _SECONDS,
    "max_attempts": _INTEGER,
    "key": _TEXT,
    "limits": ("a MAP from STRING, or a STRUCT, of STRING", _named(StringType)),
    "dedup_id": _TEXT,
    "unique": _TEXT,
}
"""The columns that a write takes, with their types in words and a check. ``payload`` is required.
"""
_KNOWN = ", ".join(COLUMNS)

Convert = Callable[[Any], Any]
OnInvalid = Callable[[int, str], None]
"""Takes the number of an invalid row in its partition, and the problem."""


class Encoder:
    """Turns Arrow batches into messages.

    schema: of valid columns. content_type: what bytes and text hold already, if that is given.
    """

    def __init__(self, schema: StructType, content_type: str | None) -> None:
        self._names = schema.fieldNames()
        types = {each.name: each.dataType for each in schema.fields}
        self._convert = {
            name: _converter(name, type_, content_type) for name, type_ in types.items()
        }
        self._before = 0

    def stage(self, rows: pa.RecordBatch, stager: Stager, on_invalid: OnInvalid) -> None:
        """Stage the rows of a batch. Invalid rows go to ``on_invalid``."""
        columns = {
            name: _values(column, self._convert[name])
            for name, column in zip(self._names, rows.columns, strict=True)
        }
        broken = columns.pop(CORRUPT, None) or [None] * rows.num_rows
        payloads = columns.pop("payload")
        every = zip(payloads, broken, *columns.values(), strict=True)
        for n, (payload, unread, *values) in enumerate(every, self._before + 1):
            # A null means the default.
            given = {k: v for k, v in zip(columns, values, strict=True) if v is not None}
            try:
                if unread is not None:
                    raise InvalidPayload(expected="readable", kind=repr(unread[:200]))
                if payload is None:
                    raise InvalidPayload(expected="there", kind="null")
                if given.keys() <= _PLAIN:
                    priority = given.get("priority", DEFAULT_PRIORITY)
                    stager.plain(payload, priority, given.get("headers"))
                else:
                    stager.add(NewMessage(payload, **given))
            except InvalidInput as error:
                on_invalid(n, str(error))
        self._before += rows.num_rows


def check(schema: StructType) -> None:
    """Raise ``InvalidSchema`` if the columns cannot be written."""
    names = schema.fieldNames()
    for field in schema.fields:
        name, type_ = field.name, field.dataType
        if name == CORRUPT:
            continue
        if name not in COLUMNS:
            raise InvalidSchema(
                column=name, problem=f"a write has no such column; the columns are {_KNOWN}"
            )
        if names.count(name) > 1:
            raise InvalidSchema(column=name, problem="it appears twice")
        expected, fits = COLUMNS[name]
        if not fits(type_):
            raise InvalidSchema(
                column=name, problem=f"it is {expected}, not {type_.simpleString().upper()}"
            )
        if name == "payload" and isinstance(type_, _NESTED):
            payload_columns.writer(type_)
    if "payload" not in names:
        raise InvalidSchema(column="payload", problem=f"it is missing; the columns are {_KNOWN}")


def content_type(schema: StructType, given: str | None, stored: Declared | None) -> str:
    """The content type of the payloads: those of ``Queue.enqueue`` for the same values.

    given: what bytes and text hold already. stored: what the queue knows of its
    serializer. Raises ``InvalidSchema`` for what that does not take.
    """
    type_ = schema["payload"].dataType
    if isinstance(type_, _NESTED):
        made = JSON
    elif isinstance(type_, StringType):
        made = given or JSON
    else:
        made = given or (
            BYTES if stored is None or stored.content_type == JSON else stored.content_type
        )
    if stored is not None and made != stored.content_type:
        take = "BINARY that this serializer reads"
        if stored.content_type == JSON:
            take = "STRING, STRUCT, ARRAY or MAP, or set contentType to that of JSON if it is JSON"
        kind = type_.simpleString().partition("<")[0].upper()
        raise InvalidSchema(
            column="payload",
            problem=f"{kind} becomes {made}, but the serializer of the queue is {stored}: "
            f"write {take}",
        )
    return made


def _converter(name: str, type_: DataType, given: str | None) -> Convert | None:
    """The function that makes what a message takes of a value; None if it takes the value.

    given: as in ``content_type``.
    """
    if name == "payload":
        if isinstance(type_, BinaryType):
            return None
        text = isinstance(type_, StringType) and given
        return str.encode if text else payload_columns.writer(type_)
    if name == "headers":
        return _headers(type_)
    if name == "limits":
        return _limits
    if isinstance(type_, DayTimeIntervalType):
        return timedelta.total_seconds
    return float if isinstance(type_, DecimalType) else None


def _values(column: pa.Array, convert: Convert | None) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if convert is None:
        return values
    return [None if each is None else convert(each) for each in values]


def _headers(type_: DataType) -> Convert | None:
    """The function that makes headers of a value."""
    if isinstance(type_, MapType):
        inner = _header(type_.valueType)
        return dict if inner is None else lambda pairs: {name: inner(each) for name, each in pairs}
    assert isinstance(type_, StructType)
    every = {each.name: _header(each.dataType) for each in type_.fields}
    some = {name: convert for name, convert in every.items() if convert is not None}
    if not some:
        return None
    return lambda row: row | {name: convert(row[name]) for name, convert in some.items()}


def _limits(given: Any) -> dict[str, str] | None:
    """The limits of a message; None where none has a name."""
    return {one: name for one, name in dict(given).items() if name is not None} or None


def _header(type_: DataType) -> Convert | None:
    """The function that makes a header of a value. A type always gives the same kind of header."""
    if not isinstance(type_, DecimalType):
        return None
    convert: Convert = "{:f}".format
    if type_.scale == 0 and type_.precision <= _INT_DIGITS:
        convert = int
    elif type_.precision <= _FLOAT_DIGITS:
        convert = float
    return lambda value: None if value is None else convert(value)


_INT_DIGITS = 18
"""Digits that fit into the 64 bits of a header."""
_FLOAT_DIGITS = 15
"""Digits that a float keeps exactly, wherever the point is."""
