"""The benchmark's own judgements."""

from __future__ import annotations

import pytest
from benchmarks.checks import Put, Taken, order_violations
from benchmarks.throughput import lost_and_doubled, quantile


def test_what_is_lost_and_what_is_doubled_is_found() -> None:
    assert lost_and_doubled([1, 2, 3], [1], [2, 3]) == ([], [])
    assert lost_and_doubled([1, 2, 3], [1], [3]) == ([2], [])
    assert lost_and_doubled([1, 2], [1, 2], [2]) == ([], [2])
    assert lost_and_doubled([1], [1, 9], []) == ([], [9]), "a phantom"


@pytest.mark.parametrize(
    ("put", "taken", "violations"),
    [
        # One after the other.
        ([Put(1, 0, 0, 1), Put(2, 0, 2, 3)], [Taken(1, 4, 5), Taken(2, 6, 7)], 0),
        # The second is taken by a call that is over before the call for the first begins.
        ([Put(1, 0, 0, 1), Put(2, 0, 2, 3)], [Taken(2, 4, 5), Taken(1, 6, 7)], 1),
        # Calls at the same time may end in any order.
        ([Put(1, 0, 0, 1), Put(2, 0, 2, 3)], [Taken(2, 4, 6), Taken(1, 5, 7)], 0),
        # Enqueues at the same time have no order.
        ([Put(1, 0, 0, 3), Put(2, 0, 2, 3)], [Taken(2, 4, 5), Taken(1, 6, 7)], 0),
        # A message that is never taken was overtaken too.
        ([Put(1, 0, 0, 1), Put(2, 0, 2, 3)], [Taken(2, 4, 5)], 1),
        # A more urgent one that came later goes first, if it was there before the call.
        ([Put(1, 1, 0, 1), Put(2, 0, 2, 3)], [Taken(1, 4, 5), Taken(2, 6, 7)], 1),
        ([Put(1, 1, 0, 1), Put(2, 0, 5, 6)], [Taken(1, 4, 7), Taken(2, 8, 9)], 0),
        ([Put(1, 1, 0, 1), Put(2, 0, 2, 3)], [Taken(2, 4, 5), Taken(1, 6, 7)], 0),
    ],
)
def test_an_order_violation_is_what_nobody_can_deny(
    put: list[Put], taken: list[Taken], violations: int
) -> None:
    assert order_violations(put, taken) == violations


def test_quantiles() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.99) == 0.0
