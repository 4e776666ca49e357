"""Numbers and names as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def duration(milliseconds: float | None) -> str:
    """A time in a suitable unit: ``12 ms``, ``3.4 s``, ``2 m 05 s``, ``3 h 20 m``."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 9.95:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return _two(whole, ("m", 60), ("s", 1))
    return _two(whole, ("h", 3_600), ("m", 60)) if whole < 86_400 else _two(whole, *_DAYS)


_DAYS = (("d", 86_400), ("h", 3_600))


def _two(seconds: int, large: tuple[str, int], small: tuple[str, int]) -> str:
    rest = seconds % large[1] // small[1]
    return f"{seconds // large[1]} {large[0]}" + (f" {rest:02d} {small[0]}" if rest else "")


def moment(milliseconds: int) -> str:
    """A point in time, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def share(part: int, whole: int) -> str:
    """A share in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def visible(text: str) -> str:
    """Text with unprintable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clipped(text: str, length: int) -> str:
    """A text, cut to a length."""
    return text if len(text) <= length else text[: length - 3] + "..."
