"""The comparison with other queues: its account of messages, its bars, and a short run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.peers import handled, run
from benchmarks.peers.command import judge
from benchmarks.peers.peer import Missing, Peer
from benchmarks.peers.registry import PEERS
from benchmarks.peers.run import Account, Cell

ENQUEUE, RECEIVE, WORKER = Cell("enqueue", 1, 1), Cell("receive", 1, 1), Cell("worker", 1, 2)


class NotInstalled(Peer):
    name = "a peer that nobody has"
    durable = "never"
    packages = ("no_such_package",)


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


def test_a_peer_that_is_not_installed_says_what_to_install() -> None:
    with pytest.raises(Missing, match="pip install no_such_package"):
        NotInstalled().check()


def test_handled_messages_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "handled"
    assert handled.read(path) == []
    monkeypatch.setenv(handled.FILE, str(path))
    handled.record(b"%0100d" % 7)
    handled.record("8")
    assert [number for number, _ in handled.read(path)] == [7, 8]


def test_the_bars_compare_with_the_peers_of_the_same_run() -> None:
    rates = {
        "fdbqueue, embedded: enqueue by 1, 1": 1000.0,
        "fdbqueue, embedded: receive by 1, 1": 400.0,
        "litequeue: enqueue by 1, 1": 2000.0,
        "fdbqueue, server: enqueue by 1, 1": 900.0,
        "plain recipe, server: enqueue by 1, 1": 1000.0,
    }
    assert [(row.figure, row.holds) for row in judge(rates)] == [(0.5, False), (0.9, True)]


@pytest.mark.slow
def test_killed_workers_of_fdbqueue_lose_nothing() -> None:
    found = run.kill(PEERS["fdbqueue, embedded"], messages=600, kills=2)
    assert found.figure == 0
    assert 0 < found.more["handled twice"] <= 2 * 8  # Of what two workers had in hand, a half.


@pytest.mark.slow
@pytest.mark.long
def test_fdbqueue_and_the_recipe_take_part() -> None:
    cells = (ENQUEUE, RECEIVE, WORKER)
    for name, possible in (("fdbqueue, embedded", 3), ("plain recipe, embedded", 2)):
        *rows, account = run.live(PEERS[name], cells, seconds=0.3, messages=100)
        assert len(rows) == possible
        assert all(row.figure > 0 and row.more["client µs"] > 0 for row in rows)
        assert account.figure == 0
