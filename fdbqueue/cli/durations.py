"""Times as people write them: ``90``, ``250ms``, ``15m``, ``1h30m``, ``7d``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from . import terminal

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|[smhdw])")


def parse(text: str) -> float | None:
    """The seconds that a text says, by numbers with units or one number of seconds; None if it is
    no time."""
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * UNITS[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        return None


def seconds(text: str | float) -> float:
    """The seconds that an option says; raises ``Refused``."""
    found = parse(str(text))
    if found is None:
        raise terminal.Refused(f"{text!r} is no time: write seconds, or 250ms, 15m, 1h30m, 7d")
    return found


def at_least(low: float) -> Callable[[str | float], float]:
    """As ``seconds``, for an option that takes no less."""

    def limited(text: str | float) -> float:
        found = seconds(text)
        if not found >= low:
            raise terminal.Refused(f"{text!r} is too short: at least {low:g} s")
        return found

    return limited


def moment(text: str | datetime) -> datetime:
    """The moment that an option says: a time, or how long ago; raises ``Refused``."""
    if isinstance(text, datetime):
        return text
    ago = parse(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(seconds=ago)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise terminal.Refused(
            f"{text!r} is no moment: write one like 2030-01-31T08:00+01:00, or how long ago: 90m"
        ) from None


def instant(text: str) -> datetime:
    """A moment in the future or past, with its zone; raises ``Refused``."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise terminal.Refused(
            f"--at {text}: write a time with its zone, like 2030-01-31T08:00+01:00"
        )
    return found
