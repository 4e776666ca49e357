"""The comparison with other queues: its account of messages, its bars, and a short run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from benchmarks.peers.command import judge
from benchmarks.peers.run import Account


@pytest.mark.parametrize(
    ("put", "taken", "rest", "lost", "doubled"),
    [
        ([1, 2, 3], [1], [2, 3], 0, 0),
        ([1, 2, 3], [1], [3], 1, 0),
        ([1, 2], [1, 1], [2], 0, 1),
        ([1, 2], [1, 2], [2], 0, 1),
    ],
)
def test_a_peer_that_loses_or_doubles_messages_is_found_out(
    put: Sequence[int], taken: Sequence[int], rest: Sequence[int], lost: int, doubled: int
) -> None:
    account = Account()
    account.put.update(put)
    account.taken.update(taken)
    account.settle(rest)
    assert (account.lost, account.doubled) == (lost, doubled)


def test_the_bars_compare_with_the_peers_of_the_same_run() -> None:
    rates = {
        "fdbqueue, embedded: enqueue by 1, 1": 1000.0,
        "fdbqueue, embedded: receive by 1, 1": 400.0,
        "litequeue: enqueue by 1, 1": 2000.0,
        "fdbqueue, server: enqueue by 1, 1": 900.0,
        "plain recipe, server: enqueue by 1, 1": 1000.0,
    }
    assert [(row.figure, row.holds) for row in judge(rates)] == [(0.5, False), (0.9, True)]
