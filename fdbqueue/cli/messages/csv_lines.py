"""Messages as CSV, converted to the JSON lines that ``fdbq enqueue`` reads.

The first row names the columns. A column with a name of JSON lines means the same as there. Any
other column is a header of the message, with a string value; a prefix ``header.`` of its name is
removed. Empty cells are ignored.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from ..json_schema import PRINTED
from .json_lines import ARGUMENTS, MAX_LINE_BYTES, PAYLOADS, BadLine

_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "priority": (int, "a whole number"),
    "max_attempts": (int, "a whole number"),
    "delay": (float, "a number of seconds"),
    "ttl": (float, "a number of seconds"),
    "headers": (json.loads, "JSON"),
    "backoff": (json.loads, "JSON"),
}


class _CsvStream(io.RawIOBase):
    """Reads CSV in UTF-8 and yields JSON lines, one for each row.

    Raises ``BadLine`` with the number of the row; the row of names is row 1.
    """

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        csv.field_size_limit(MAX_LINE_BYTES)
        self._lines = self._converted(io.TextIOWrapper(stream, "utf-8-sig", newline=""))
        self._held = b""

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        """The next bytes, as soon as there are any; empty at the end."""
        if not self._held:
            self._held = next(self._lines, b"")
        found, self._held = self._held[:size], self._held[size:]
        return found

    def read(self, size: int = -1) -> bytes:
        """Like ``read1``."""
        return self.read1(size)

    def _converted(self, text: io.TextIOWrapper) -> Iterator[bytes]:
        rows = csv.reader(text, strict=True)
        number = 0
        names: list[str] = []
        try:
            for number, row in enumerate(rows, 1):
                if number == 1:
                    names = _names(row)
                elif row:
                    yield json.dumps(_object(names, row)).encode() + b"\n"
        except (csv.Error, ValueError) as error:
            problem = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise BadLine(number=number or 1, problem=problem) from None


def stream(source: BinaryIO) -> BinaryIO:
    """Convert a stream of CSV to a stream of JSON lines."""
    return cast(BinaryIO, _CsvStream(source))


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
    except ValueError:
        raise ValueError(f"{name} must be {kind}, not {cell!r}") from None
