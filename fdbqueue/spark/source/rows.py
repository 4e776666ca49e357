"""Rows: the columns of each table, and how messages become Arrow batches.

Each column is made for a whole block of messages at once, straight from their stored envelopes, and
only if the schema asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...errors import CorruptData, InvalidOptions, InvalidSchema
from ...schema.codec.envelopes import FIELDS, UNREADABLE
from ...values.model import BYTES
from ...values.records import record
from . import payloads
from .settings import Options

STRING, INT, LONG, TIME = "STRING", "INT", "BIGINT", "TIMESTAMP"
HEADERS = "MAP<STRING,STRING>"
_TYPES: dict[str, DataType] = {
    STRING: StringType(),
    INT: IntegerType(),
    LONG: LongType(),
    TIME: TimestampType(),
    "BINARY": BinaryType(),
    "BOOLEAN": BooleanType(),
    "DOUBLE": DoubleType(),
    HEADERS: MapType(StringType(), StringType()),
}

MESSAGE = {
    "id": STRING,
    "payload": "BINARY",
    "headers": HEADERS,
    "priority": INT,
    "level": INT,
    "attempts": INT,
    "enqueued_at": TIME,
    "expires_at": TIME,
    "content_type": STRING,
    "key": STRING,
    "last_error": STRING,
}
"""The columns of every table of messages."""

TABLES: dict[str, dict[str, str]] = {
    "ready": {**MESSAGE, "blocked": "BOOLEAN"},
    "delayed": {**MESSAGE, "due_at": TIME},
    "leased": {**MESSAGE, "consumer": STRING, "lease_expires_at": TIME},
    "dead": {**MESSAGE, "reason": STRING, "died_at": TIME},
    "history": {
        "stamp": "BINARY",
        "transition": STRING,
        "id": STRING,
        "level": INT,
        "attempt": INT,
        "consumer": STRING,
        "at": TIME,
        "place": STRING,
    },
}
"""The columns of every table, with their types in SQL."""

_HEADER_TYPES = {"string": STRING, "int": LONG, "long": LONG, "bigint": LONG, "double": "DOUBLE"}
_HEADER_TYPES |= {"float": "DOUBLE", "boolean": "BOOLEAN"}
_PAYLOADS = {"bytes": "BINARY", "string": STRING}


@record
class Layout:
    """The shape of rows. ``payload`` and ``headers`` are empty if the options do not set them."""

    table: str
    payload: str
    payload_schema: str
    strict: bool
    headers: str
    header_columns: tuple[tuple[str, str], ...]
    unreadable: str

    @classmethod
    def of(cls, options: Options) -> Layout:
        """From the options in ``settings.LAYOUT``. Raises ``InvalidOptions``."""
        layout = cls(
            table=options.choice("table", TABLES, "ready"),
            payload=options.choice("payload", ("", *_PAYLOADS, "json"), ""),
            payload_schema=options.text("payloadSchema") or "",
            strict=options.choice("badPayloads", ("fail", "null"), "fail") == "fail",
            headers=options.choice("headers", ("", "map", "json"), ""),
            header_columns=_header_columns(options.text("headerColumns") or ""),
            unreadable=options.choice("unreadable", ("keep", "skip", "fail"), "keep"),
        )
        if layout.payload_schema and layout.payload != "json":
            raise InvalidOptions(option="payloadSchema", problem='it needs payload to be "json"')
        taken = set(TABLES[layout.table]) & {name for name, _ in layout.header_columns}
        if taken:
            raise InvalidOptions(
                option="headerColumns", problem=f"the table already has a column {min(taken)!r}"
            )
        return layout

    def ddl(self) -> str:
        """The columns in SQL if the user gives no schema. Raises ``InvalidOptions``."""
        columns = dict(TABLES[self.table])
        if "payload" in columns:
            if self.payload == "json":
                if not self.payload_schema:
                    raise InvalidOptions(
                        option="payload",
                        problem="to read JSON, give the option payloadSchema, like "
                        "'carrier STRING, delay INT', or a schema with a column payload",
                    )
                columns["payload"] = f"STRUCT<{self.payload_schema}>"
            else:
                columns["payload"] = _PAYLOADS[self.payload or "bytes"]
            if self.headers == "json":
                columns["headers"] = STRING
        columns |= dict(self.header_columns)
        return ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())


@dataclass(slots=True)
class Block:
    """Messages by column.

    fields: their stored envelopes. payloads: as they were enqueued. extra: other columns, by name.
    """

    ids: Sequence[str | None]
    levels: Sequence[int | None]
    fields: Sequence[dict[int, Any]]
    payloads: Sequence[bytes | None]
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, begin: int, end: int) -> Block:
        """A range of the messages."""
        if begin == 0 and end >= len(self):
            return self
        cut = slice(begin, end)
        extra = {name: values[cut] for name, values in self.extra.items()}
        return Block(self.ids[cut], self.levels[cut], self.fields[cut], self.payloads[cut], extra)

    def readable(self, strict: bool) -> Block:
        """The messages that can be read. strict: raise ``CorruptData`` if one cannot."""
        mask = [each.get(_CONTENT_TYPE) != UNREADABLE for each in self.fields]
        if all(mask):
            return self
        if strict:
            n = mask.index(False)
            problem = f"{self.fields[n][_LAST_ERROR]}; the option unreadable at 'keep' shows it"
            raise CorruptData(what=f"message {self.ids[n]}", problem=problem)
        return Block(
            list(compress(self.ids, mask)),
            list(compress(self.levels, mask)),
            list(compress(self.fields, mask)),
            list(compress(self.payloads, mask)),
            {name: list(compress(values, mask)) for name, values in self.extra.items()},
        )


class Decoder:
    """Turns blocks into Arrow batches of a schema. The constructor raises ``InvalidSchema``."""

    def __init__(self, layout: Layout, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._columns = [_column(layout, each) for each in schema.fields]
        self._unreadable = layout.unreadable

    def batch(self, block: Block) -> pa.RecordBatch:
        """One batch. Raises ``CorruptData`` if a payload or a stored value does not fit."""
        if self._unreadable != "keep" and block.fields:
            block = block.readable(strict=self._unreadable == "fail")
        arrays = []
        for wanted, make in zip(self._schema, self._columns, strict=True):
            with decoding(f"the column {wanted.name} of a message"):
                made = make(block)
                arrays.append(made if made.type == wanted.type else made.cast(wanted.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn errors about unexpected types into ``CorruptData``: cheaper than to check each value."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptData(what=what, problem=str(error)) from None


Column = Callable[[Block], pa.Array]


def _column(layout: Layout, wanted: StructField) -> Column:
    """The function that makes one column. Raises ``InvalidSchema``."""
    name, type_ = wanted.name, wanted.dataType
    if name in dict(layout.header_columns):
        if type_ not in {_TYPES[each] for each in _HEADER_TYPES.values()}:
            raise InvalidSchema(
                column=name, problem="a header column is STRING, BIGINT, DOUBLE or BOOLEAN"
            )
        return _header(name, type_)
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
    if type_ != _TYPES[columns[name]]:
        raise InvalidSchema(
            column=name, problem=f"it is {columns[name]}, not {type_.simpleString().upper()}"
        )
    return _COLUMNS.get(name) or _extra(name, columns[name])


def _payload(layout: Layout, type_: DataType) -> Column:
    kind = {BinaryType: "bytes", StringType: "string"}.get(type(type_), "json")
    if layout.payload not in ("", kind):
        raise InvalidSchema(
            column="payload",
            problem=f"the option payload is {layout.payload!r}, but the schema says "
            f"{type_.simpleString().upper()}",
        )
    read = payloads.reader(kind, type_, layout.strict)
    return lambda block: read(block.payloads, block.ids)


def _headers(layout: Layout, type_: DataType) -> Column:
    if type_ == _TYPES[STRING] and layout.headers in ("", "json"):
        return lambda block: pa.array(
            [json.dumps(each.get(_HEADERS) or {}) for each in block.fields], pa.string()
        )
    if type_ == _TYPES[HEADERS] and layout.headers in ("", "map"):
        return _header_map
    raise InvalidSchema(
        column="headers",
        problem="it is MAP<STRING,STRING>, or STRING if the option headers is 'json'",
    )


_HEADERS, _CONTENT_TYPE, _LAST_ERROR = (
    FIELDS[n] for n in ("headers", "content_type", "last_error")
)
_MAP = pa.map_(pa.string(), pa.string())


def _header_map(block: Block) -> pa.Array:
    offsets, names = [0], []
    values: list[str | None] = []
    for each in block.fields:
        headers = each.get(_HEADERS)
        if headers:
            names.extend(headers)
            values.extend(map(as_text, headers.values()))
        offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


def as_text(value: object) -> str | None:
    """A header's value as JSON, but strings without quotes."""
    if value is None or type(value) is str:
        return value
    return str(value) if type(value) is int else json.dumps(value)


def _header(name: str, type_: DataType) -> Column:
    fit, arrow = _FITS[type_]

    def make(block: Block) -> pa.Array:
        found = (each.get(_HEADERS) for each in block.fields)
        return pa.array([fit(headers.get(name)) if headers else None for headers in found], arrow)

    return make


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _number(value: object) -> float | None:
    return float(value) if type(value) in (int, float) else None  # type: ignore[arg-type]


def _boolean(value: object) -> bool | None:
    return value if type(value) is bool else None


_FITS: dict[DataType, tuple[Callable[[Any], Any], pa.DataType]] = {
    StringType(): (as_text, pa.string()),
    LongType(): (_integer, pa.int64()),
    DoubleType(): (_number, pa.float64()),
    BooleanType(): (_boolean, pa.bool_()),
}


def _stored(name: str, type_: pa.DataType, default: object = None) -> Column:
    number = FIELDS[name]
    return lambda block: pa.array([each.get(number, default) for each in block.fields], type_)


def _stored_time(name: str) -> Column:
    number = FIELDS[name]
    return lambda block: _times([each.get(number) for each in block.fields])


def _extra(name: str, type_: str) -> Column:
    if type_ == TIME:
        return lambda block: _times(block.extra[name])
    arrow = {STRING: pa.string(), INT: pa.int32(), "BOOLEAN": pa.bool_(), "BINARY": pa.binary()}
    return lambda block: pa.array(block.extra[name], arrow[type_])


def _times(milliseconds: Sequence[int | None]) -> pa.Array:
    microseconds = pc.multiply_checked(pa.array(milliseconds, pa.int64()), 1000)
    return microseconds.cast(pa.timestamp("us", tz="UTC"))


_COLUMNS: dict[str, Column] = {
    "id": lambda block: pa.array(block.ids, pa.string()),
    "level": lambda block: pa.array(block.levels, pa.int32()),
    "priority": _stored("priority", pa.int32()),
    "attempts": _stored("attempts", pa.int32(), 0),
    "enqueued_at": _stored_time("enqueued_at_ms"),
    "expires_at": _stored_time("expires_at_ms"),
    "content_type": _stored("content_type", pa.string(), BYTES),
    "key": _stored("key", pa.string()),
    "last_error": _stored("last_error", pa.string()),
}


def _header_columns(text: str) -> tuple[tuple[str, str], ...]:
    columns: dict[str, str] = {}
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
    return tuple(columns.items())
