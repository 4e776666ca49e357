"""Payload columns: bytes, text, or JSON by a schema.

A payload that does not fit, or is no JSON or UTF-8, fails the read or becomes null, as the user
chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from ...errors import CorruptData
from . import json_text

Reader = Callable[[Sequence[bytes | None], Sequence[str | None]], pa.Array]


def reader(kind: str, type_: types.DataType, strict: bool) -> Reader:
    """The function that makes a column of payloads and the ids of their messages.

    kind: "bytes", "string" or "json". strict: raise ``CorruptData`` for a payload that does not
    fit, instead of making it null. A payload of None stays null. Raises ``InvalidSchema``.
    """
    if kind == "bytes":
        return lambda payloads, ids: pa.array(payloads, pa.binary())
    # One by one: Arrow's own reader of JSON lines crashes over some values that are no objects.
    read = json_text.reader(type_) if kind == "json" else bytes.decode
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
