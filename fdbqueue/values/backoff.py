"""How long a failed message waits before it is delivered again: tenacity's wait strategies.

A strategy is stored as plain JSON data, its name and parameters: ``{"wait": "wait_fixed",
"seconds": 5.0}``. fdbqueue computes the time itself, so processes with different releases of
tenacity, whose attributes and constructors differ, can share a queue.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import InvalidArgument, InvalidOptions, shown
from . import durations

if TYPE_CHECKING:
    from tenacity import wait

    Given: TypeAlias = wait.wait_base | Mapping[str, Any] | None
else:  # tenacity is not imported for a type
    Given = Any

Stored = dict[str, Any]

MAX_DELAY_SECONDS = 10 * 366 * 24 * 3600.0
"""Ten years: the longest delay and the longest time to live."""
MAX_CHAIN = 100
MAX_NESTING = 3
MAX_STORED = 8_000
"""The most characters of a strategy as it is shown: it is stored with each message that has one."""

Values = Mapping[str, float]
Uniform = Callable[[float, float], float]
"""A random number between two others."""


def _grown(values: Values, attempt: int) -> float:
    try:
        return values["multiplier"] * float(values["exp_base"]) ** (attempt - 1)
    except OverflowError:
        # A power may exceed a float after a thousand attempts: ``max`` bounds it all the same.
        return math.inf


def _exponential(values: Values, attempt: int, _: Uniform) -> float:
    return max(values["min"], min(_grown(values, attempt), values["max"]))


def _jitter(values: Values, attempt: int, uniform: Uniform) -> float:
    jitter = uniform(0, values["jitter"])
    return max(values["min"], min(_grown(values, attempt) + jitter, values["max"]))


_EXPONENTIAL = {"multiplier": 1.0, "max": math.inf, "exp_base": 2.0, "min": 0.0}
# Per strategy: its parameters with their defaults, and how many seconds it waits.
_STRATEGIES: dict[str, tuple[dict[str, float], Callable[[Values, int, Uniform], float]]] = {
    "wait_none": ({}, lambda values, attempt, _: 0.0),
    "wait_fixed": ({"seconds": 0.0}, lambda values, attempt, _: values["seconds"]),
    "wait_random": (
        {"min": 0.0, "max": 1.0},
        lambda values, attempt, uniform: uniform(values["min"], values["max"]),
    ),
    "wait_incrementing": (
        {"start": 0.0, "increment": 100.0, "max": math.inf},
        lambda values, attempt, _: min(
            values["start"] + values["increment"] * (attempt - 1), values["max"]
        ),
    ),
    "wait_exponential": (_EXPONENTIAL, _exponential),
    "wait_random_exponential": (
        _EXPONENTIAL,
        lambda values, attempt, uniform: uniform(
            values["min"], _exponential(values, attempt, uniform)
        ),
    ),
    "wait_exponential_jitter": ({**_EXPONENTIAL, "jitter": 1.0}, _jitter),
}
_CHAIN, _COMBINE = "wait_chain", "wait_combine"
_NAMES = (*_STRATEGIES, _CHAIN, _COMBINE)

# Where tenacity keeps a parameter, if not under its own name: the first that exists counts.
_ATTRIBUTES = {
    ("wait_fixed", "seconds"): ("wait_fixed",),
    ("wait_random", "min"): ("wait_random_min",),
    ("wait_random", "max"): ("wait_random_max",),
    ("wait_exponential_jitter", "multiplier"): ("multiplier", "initial"),
}
_PARTS = {_CHAIN: "strategies", _COMBINE: "wait_funcs"}


def store(given: Given) -> Stored | None:
    """A strategy of tenacity, or what this function made of one, as plain data; None for none.

    Raises ``InvalidOptions`` for a strategy that cannot be stored, such as the caller's own
    function, and for parameters that are not times.
    """
    if given is None:
        return None
    plain = given if isinstance(given, Mapping) else _plain(given, MAX_NESTING)
    stored: Stored = _timed(plain, 2 * MAX_NESTING + 1)
    size = len(repr(shown(stored)))
    if size > MAX_STORED:
        raise _refused(f"it takes {size:,} characters to store, at most {MAX_STORED:,}")
    # Tried once, with the longest of each random wait: a strategy that cannot be followed is
    # refused here, and not when a message fails.
    first = _seconds(stored, 1, max, MAX_NESTING)
    if not 0 <= first <= MAX_DELAY_SECONDS:
        raise _refused(f"{stored['wait']} waits {first!r} s; at most {MAX_DELAY_SECONDS:,.0f}")
    return stored


def _timed(given: Any, depth: int) -> Any:
    """Plain data with its timedeltas in seconds. depth: how many containers may be nested."""
    if not isinstance(given, Mapping | list):
        return durations.seconds(given)
    if not depth:
        raise _refused(f"strategies nest {MAX_NESTING} deep at most")
    if isinstance(given, Mapping):
        return {name: _timed(value, depth - 1) for name, value in given.items()}
    return [_timed(value, depth - 1) for value in given]


def delay_seconds(stored: Stored | None, attempt: int, uniform: Uniform) -> float:
    """How long to wait after the ``attempt``-th failed attempt, from 1: ``MAX_DELAY_SECONDS`` at
    most."""
    if stored is None:
        return 0.0
    found = _seconds(stored, attempt, uniform, MAX_NESTING)
    return min(max(found, 0.0), MAX_DELAY_SECONDS)


def check_delay(argument: str, given: object, low: float = 0.0) -> float:
    """A delay in seconds, from ``low`` to ten years; raises ``InvalidArgument``."""
    delay = durations.within(given, low, MAX_DELAY_SECONDS)
    if delay is None:
        problem = f"must be {low:g} to {MAX_DELAY_SECONDS:,.0f} seconds (ten years)"
        problem += durations.as_text(given)
        raise InvalidArgument(argument=argument, value=given, problem=problem)
    return delay


def _plain(strategy: object, depth: int) -> Stored:
    # By name, so that tenacity need not be imported.
    kind = type(strategy)
    name = kind.__name__ if kind.__module__ == "tenacity.wait" else None
    if name in _PARTS and depth:
        parts = getattr(strategy, _PARTS[name])
        return {"wait": name, "strategies": [_plain(part, depth - 1) for part in parts]}
    if name not in _STRATEGIES:
        raise _refused(f"{kind.__name__} cannot be stored; use one of {', '.join(_NAMES)}")
    defaults, _ = _STRATEGIES[name]
    values = {}
    for parameter, default in defaults.items():
        attributes = _ATTRIBUTES.get((name, parameter), (parameter,))
        # Releases of tenacity keep it under different names.
        found = [getattr(strategy, each) for each in attributes if hasattr(strategy, each)]
        values[parameter] = found[0] if found else default
    return {"wait": name, **values}


def _seconds(stored: object, attempt: int, uniform: Uniform, depth: int) -> float:
    """How long plain data says to wait; raises ``InvalidOptions`` if it is not a strategy."""
    if not isinstance(stored, Mapping):
        raise _refused(f"unknown strategy {shown(stored)!r}; use one of {', '.join(_NAMES)}")
    given = dict(stored)
    name = given.pop("wait", None)
    if not isinstance(name, str) or name not in _NAMES:
        raise _refused(f"unknown strategy {shown(name)!r}; use one of {', '.join(_NAMES)}")
    if name in _PARTS:
        parts = given.pop("strategies", None)
        if not isinstance(parts, list) or not 0 < len(parts) <= MAX_CHAIN or given or not depth:
            raise _refused(f"{name} takes strategies, 1 to {MAX_CHAIN}, and nothing else")
        waits = [_seconds(part, attempt, uniform, depth - 1) for part in parts]
        # As tenacity's chain: the last strategy holds for all further attempts.
        return sum(waits) if name == _COMBINE else waits[min(attempt, len(waits)) - 1]
    defaults, wait_seconds = _STRATEGIES[name]
    unknown = given.keys() - defaults.keys()
    if unknown:
        raise _refused(f"{name} has no parameter {min(map(str, unknown))!r}")
    for parameter, value in given.items():
        # True is an int, and would be stored as a second.
        if isinstance(value, bool) or not isinstance(value, int | float) or not _number(value):
            raise _refused(f"{name} with {parameter}={shown(value)!r}: must be a number, 0 or more")
    return float(wait_seconds({**defaults, **given}, attempt, uniform))


def _number(value: float) -> bool:
    return 0 <= value <= sys.float_info.max


def _refused(problem: str) -> InvalidOptions:
    return InvalidOptions(option="backoff", problem=problem)
