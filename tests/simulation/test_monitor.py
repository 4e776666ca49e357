"""The monitor of priority queues, on histories written by hand."""

from __future__ import annotations

import math

import pytest
from workload.monitor import Put, Take, violations

A, B, C = Put("a", 0, 1, 2), Put("b", 1, 1, 2), Put("c", 2, 1, 2)
GOOD = {
    "in order": ([A, B, C], [Take("a", 3, 4), Take("b", 5, 6), Take("c", 7, 8), Take(None, 9, 10)]),
    "at once": ([A, B], [Take("b", 3, 6), Take("a", 5, 7)]),
    "the more urgent one is put in meanwhile": (
        [Put("a", 0, 3, 5), B],
        [Take("b", 4, 6), Take("a", 7, 8)],
    ),
    "empty before the put ends": ([Put("a", 0, 1, 9)], [Take(None, 2, 3), Take("a", 10, 11)]),
    "empty between two": (
        [A, Put("b", 1, 6, 8)],
        [Take("a", 3, 5), Take(None, 4, 9), Take("b", 10, 11)],
    ),
    "nobody knows whether it was put in": (
        [Put("a", 0, 1, math.inf), B],
        [Take("b", 3, 4), Take("a", 9, 10)],
    ),
    "it waits for its time": ([A._replace(stands=False), B], [Take("b", 3, 4), Take("a", 9, 10)]),
    "it was out before": ([A, B], [Take("b", 3, 4), Take("a", 9, 10, first=False)]),
    "of the same level, put in at once": (
        [A, Put("b", 0, 1, 4)],
        [Take("b", 5, 6), Take("a", 7, 8)],
    ),
    "it came back": ([A, B], [Take("a", 3, 4, final=False), Take("b", 5, 6), Take("a", 7, 8)]),
    "somebody may have had it": ([A, B], [Take("b", 3, 4, judged=False), Take("a", 9, 10)]),
}
BAD = {
    "less urgent first": ([A, B], [Take("b", 3, 4), Take("a", 5, 6)]),
    "empty with a value": ([A], [Take(None, 3, 4), Take("a", 5, 6)]),
    "empty with one value after another": (
        [A, Put("b", 1, 3, 4)],
        [Take(None, 5, 9), Take("a", 7, 10), Take("b", 11, 12)],
    ),
    "less urgent first, with one more urgent value after another": (
        [A, Put("b", 0, 3, 4), C],
        [Take("c", 5, 9), Take("a", 7, 10), Take("b", 11, 12)],
    ),
    "of the same level, the later first": (
        [A, Put("b", 0, 3, 4)],
        [Take("b", 5, 6), Take("a", 7, 8)],
    ),
    "of one call, the later first": (
        [A, Put("b", 0, 1, 2, after="a")],
        [Take("b", 5, 6), Take("a", 7, 8)],
    ),
    "before it was put in": ([A._replace(began=5, ended=6)], [Take("a", 1, 2)]),
    "twice": ([A], [Take("a", 3, 4), Take("a", 5, 6)]),
    "from nowhere": ([], [Take("a", 3, 4)]),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_of_a_priority_queue_passes(name: str) -> None:
    assert violations(*GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_a_history_of_no_priority_queue_is_found(name: str) -> None:
    assert len(violations(*BAD[name])) == 1
