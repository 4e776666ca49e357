"""The benchmark's own judgements."""

from __future__ import annotations

from benchmarks.throughput import lost_and_doubled, quantile


def test_what_is_lost_and_what_is_doubled_is_found() -> None:
    assert lost_and_doubled([1, 2, 3], [1], [2, 3]) == ([], [])
    assert lost_and_doubled([1, 2, 3], [1], [3]) == ([2], [])
    assert lost_and_doubled([1, 2], [1, 2], [2]) == ([], [2])
    assert lost_and_doubled([1], [1, 9], []) == ([], [9]), "a phantom"


def test_quantiles() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.99) == 0.0
