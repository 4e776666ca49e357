"""The comparison with other queues: its account of messages, its bars, and a short run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.peers import bars, handled, run
from benchmarks.peers.foundationdb import FdbQueue
from benchmarks.peers.peer import Missing, Peer
from benchmarks.peers.processes import Failed
from benchmarks.peers.registry import PEERS
from benchmarks.peers.run import Account, Cell, Figures, Life

ENQUEUE, RECEIVE, WORKER = Cell("enqueue", 1, 1), Cell("receive", 1, 1), Cell("worker", 1, 2)


class NotInstalled(Peer):
    name = "a peer that nobody has"
    durable = "never"
    packages = ("no_such_package",)


def account(put: Sequence[int], taken: Sequence[int]) -> Account:
    kept = Account()
    kept.put.update(put)
    kept.taken.update(taken)
    return kept


def test_the_account_of_a_peer_that_keeps_every_message_balances() -> None:
    assert account([1, 2, 3], [1]).settle([2, 3]) == (0, 0)


def test_a_peer_that_loses_messages_is_found_out() -> None:
    assert account([1, 2, 3], [1]).settle([3]) == (1, 0)


@pytest.mark.parametrize(("taken", "rest"), [([1, 1], [2]), ([1, 2], [2])])
def test_a_peer_that_doubles_messages_is_found_out(taken: list[int], rest: list[int]) -> None:
    assert account([1, 2], taken).settle(rest) == (0, 1)


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


def life(**rates: float) -> Life:
    """A life with rates by a cell's work and number of processes, as ``enqueue_4``."""
    cells = {}
    for name, rate in rates.items():
        work, processes = name.split("_")
        cells[Cell(work, 1, int(processes))] = Figures(rate, client_us=1e6 / rate)
    return Life(cells, 0, 0)


def test_the_bars_compare_with_the_peers_of_the_same_run() -> None:
    lives = {
        bars.EMBEDDED: life(
            enqueue_1=1000, enqueue_4=1600, receive_1=400, receive_4=500, worker_4=1900
        ),
        "litequeue": life(enqueue_1=2000, receive_1=300),
        "Dramatiq": life(worker_4=1800),
        bars.SERVER: life(enqueue_1=800, worker_4=1200, receive_16=150),
        bars.SERVER + ", old": life(worker_4=300),
        "plain recipe, server": life(enqueue_1=1000),
        "blind sets, server": life(receive_16=200),
    }  # fmt: skip
    judged = [(bar.figure, bar.holds) for bar in bars.judge(lives, ", old")]
    assert judged == [
        (0.5, False), (1.6, True),  # enqueue: litequeue, four processes
        (pytest.approx(4 / 3), True), (1.25, False),  # receive
        (1900, True),  # the worker, beside Dramatiq
        (0.8, False), (1.25, True),  # on a server: the recipe's rate and processor time
        (4, False), (0.75, True),  # the worker's baseline; the limit
    ]  # fmt: skip
    assert [bar.figure for bar in bars.judge({bars.EMBEDDED: lives[bars.EMBEDDED]})] == [
        1.6, 1.25, 1900,
    ]  # fmt: skip


def test_the_figures_of_several_rounds_are_medians_and_their_losses_sums() -> None:
    lives = [
        Life({ENQUEUE: Figures(rate, 1.0, server)}, lost, 1)
        for rate, server, lost in ((10, 3.0, 0), (30, 1.0, 2), (20, 2.0, 1))
    ]
    assert run.middle(lives) == Life({ENQUEUE: Figures(20, 1.0, 2.0)}, 3, 3)


def test_latencies_of_several_rounds_are_medians_where_calls_were_measured() -> None:
    lives = [
        Life({ENQUEUE: Figures(1, 1, None, p50, p99), WORKER: Figures(1, 1)}, 0, 0)
        for p50, p99 in ((1.0, 9.0), (3.0, 5.0), (2.0, 7.0))
    ]
    assert run.middle(lives).cells == {
        ENQUEUE: Figures(1, 1, None, 2.0, 7.0),
        WORKER: Figures(1, 1),
    }


@pytest.mark.slow
def test_killed_workers_of_fdbqueue_lose_nothing() -> None:
    found = run.kill(PEERS["fdbqueue, embedded"], messages=600, kills=2)
    assert (found.kills, found.messages, found.missing) == (2, 600, 0)
    assert 0 < found.twice <= 2 * 8  # Of what two workers had in hand, about a half.


@pytest.mark.long
def test_another_checkout_takes_part_under_a_name_of_its_own() -> None:
    older = FdbQueue(label=", older")
    found = run.live(older, (ENQUEUE,), seconds=0.2, messages=100)
    assert older.name == "fdbqueue, embedded, older"
    assert found.cells[ENQUEUE].rate > 0


def test_another_checkout_is_what_is_measured(tmp_path: Path) -> None:
    (tmp_path / "fdbqueue").mkdir()
    (tmp_path / "fdbqueue" / "__init__.py").write_text("raise SystemExit('this is it')")
    with pytest.raises(Failed):
        run.live(FdbQueue(source=tmp_path, label=", other"), (ENQUEUE,), seconds=0.2, messages=100)


@pytest.mark.slow
@pytest.mark.long
def test_fdbqueue_and_the_recipe_take_part() -> None:
    cells = (ENQUEUE, RECEIVE, WORKER)
    found = run.live(PEERS["fdbqueue, embedded"], cells, seconds=0.3, messages=100)
    assert (found.lost, found.doubled) == (0, 0)
    assert set(found.cells) == {*cells}
    assert all(figures.rate > 0 and figures.client_us > 0 for figures in found.cells.values())
    assert all(
        0 < (found.cells[cell].p50_ms or 0) <= (found.cells[cell].p99_ms or 0)
        for cell in cells
        if cell is not WORKER
    )
    found = run.live(PEERS["plain recipe, embedded"], cells[:2], seconds=0.3, messages=100)
    assert (found.lost, found.doubled) == (0, 0)
    assert set(found.cells) == {ENQUEUE, RECEIVE}
