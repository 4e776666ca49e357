from __future__ import annotations

import json
import random
from datetime import timedelta

import pytest
import tenacity as t
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.errors import InvalidOptions
from fdbqueue.values import backoff


class Own(t.wait.wait_base):
    """A strategy of one's own."""

    def __call__(self, retry_state: t.RetryCallState) -> float:
        return 1.0


NESTED: dict[str, object] = {}
for _ in range(5_000):
    NESTED = {"wait": "wait_chain", "strategies": [NESTED]}
SIMPLE = [
    t.wait_none(),
    t.wait_fixed(timedelta(minutes=2)),
    t.wait_incrementing(1, 2, 7),
    t.wait_exponential(2, max=60, min=3),
    t.wait_chain(t.wait_fixed(1), t.wait_fixed(1), t.wait_exponential(5)),
    t.wait_fixed(1) + t.wait_incrementing(0, 3),
]
RANDOM = [
    (t.wait_random(2, 4), 2, 4),
    (t.wait_random_exponential(4, max=9), 0, 9),
    (t.wait_exponential_jitter(max=10, jitter=3), 1, 10),
]


def delay(strategy: t.wait.wait_base, attempt: int) -> float:
    """What tenacity itself waits."""
    state = t.RetryCallState(t.Retrying(), None, (), {})
    state.attempt_number = attempt
    return float(strategy(state))


@pytest.mark.parametrize("strategy", SIMPLE, ids=lambda s: type(s).__name__)
@given(attempt=st.integers(1, 20))
def test_a_stored_strategy_waits_as_tenacity_does(strategy: t.wait.wait_base, attempt: int) -> None:
    stored = json.loads(json.dumps(backoff.store(strategy)))
    assert backoff.delay_seconds(stored, attempt, random.uniform) == delay(strategy, attempt)
    assert backoff.store(stored) == stored


@pytest.mark.parametrize(("strategy", "low", "high"), RANDOM)
def test_a_strategy_with_chance_keeps_its_bounds(
    strategy: t.wait.wait_base, low: float, high: float
) -> None:
    stored = json.loads(json.dumps(backoff.store(strategy)))
    waits = {backoff.delay_seconds(stored, 4, random.uniform) for _ in range(50)}
    assert low <= min(waits) < max(waits) <= high


@given(st.integers(1, 10**6))
def test_no_strategy_waits_for_ever(attempt: int) -> None:
    stored = backoff.store(t.wait_exponential(3))
    assert 0 <= backoff.delay_seconds(stored, attempt, random.uniform) <= backoff.MAX_DELAY_SECONDS


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Own(), "Own cannot be stored"),
        (lambda _: 1.0, "function cannot be stored"),
        ("wait_fixed", "str cannot be stored"),
        (t.wait_fixed(-1), "seconds=-1"),
        (t.wait_fixed(10**9), "waits 1000000000.0 s"),
        (t.wait_fixed(float("nan")), "seconds=nan"),
        ({"wait": "wait_a_while"}, "unknown strategy 'wait_a_while'"),
        ({}, "unknown strategy None"),
        ({"wait": "wait_fixed", "speed": 1}, "no parameter 'speed'"),
        ({"wait": "wait_fixed", "seconds": "soon"}, "seconds='soon'"),
        ({"wait": "wait_chain", "strategies": []}, "takes strategies"),
        (t.wait_chain(Own()), "Own cannot be stored"),
        (NESTED, "3 deep"),
        ({"wait": "wait_fixed", "seconds": 10**5_000}, "too large"),
    ],
)
def test_what_is_no_strategy_is_refused(given: object, problem: str) -> None:
    with pytest.raises(InvalidOptions, match=problem):
        backoff.store(given)  # type: ignore[arg-type]


def test_a_strategy_of_an_older_tenacity_is_stored_in_the_same_form() -> None:
    """Before 9.2, tenacity called the multiplier of this one initial, and it had no minimum."""
    new = t.wait_exponential_jitter(max=60)
    old = t.wait_exponential_jitter(max=60)
    for attribute in ("multiplier", "min"):
        vars(old).pop(attribute, None)
    vars(old)["initial"] = 1

    assert backoff.store(old) == backoff.store(new)
