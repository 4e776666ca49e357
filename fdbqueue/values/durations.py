"""Durations: seconds, a timedelta, or a text: ``90``, ``250ms``, ``15m``, ``1h30m``, ``7d``."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from typing import Any, overload

from ..errors import InvalidArgument

Seconds = float | timedelta | str
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|[smhdw])")


def parse(text: str) -> float | None:
    """The seconds in a text of numbers with units, or of one number; None if it is neither."""
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * UNITS[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        return None


@overload
def seconds(given: Seconds) -> float: ...
@overload
def seconds(given: None) -> None: ...
@overload
def seconds(given: Seconds | None) -> float | None: ...
@overload
def seconds(given: object) -> object: ...


def seconds(given: object) -> object:
    """A timedelta or a text in seconds; anything else unchanged, for the check of its range."""
    if isinstance(given, timedelta):
        return given.total_seconds()
    found = parse(given) if isinstance(given, str) else None
    return given if found is None else found


def within(given: object, low: float, high: float) -> float | None:
    """A duration in seconds; None if it is not a number from ``low`` to ``high``."""
    found: Any = seconds(given)
    number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if number and low <= found <= high else None


def as_text(given: object) -> str:
    """For an error about a text: how durations are written."""
    return ', or a text such as "90s" or "1h30m"' if isinstance(given, str) else ""


def limit(argument: str, given: object) -> float | None:
    """A time that may be None, for no limit; see ``patience``."""
    return None if given is None else patience(argument, given)


def patience(argument: str, given: object) -> float:
    """How long to wait, in seconds: 0 or more. Raises ``InvalidArgument``."""
    found = within(given, 0, sys.float_info.max)
    if found is None:
        raise InvalidArgument(
            argument=argument, value=given, problem=f"must be 0 seconds or more{as_text(given)}"
        )
    return found
