"""Durations: wherever a caller names a time, it is seconds or a timedelta."""

from __future__ import annotations

import math
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
    """A timedelta in seconds; anything else as it is, for whoever checks its range."""
    return given.total_seconds() if isinstance(given, timedelta) else given


def limit(argument: str, given: object) -> float | None:
    """How long something may take, in seconds; None: as long as it takes. As ``patience``."""
    return None if given is None else patience(argument, given)


def patience(argument: str, given: object) -> float:
    """How long to wait, in seconds: 0 or more. Raises ``InvalidArgument``."""
    found: Any = seconds(given)
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if not number or not 0 <= found < math.inf:
        raise InvalidArgument(argument=argument, value=given, problem="must be 0 seconds or more")
    return float(found)
