"""Rows: the columns of each table, and how messages become Arrow batches.

Each column is made for many messages at once, straight from their stored envelopes, and only if the
schema asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain, compress
from operator import attrgetter
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...errors import CorruptData, InvalidOptions, InvalidSchema
from ...schema.envelope import Envelope
from ...values.model import Headers
from ...values.serializers import JSON, Declared
from . import payload_columns
from .ddl import parse
from .settings import UserOptions

STRING, LONG, DOUBLE, BOOLEAN = StringType(), LongType(), DoubleType(), BooleanType()
TIME, MAP = TimestampType(), MapType(STRING, STRING)
Columns = dict[str, DataType]


def _columns(text: str) -> Columns:
    return {each.name: each.dataType for each in parse(text)}


MESSAGE = _columns(
    "id STRING, payload BINARY, headers MAP<STRING,STRING>, priority INT, level INT, attempts INT, "
    "enqueued_at TIMESTAMP, expires_at TIMESTAMP, content_type STRING, key STRING, "
    "limits MAP<STRING,STRING>, last_error STRING"
)
"""The columns of every table of messages."""
FAILURES = parse(
    "failures ARRAY<STRUCT<started_at: TIMESTAMP, ended_at: TIMESTAMP, consumer: STRING, "
    "error: STRING, traceback: STRING>>"
)["failures"].dataType

TABLES: dict[str, Columns] = {
    "ready": MESSAGE,
    "waiting": MESSAGE,
    "retrying": {**MESSAGE, "due_at": TIME},
    "scheduled": {**MESSAGE, "due_at": TIME},
    "leased": {**MESSAGE, "consumer": STRING, "lease_expires_at": TIME},
    "dead": {**MESSAGE, "reason": STRING, "died_at": TIME, "failures": FAILURES},
    "history": _columns(
        "stamp BINARY, transition STRING, id STRING, level INT, attempt INT, consumer STRING, "
        "at TIMESTAMP, place STRING"
    ),
}
"""The columns of every table."""

_HEADER_TYPES: Columns = {"string": STRING, "int": LONG, "long": LONG, "bigint": LONG}
_HEADER_TYPES |= {"double": DOUBLE, "float": DOUBLE, "boolean": BOOLEAN}


class Layout(Struct, frozen=True):
    """The shape of rows. ``payload`` and ``headers`` are None if the options do not set them."""

    table: str
    payload: str | None
    payload_schema: StructType | None
    bad_payloads: str
    headers: str | None
    header_columns: Columns
    unreadable: str

    @classmethod
    def of(cls, options: UserOptions) -> Layout:
        """From the options in ``settings.LAYOUT``. Raises ``InvalidOptions``."""
        given = options.fields(cls)
        given["header_columns"] = _header_columns(given["header_columns"] or "")
        layout = cls(**given)
        if layout.payload_schema and layout.payload not in (None, "json"):
            raise InvalidOptions(option="payloadSchema", problem='it needs payload to be "json"')
        # Else two columns would have one name, and a query could name neither.
        taken = set(TABLES[layout.table]) & set(layout.header_columns)
        problem = f"the table already has a column {min(taken)!r}" if taken else ""
        if layout.header_columns and "headers" not in TABLES[layout.table]:
            problem = "only messages have headers"
        if problem:
            raise InvalidOptions(option="headerColumns", problem=problem)
        return layout

    def schema(self, stored: Declared | None) -> StructType:
        """The columns if the user gives no schema. Raises ``InvalidOptions``.

        stored: what the queue knows of its serializer: its JSON is read as text.
        """
        columns = {**TABLES[self.table], **self.header_columns}
        if self.payload == "json" and self.payload_schema is None:
            raise InvalidOptions(
                option="payload",
                problem="to read JSON, give the option payloadSchema, like "
                "'carrier STRING, delay INT', or a schema with a column payload",
            )
        if "payload" in columns:
            text = not self.payload and stored is not None and stored.content_type == JSON
            if self.payload_schema is not None:
                columns["payload"] = self.payload_schema
            elif self.payload == "string" or text:
                columns["payload"] = STRING
            if self.headers == "json":
                columns["headers"] = STRING
        return StructType([StructField(name, type_) for name, type_ in columns.items()])


ENVELOPES = "envelopes of messages"
"""Beside the columns: no header column can have this name."""


class ColumnRows(dict[str, Sequence[Any]]):
    """Rows of a table, by column: ``ENVELOPES``, ``payload`` as it was enqueued, and what
    envelopes do not have."""

    def chosen(self, mask: Sequence[bool]) -> ColumnRows:
        """The rows for which the mask is true."""
        return ColumnRows({name: list(compress(values, mask)) for name, values in self.items()})

    def part(self, begin: int, end: int) -> ColumnRows:
        """A range of the rows."""
        return ColumnRows({name: values[begin:end] for name, values in self.items()})

    def readable(self, strict: bool) -> ColumnRows:
        """The messages that can be read. strict: raise ``CorruptData`` if one cannot."""
        mask = [each.readable for each in self[ENVELOPES]]
        if strict and not all(mask):
            n = mask.index(False)
            error = self[ENVELOPES][n].last_error
            problem = f"{error}; the option unreadable at 'keep' shows it"
            raise CorruptData(what=f"message {self['id'][n]}", problem=problem)
        return self.chosen(mask)


class Decoder:
    """Turns rows into Arrow batches of a schema. The constructor raises ``InvalidSchema``."""

    def __init__(self, layout: Layout, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._columns = [_column(layout, each) for each in schema.fields]
        self._unreadable = layout.unreadable

    def batch(self, rows: ColumnRows) -> pa.RecordBatch:
        """One batch. Raises ``CorruptData`` if a payload or a stored value does not fit."""
        if self._unreadable != "keep":
            rows = rows.readable(strict=self._unreadable == "fail")
        arrays = []
        for wanted, make in zip(self._schema, self._columns, strict=True):
            with decoding(f"the column {wanted.name} of a message"):
                arrays.append(_array(make(rows), wanted.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn errors about unexpected types into ``CorruptData``: cheaper than to check each value."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptData(what=what, problem=str(error)) from None


def _array(values: pa.Array | Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_) and not isinstance(values, pa.Array):
        # Stored in milliseconds; the timestamps of Spark have microseconds.
        values = pa.array(values, pa.timestamp("ms", tz="UTC"))
    if not isinstance(values, pa.Array):
        return pa.array(values, type_)
    return values if values.type == type_ else values.cast(type_)


Column = Callable[[ColumnRows], pa.Array | Sequence[Any]]


def _column(layout: Layout, wanted: StructField) -> Column:
    """The function that makes one column. Raises ``InvalidSchema``."""
    name, type_ = wanted.name, wanted.dataType
    if name in layout.header_columns:
        if type_ not in _FITS:
            raise InvalidSchema(
                column=name, problem="a header column is STRING, BIGINT, DOUBLE or BOOLEAN"
            )
        fit = _FITS[type_]
        return lambda rows: [fit(each) for each in values(rows, name)]
    columns = TABLES[layout.table]
    if name not in columns:
        raise InvalidSchema(
            column=name,
            problem=f"table {layout.table!r} has no such column, nor has the option "
            f"headerColumns; the columns are {', '.join(columns)}",
        )
    if name == "payload":
        return _payload(layout, type_)
    if name == "headers":
        return _headers(layout, type_)
    if type_ != columns[name]:
        problem = f"it is {_named(columns[name])}, not {_named(type_)}"
        raise InvalidSchema(column=name, problem=problem)
    made = {"limits": _limits, "failures": _failures}
    return made.get(name) or partial(values, name=name)


def _named(type_: DataType) -> str:
    return type_.simpleString().upper()


def _payload(layout: Layout, type_: DataType) -> Column:
    kind = {BinaryType: "bytes", StringType: "string"}.get(type(type_), "json")
    if layout.payload not in (None, kind):
        raise InvalidSchema(
            column="payload",
            problem=f"the option payload is {layout.payload!r}, but the schema says "
            f"{_named(type_)}",
        )
    read = payload_columns.reader(kind, type_, layout.bad_payloads == "fail")
    return lambda rows: read(rows["payload"], rows["id"])


def _headers(layout: Layout, type_: DataType) -> Column:
    if type_ == STRING and layout.headers in (None, "json"):
        return lambda rows: [json.dumps(each.headers) for each in rows[ENVELOPES]]
    if type_ == MAP and layout.headers in (None, "map"):
        return _header_map
    raise InvalidSchema(
        column="headers",
        problem="it is MAP<STRING,STRING>, or STRING if the option headers is 'json'",
    )


def _header_map(rows: ColumnRows) -> pa.Array:
    every: list[Headers] = [each.headers for each in rows[ENVELOPES]]
    offsets = list(accumulate(map(len, every), initial=0))
    names = [*chain.from_iterable(every)]
    texts = [*chain.from_iterable(headers.values() for headers in every)]
    if not {str}.issuperset(map(type, texts)):
        texts = [*map(as_text, texts)]
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(texts, pa.string())
    )


def _limits(rows: ColumnRows) -> list[Any]:
    found = [each.limits for each in rows[ENVELOPES]]
    return [limits and list(limits.items()) for limits in found]


def _failures(rows: ColumnRows) -> list[Any]:
    return [
        [
            {
                "started_at": each.started_at_ms * 1_000,
                "ended_at": each.ended_at_ms * 1_000,
                "consumer": each.consumer,
                "error": each.error,
                "traceback": each.traceback,
            }
            for each in failed
        ]
        for failed in rows["failures"]
    ]


def as_text(value: object) -> str | None:
    """A header's value as JSON, but strings without quotes."""
    if value is None or type(value) is str:
        return value
    return str(value) if type(value) is int else json.dumps(value)


_FITS: dict[DataType, Callable[[Any], Any]] = {
    STRING: as_text,
    # Not `isinstance`: True is an int to Python, and no number to SQL.
    LONG: lambda value: value if type(value) is int else None,
    DOUBLE: lambda value: float(value) if type(value) in (int, float) else None,
    BOOLEAN: lambda value: value if type(value) is bool else None,
}


def values(rows: ColumnRows, name: str) -> Sequence[Any]:
    """A column as it is stored, in envelopes or beside them; or else a header."""
    envelopes: Sequence[Envelope] = rows[ENVELOPES]
    if name == "enqueued_at":
        # The envelope of what cannot be read only stands for it, and so does its time.
        return [each.enqueued_at_ms if each.readable else None for each in envelopes]
    if name in rows:
        return rows[name]
    if name in _STORED:
        return [*map(attrgetter(_STORED[name]), envelopes)]
    return [each.headers.get(name) for each in envelopes]


_STORED = {
    "priority": "priority",
    "attempts": "attempts",
    "expires_at": "expires_at_ms",
    "content_type": "content_type",
    "key": "key",
    "last_error": "last_error",
}
"""The columns that envelopes hold, with their fields."""


def _header_columns(text: str) -> Columns:
    columns: Columns = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"`?([^`\s]+?)`?(?:\s+(\w+))?", part)
        type_ = _HEADER_TYPES.get((match[2] or "string").lower()) if match else None
        if match is None or type_ is None or match[1] in columns:
            raise InvalidOptions(
                option="headerColumns",
                problem=f"{part!r} is not a new column; list columns like "
                "'region, retries BIGINT, weight DOUBLE, paid BOOLEAN'",
            )
        columns[match[1]] = type_
    return columns
