"""Messages as CSV, converted to the JSON lines that ``fdbq enqueue`` reads.

The first row names the columns. A column with a name of JSON lines means the same as there. Any
other column is a header of the message, with a string value; a prefix ``header.`` of its name is
removed. Empty cells are ignored.
"""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ..json_schema import PRINTED
from .json_lines import ARGUMENTS, MAX_LINE_BYTES, PAYLOADS, BadLine


def _members(cell: str) -> dict[str, Any]:
    """The members of a JSON object; raises ``ValueError``."""
    found = json.loads(cell)
    if not isinstance(found, dict):
        raise ValueError(cell)
    return found


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "priority": (int, "a whole number"),
    "max_attempts": (int, "a whole number"),
    "delay": (float, "a number of seconds"),
    "max_delay": (float, "a number of seconds"),
    "ttl": (float, "a number of seconds"),
    "headers": (_members, "a JSON object"),
    "limits": (_members, "a JSON object"),
    "backoff": (json.loads, "JSON"),
}


def converted(arriving: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Convert lines of CSV to JSON lines, one for each row; that of names becomes an empty line.

    Raises ``BadLine`` with the number of the row; the row of names is row 1.
    """
    # Its default is 128 KiB, much less than a payload may have.
    csv.field_size_limit(MAX_LINE_BYTES)
    waiting: deque[bytes] = deque()
    names: list[str] = []
    lines: list[bytes] = []
    number = 0
    try:
        for number, row in enumerate(csv.reader(_texts(arriving, waiting), strict=True), 1):
            names = names or _names(row)
            message = _object(names, row) if number > 1 and row else None
            lines.append(b"" if message is None else json.dumps(message).encode())
            # A row ends with the last of the lines that arrived: nothing more comes for now.
            if not waiting:
                yield lines
                lines = []
    except (csv.Error, ValueError) as error:
        problem = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise BadLine(number=number or 1, problem=problem) from None


def _texts(arriving: Iterator[list[bytes]], waiting: deque[bytes]) -> Iterator[str]:
    """The text of lines; ``waiting`` holds those that have arrived and are still to come."""
    encoding = "utf-8-sig"
    for lines in arriving:
        waiting.extend(lines)
        while waiting:
            text = waiting.popleft().decode(encoding) + "\n"
            # Only the first line may begin with a byte order mark.
            encoding = "utf-8"
            yield from io.StringIO(text, newline="")  # a line may end with a carriage return


def _names(row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two columns are named {min(twice)!r}")
    if not set(names) & set(PAYLOADS):
        raise ValueError("the first row must name the columns, one of them payload")
    return names


def _object(names: list[str], row: list[str]) -> dict[str, Any]:
    if len(row) != len(names):
        raise ValueError(f"{len(row)} cells for {len(names)} columns")
    found: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    for name, cell in zip(names, row, strict=True):
        if name == "payload":
            found[name] = cell
        elif not cell:
            continue
        elif name in _PARSERS:
            found[name] = _parsed(name, cell)
        elif name in ARGUMENTS or name in PAYLOADS:
            found[name] = cell
        elif name not in PRINTED:
            headers[name.removeprefix("header.")] = cell
    if headers:
        found["headers"] = {**(found.get("headers") or {}), **headers}
    return found


def _parsed(name: str, cell: str) -> Any:
    parse, kind = _PARSERS[name]
    try:
        return parse(cell)
    except (ValueError, RecursionError):
        raise ValueError(f"{name} must be {kind}, not {cell!r:.80}") from None
