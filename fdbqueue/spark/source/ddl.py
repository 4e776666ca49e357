"""Schemas of payloads as texts: SQL, or what ``StructType.json`` gives.

Spark parses SQL in Java, and shows the whole schema of the table where it cannot. The processes
that check options have Python only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pyspark.sql import types

SIMPLE: dict[str, types.DataType] = {
    "STRING": types.StringType(),
    "BOOLEAN": types.BooleanType(),
    "TINYINT": types.ByteType(),
    "BYTE": types.ByteType(),
    "SMALLINT": types.ShortType(),
    "SHORT": types.ShortType(),
    "INT": types.IntegerType(),
    "INTEGER": types.IntegerType(),
    "BIGINT": types.LongType(),
    "LONG": types.LongType(),
    "FLOAT": types.FloatType(),
    "REAL": types.FloatType(),
    "DOUBLE": types.DoubleType(),
    "DATE": types.DateType(),
    "TIMESTAMP": types.TimestampType(),
    "TIMESTAMP_LTZ": types.TimestampType(),
    "TIMESTAMP_NTZ": types.TimestampNTZType(),
    "BINARY": types.BinaryType(),
}
"""Types without parameters, by their names in SQL."""
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_TOKEN = re.compile(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.|'')*'|\w+|\S")


def parse(text: str) -> types.StructType:
    """The schema in a text. Raises ``ValueError``, which says what is wrong with it."""
    if text.lstrip().startswith("{"):
        try:
            return types.StructType.fromJson(json.loads(text))
        except Exception as error:
            raise ValueError(f"it is not the JSON of a StructType: {error!r}") from None
    tokens = _Tokens(text)
    fields = list(_fields(tokens))
    if tokens.next is not None:
        raise ValueError(f"{tokens.next!r} follows the last field")
    return types.StructType(fields)


class _Tokens:
    """The tokens of a schema in SQL. ``next`` is None at the end."""

    def __init__(self, text: str) -> None:
        self._tokens = iter(_TOKEN.findall(text))
        self.next: str | None = next(self._tokens, None)

    def take(self, what: str = "more") -> str:
        """The next one. what: that is expected."""
        token = self.next
        if token is None:
            raise ValueError(f"it ends where it needs {what}")
        self.next = next(self._tokens, None)
        return token

    def accept(self, *words: str) -> bool:
        """Whether the next one is one of these words; then take it."""
        found = self.next is not None and self.next.upper() in words
        if found:
            self.take()
        return found

    def expect(self, word: str) -> None:
        """Take this one."""
        token = self.take(repr(word))
        if token.upper() != word:
            raise ValueError(f"{token!r} stands where it needs {word!r}")


def _fields(tokens: _Tokens) -> Iterator[types.StructField]:
    while True:
        name = tokens.take("a field")
        if not re.fullmatch(r"`.*`|\w+", name, re.DOTALL):
            raise ValueError(f"{name!r} is not the name of a field")
        tokens.accept(":")
        type_ = _type(tokens)
        if tokens.accept("NOT"):
            tokens.expect("NULL")
        if tokens.accept("COMMENT"):
            tokens.take("a comment")
        yield types.StructField(name.strip("`").replace("``", "`"), type_)
        if not tokens.accept(","):
            return


def _type(tokens: _Tokens) -> types.DataType:
    word = tokens.take("a type")
    name = word.upper()
    if name in SIMPLE:
        return SIMPLE[name]
    if name in _DECIMAL:
        return types.DecimalType(*_numbers(tokens)) if tokens.accept("(") else types.DecimalType()
    if name not in ("STRUCT", "ARRAY", "MAP"):
        raise ValueError(f"{word!r} is no type that JSON is read as")
    tokens.expect("<")
    made: types.DataType
    if name == "STRUCT":
        made = types.StructType(list(_fields(tokens)))
    elif name == "ARRAY":
        made = types.ArrayType(_type(tokens))
    else:
        key = _type(tokens)
        tokens.expect(",")
        made = types.MapType(key, _type(tokens))
    tokens.expect(">")
    return made


def _numbers(tokens: _Tokens) -> Iterator[int]:
    while True:
        yield int(tokens.take("a number"))
        if not tokens.accept(","):
            break
    tokens.expect(")")
