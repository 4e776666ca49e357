"""How long a failed message rests before it is delivered again: tenacity's wait strategies.

A strategy is stored with the queue or the message as plain JSON data, its name and parameters,
never pickled: ``{"wait": "wait_fixed", "seconds": 5.0}``. The times themselves are tenacity's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tenacity
from tenacity import wait

from .errors import InvalidArgument, InvalidOptions

Stored = dict[str, Any]
Given = wait.wait_base | Mapping[str, Any] | None

MAX_DELAY_SECONDS = 10 * 366 * 24 * 3600.0
"""Ten years: the longest delay and the longest time to live."""
MAX_CHAIN = 100
MAX_NESTING = 3

_EXPONENTIAL = {"multiplier": "multiplier", "max": "max", "exp_base": "exp_base", "min": "min"}
# Per strategy: the parameter's name as it is stored -> the attribute that holds it.
_PARAMETERS: dict[type[wait.wait_base], dict[str, str]] = {
    wait.wait_none: {},
    wait.wait_fixed: {"seconds": "wait_fixed"},
    wait.wait_random: {"min": "wait_random_min", "max": "wait_random_max"},
    wait.wait_incrementing: {"start": "start", "increment": "increment", "max": "max"},
    wait.wait_exponential: _EXPONENTIAL,
    wait.wait_random_exponential: _EXPONENTIAL,
    wait.wait_exponential_jitter: {**_EXPONENTIAL, "jitter": "jitter"},
}
_SEVERAL: dict[type[wait.wait_base], str] = {
    wait.wait_chain: "strategies",
    wait.wait_combine: "wait_funcs",
}
_BY_NAME: dict[str, type[wait.wait_base]] = {
    kind.__name__: kind for kinds in (_PARAMETERS, _SEVERAL) for kind in kinds
}


def store(given: Given) -> Stored | None:
    """A strategy as plain data; None for none.

    given: a wait strategy of tenacity, or the plain data that this function made of one.
    Raises ``InvalidOptions`` for a strategy that cannot be stored, such as a function of one's
    own, and for parameters that are no times.
    """
    if given is None:
        return None
    stored = dict(given) if isinstance(given, Mapping) else _plain(given, MAX_NESTING)
    strategy = _strategy(stored, MAX_NESTING)
    first = _seconds(strategy, 1)
    if not 0 <= first <= MAX_DELAY_SECONDS:
        raise _refused(f"{stored['wait']} waits {first!r} s; at most {MAX_DELAY_SECONDS:,.0f}")
    return stored


def seconds(stored: Stored | None, attempt: int) -> float:
    """How long to rest after the ``attempt``-th failed attempt (1 is the first).

    A strategy that grows without a bound of its own stops at ``MAX_DELAY_SECONDS``.
    """
    if stored is None:
        return 0.0
    return min(max(_seconds(_strategy(stored, MAX_NESTING), attempt), 0.0), MAX_DELAY_SECONDS)


def check_delay(argument: str, given: object, low: float = 0.0) -> float:
    """A delay in seconds, from ``low`` to ten years; raises ``InvalidArgument``."""
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not low <= given <= MAX_DELAY_SECONDS
    ):
        raise InvalidArgument(
            argument=argument,
            value=given,
            problem=f"must be {low:g} to {MAX_DELAY_SECONDS:,.0f} seconds (ten years)",
        )
    return float(given)


def _seconds(strategy: wait.wait_base, attempt: int) -> float:
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = attempt
    try:
        return float(strategy(state))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _refused(f"{type(strategy).__name__} fails: {error!r}") from None


def _plain(strategy: object, depth: int) -> Stored:
    kind = type(strategy)
    if kind in _SEVERAL and depth:
        parts = getattr(strategy, _SEVERAL[kind])
        return {"wait": kind.__name__, "strategies": [_plain(part, depth - 1) for part in parts]}
    if kind not in _PARAMETERS:
        raise _refused(f"{kind.__name__} cannot be stored; use one of {', '.join(_BY_NAME)}")
    values = {name: getattr(strategy, attribute) for name, attribute in _PARAMETERS[kind].items()}
    return {"wait": kind.__name__, **values}


def _strategy(stored: Mapping[str, Any], depth: int) -> wait.wait_base:
    """The strategy that plain data names."""
    given = dict(stored)
    name = given.pop("wait", None)
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise _refused(f"unknown strategy {name!r}; there are {', '.join(_BY_NAME)}")
    make: Callable[..., wait.wait_base] = kind
    if kind in _SEVERAL:
        parts = given.pop("strategies", None)
        if not isinstance(parts, list) or not 0 < len(parts) <= MAX_CHAIN or given or not depth:
            raise _refused(f"{name} takes strategies, 1 to {MAX_CHAIN}, and nothing else")
        return make(*(_strategy(part, depth - 1) for part in parts))
    unknown = given.keys() - _PARAMETERS[kind].keys()
    if unknown:
        raise _refused(f"{name} has no parameter {min(map(str, unknown))!r}")
    for parameter, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not _number(value):
            raise _refused(f"{name} with {parameter}={value!r}: must be a number, 0 or more")
    if kind is wait.wait_fixed:
        return wait.wait_fixed(given.get("seconds", 0.0))
    return make(**given)


def _number(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _refused(problem: str) -> InvalidOptions:
    return InvalidOptions(option="backoff", problem=problem)
