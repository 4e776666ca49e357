"""Text for people; what comes from others is safe to show: nothing in it controls a terminal."""

from __future__ import annotations

from collections.abc import Iterable


def visible(text: str | bytes) -> str:
    """Text with unprintable characters escaped.

    Invalid UTF-8, control characters, terminal escapes, line ends and bidirectional marks become
    ``\\x1b``, ``\\n``, ``\\u202e`` and so on.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def excerpt(payload: bytes, characters: int) -> str:
    """The start of a payload as visible text, or all of it if it is short."""
    shown = visible(payload[: 4 * characters])
    if len(payload) <= 4 * characters and len(shown) <= characters:
        return shown
    return f"{shown[:characters]}… ({len(payload):,} bytes)"


def shortened(text: str, most: int) -> str:
    """Text of so many bytes at most: of longer text the beginning, and three times as much of the
    end."""
    stored = text.encode(errors="replace")
    if len(stored) <= most:
        return stored.decode()
    room = max(0, most - len("\n…\n".encode()))
    end = stored[len(stored) - 3 * room // 4 :] if room else b""
    return f"{stored[: room // 4].decode(errors='ignore')}\n…\n{end.decode(errors='ignore')}"


def duration(ms: float | None) -> str:
    """How long something took, as a person says it."""
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.0f} ms"
    for unit, whole_ms, most in (("s", 1_000, 60), ("min", 60_000, 60), ("h", 3_600_000, 24)):
        if ms < most * whole_ms:
            return f"{ms / whole_ms:.1f} {unit}"
    return f"{ms / 86_400_000:,.1f} d"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that somebody may have meant who wrote another; None if none is near."""
    import difflib  # slow to import, and only a typing error needs it

    return next(iter(difflib.get_close_matches(name, list(known), 1)), None)


def meant(name: str, known: Iterable[str]) -> str:
    """What to put behind a sentence that ends with an unknown name."""
    found = nearest(name, known)
    return "" if found is None else f": did you mean {found!r}?"
