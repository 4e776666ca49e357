"""Schemas of payloads as texts: SQL, or what ``StructType.json`` gives.

Spark parses SQL in Java, and shows the whole schema of the table where it cannot. The processes
that check options have Python only.
"""

from __future__ import annotations

import json
import re
from collections import deque
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
    found = _Parser(text)
    schema = types.StructType(list(found.fields()))
    if found.tokens:
        raise ValueError(f"{found.tokens[0]!r} follows the last field")
    return schema


class _Parser:
    """What is left of the tokens of a schema in SQL."""

    def __init__(self, text: str) -> None:
        self.tokens = deque(_TOKEN.findall(text))

    def take(self, what: str, word: str = "") -> str:
        """The next token. what: that is expected; word: which one."""
        if not self.tokens:
            raise ValueError(f"it ends where it needs {what}")
        token: str = self.tokens.popleft()
        if word and token.upper() != word:
            raise ValueError(f"{token!r} stands where it needs {what}")
        return token

    def accept(self, word: str) -> bool:
        """Whether the next token is this word; then take it."""
        found = bool(self.tokens) and self.tokens[0].upper() == word
        if found:
            self.tokens.popleft()
        return found

    def fields(self) -> Iterator[types.StructField]:
        """Fields, up to what is none."""
        while True:
            name = self.take("a field")
            if not re.fullmatch(r"`.*`|\w+", name, re.DOTALL):
                raise ValueError(f"{name!r} is not the name of a field")
            self.accept(":")
            type_ = self.type()
            if self.accept("NOT"):
                self.take("'NULL'", "NULL")
            if self.accept("COMMENT"):
                self.take("a comment")
            yield types.StructField(name.strip("`").replace("``", "`"), type_)
            if not self.accept(","):
                return

    def type(self) -> types.DataType:
        """A type."""
        word = self.take("a type")
        name = word.upper()
        if name in SIMPLE:
            return SIMPLE[name]
        if name in _DECIMAL:
            digits = []
            if self.accept("("):
                digits.append(int(self.take("a number")))
                if self.accept(","):
                    digits.append(int(self.take("a number")))
                self.take("')'", ")")
            return types.DecimalType(*digits)
        if name not in ("STRUCT", "ARRAY", "MAP"):
            raise ValueError(f"{word!r} is no type that JSON is read as")
        self.take("'<'", "<")
        made: types.DataType
        if name == "STRUCT":
            made = types.StructType(list(self.fields()))
        elif name == "ARRAY":
            made = types.ArrayType(self.type())
        else:
            key = self.type()
            self.take("','", ",")
            made = types.MapType(key, self.type())
        self.take("'>'", ">")
        return made
