"""A payload as text for people: by its content type, bounded, and harmless."""

from __future__ import annotations

import json

from msgspec import Struct

from ..values.text import visible

SHOWN_BYTES = 65_536
JSON_BYTES = 262_144
DUMPED_BYTES = 4_096
ROW = 16


class PayloadText(Struct, frozen=True):
    """kind: "JSON", "text" or "bytes". cut: whether the text is not all of it."""

    kind: str
    text: str
    size: int
    cut: bool


def payload_text(payload: bytes, content_type: str) -> PayloadText:
    """A payload of a message, or its beginning."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")) and len(payload) <= JSON_BYTES:
        try:
            text = json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        else:
            return PayloadText("JSON", *_lines(text, len(payload)))
    start = payload[:SHOWN_BYTES]
    try:
        # A character may be cut in half at the end.
        text = start.decode() if len(start) == len(payload) else _whole(start)
    except UnicodeDecodeError:
        dumped = payload[:DUMPED_BYTES]
        return PayloadText("bytes", _dump(dumped), len(payload), len(dumped) < len(payload))
    lines, size, cut = _lines(text, len(payload))
    return PayloadText("text", lines, size, cut or len(start) < len(payload))


def _whole(start: bytes) -> str:
    # A character has four bytes at most, so three of them can be there without the last.
    for missing in range(4):
        try:
            return start[: len(start) - missing].decode()
        except UnicodeDecodeError as error:
            last = error
    raise last


def _lines(text: str, size: int) -> tuple[str, int, bool]:
    """Text with its lines and tabs, and everything else that is not printable escaped."""
    shown = text[:SHOWN_BYTES]
    lines = ("\t".join(map(visible, line.split("\t"))) for line in shown.split("\n"))
    return "\n".join(lines), size, len(shown) < len(text)


def _dump(payload: bytes) -> str:
    """Sixteen bytes in a line: where, in hexadecimal, and as ASCII."""
    rows = []
    for start in range(0, len(payload), ROW):
        row = payload[start : start + ROW]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{3 * ROW}} {text}")
    return "\n".join(rows)
