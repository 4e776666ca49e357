"""What fdbqueue is to reach beside its peers, as ratios of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..bars import Bar
from .run import Cell, Figures, Life

EMBEDDED, SERVER = "fdbqueue, embedded", "fdbqueue, server"
WORKER_RATE = 2_000.0
ENQUEUE, RECEIVE = Cell("enqueue", 1, 1), Cell("receive", 1, 1)
WORKER = Cell("worker", 1, 4)


def judge(lives: Mapping[str, Life], baseline: str = "") -> Iterator[Bar]:
    """The bars for which everything was measured.

    baseline: the suffix of the names of an older fdbqueue in the same run.
    """

    def at(peer: str, cell: Cell) -> Figures | None:
        return lives[peer].cells.get(cell) if peer in lives else None

    def ratio(name: str, bar: float, mine: Figures | None, other: Figures | None) -> Iterator[Bar]:
        if mine is not None and other is not None:
            yield Bar(name, mine.rate / other.rate, bar, False)

    for what, cell, least in (("enqueue", ENQUEUE, 0.6), ("receive and ack", RECEIVE, 1.0)):
        alone = at(EMBEDDED, cell)
        four = at(EMBEDDED, Cell(cell.work, 1, 4))
        peer = at("litequeue", cell)
        yield from ratio(f"{what}, one process: rate to that of litequeue", least, alone, peer)
        yield from ratio(f"{what}: rate of four processes to that of one", 1.5, four, alone)
    if (worker := at(EMBEDDED, WORKER)) is not None:
        other = at("Dramatiq", WORKER)
        bar = WORKER_RATE if other is None else min(WORKER_RATE, other.rate)
        yield Bar(
            "worker, four processes: messages/s (2,000, or Dramatiq's)", worker.rate, bar, False
        )
    mine, recipe = at(SERVER, ENQUEUE), at("plain recipe, server", ENQUEUE)
    yield from ratio("server, enqueue: rate to that of the plain recipe", 0.85, mine, recipe)
    if mine is not None and recipe is not None:
        spent = mine.client_us / recipe.client_us
        yield Bar("server, enqueue: processor time to that of the plain recipe", spent, 1.5, True)
    if baseline:
        yield from ratio(
            f"server, worker: rate to that{baseline}", 5.0,
            at(SERVER, WORKER), at(SERVER + baseline, WORKER),
        )  # fmt: skip
    crowd = Cell("receive", 1, 16)
    yield from ratio(
        "server, 16 consumers: rate to that of two blind commits a message", 0.65,
        at(SERVER, crowd), at("blind sets, server", crowd),
    )  # fmt: skip
