"""Durations: seconds or a timedelta."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, overload

from ..errors import InvalidArgument

Seconds = float | timedelta


@overload
def seconds(given: Seconds) -> float: ...
@overload
def seconds(given: None) -> None: ...
@overload
def seconds(given: Seconds | None) -> float | None: ...
@overload
def seconds(given: object) -> object: ...


def seconds(given: object) -> object:
    """A timedelta in seconds; anything else unchanged, for the check of its range."""
    return given.total_seconds() if isinstance(given, timedelta) else given


def within(given: object, low: float, high: float) -> float | None:
    """A duration in seconds; None if it is not a number from ``low`` to ``high``."""
    found: Any = seconds(given)
    number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if number and low <= found <= high else None


def limit(argument: str, given: object) -> float | None:
    """As ``patience``; None is no limit."""
    return None if given is None else patience(argument, given)


def patience(argument: str, given: object) -> float:
    """How long to wait, in seconds: 0 or more. Raises ``InvalidArgument``."""
    found = within(given, 0, sys.float_info.max)
    if found is None:
        raise InvalidArgument(argument=argument, value=given, problem="must be 0 seconds or more")
    return found
