"""Schemas of payloads as texts: SQL, or what ``StructType.json`` gives.

Spark parses SQL in Java, and shows the whole schema of the table where it cannot. The processes
that check options have Python only.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any

from pyspark.sql import types

_NAMES = {
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "REAL": "float",
    "DEC": "decimal",
    "NUMERIC": "decimal",
    "TIMESTAMP_LTZ": "timestamp",
}
"""The names of types in JSON, where SQL has others."""
_SIMPLE = {"string", "boolean", "byte", "short", "integer", "long", "float", "double", "date"}
_SIMPLE |= {"timestamp", "timestamp_ntz", "binary"}
_TOKEN = re.compile(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.|'')*'|\w+|\S")


def parse(text: str) -> types.StructType:
    """The schema in a text. Raises ``ValueError``, which says what is wrong with it."""
    if text.lstrip().startswith("{"):
        try:
            return types.StructType.fromJson(json.loads(text))
        except Exception as error:
            raise ValueError(f"it is not the JSON of a StructType: {error!r}") from None
    found = _Parser(text)
    schema = found.struct()
    if found.tokens:
        raise ValueError(f"{found.tokens[0]!r} follows the last field")
    return types.StructType.fromJson(schema)


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

    def struct(self) -> dict[str, Any]:
        """Fields, up to what is none."""
        fields: list[dict[str, Any]] = []
        while not fields or self.accept(","):
            name = self.take("a field")
            if not re.fullmatch(r"`.*`|\w+", name, re.DOTALL):
                raise ValueError(f"{name!r} is not the name of a field")
            self.accept(":")
            field = {"name": name.strip("`").replace("``", "`"), "type": self.type()}
            fields.append({**field, "nullable": True, "metadata": {}})
            if self.accept("NOT"):
                self.take("'NULL'", "NULL")
            if self.accept("COMMENT"):
                self.take("a comment")
        return {"type": "struct", "fields": fields}

    def type(self) -> Any:
        """A type, as JSON says it."""
        word = self.take("a type")
        name = _NAMES.get(word.upper(), word.lower())
        made: Any = name
        if name == "decimal" and self.accept("("):
            digits = int(self.take("a number"))
            scale = int(self.take("a number")) if self.accept(",") else 0
            self.take("')'", ")")
            made = f"decimal({digits},{scale})"
        elif name in ("struct", "array", "map"):
            self.take("'<'", "<")
            if name == "struct":
                made = self.struct()
            elif name == "array":
                made = {"type": name, "elementType": self.type(), "containsNull": True}
            else:
                key = self.type()
                self.take("','", ",")
                made = {"type": name, "keyType": key, "valueType": self.type()}
                made["valueContainsNull"] = True
            self.take("'>'", ">")
        elif name not in _SIMPLE and name != "decimal":
            raise ValueError(f"{word!r} is no type that JSON is read as")
        return made
