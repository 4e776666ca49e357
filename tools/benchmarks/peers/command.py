"""``tools/bench peers``: the comparison as a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Annotated

from typer import Option

from fdbqueue.cli import terminal

from ..declare import Rounds, Row, Seconds, at_least, benchmark, known
from ..processes import BenchmarkFailed
from .foundationdb import ON_STORES
from .peer import Missing, Peer
from .postgres import PGQUEUER, PROCRASTINATE, SKIP_LOCKED
from .rabbitmq import RABBITMQ
from .redis import DRAMATIQ, RQ, STREAMS
from .run import CELLS, kill, live
from .sqlite import HUEY, LITEQUEUE

PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        *ON_STORES, SKIP_LOCKED, PROCRASTINATE, PGQUEUER, LITEQUEUE, HUEY, RABBITMQ, STREAMS, RQ,
        DRAMATIQ,
    )
}  # fmt: skip
"""The order is that of the rows of the table."""

Words = Annotated[
    str, Option(metavar="TEXT,…", help="Only, or no, peers whose name contains one of these.")
]


@benchmark("peers")
def peers(
    only: Words = "",
    skip: Words = "",
    work: Annotated[
        str, Option(metavar="WORK,…", help="Only these of enqueue, receive, worker.")
    ] = "",
    seconds: Seconds = 3.0,
    repeat: Rounds = 3,
    messages: Annotated[
        int,
        Option(metavar="N", min=100, help="Messages that each peer's own worker handles."),
    ] = 5_000,
    kills: Annotated[
        int,
        Option(metavar="N", min=0, help="Then kill so many workers of each, and count messages."),
    ] = 0,
) -> Iterator[Row]:
    """Compare fdbqueue with other queues, side by side in one run.

    Each peer gets a temporary directory and, if it needs one, its own server. "enqueue by 100, 4"
    is four processes that enqueue batches of 100; "receive" acknowledges, too. If a peer is not
    installed, the command says what to install, and skips it. A lost message went in and is
    nowhere; a doubled one came out twice. With --kills, each worker is killed in turn and replaced;
    that takes up to two minutes for a peer that does not bring messages back.

    The servers come from the machine: postgresql, redis-server, rabbitmq-server, and fdbserver from
    FDB_BIN or the PATH. The libraries come from pip:

    pip install litequeue huey 'psycopg[binary]' procrastinate pgqueuer redis rq
    dramatiq pika
    """
    works = known("work", work.split(","), ("enqueue", "receive", "worker"))
    cells = [cell for cell in CELLS if cell.work in works]
    chosen = [*_installed(_chosen(only, skip))]
    found: dict[str, list[Row]] = {}
    for round_ in range(repeat):
        for peer in chosen:
            terminal.note(f"{round_ + 1} of {repeat}: {peer.name}, durable {peer.durable} …")
            try:
                for row in live(peer, cells, seconds, messages):
                    found.setdefault(row.name, []).append(row)
            except (BenchmarkFailed, Missing) as error:
                terminal.note(f"{peer.name} failed: {error}")
    if not found:
        raise terminal.CommandError("no peer was measured")
    medians = {name: _median(rows) for name, rows in found.items()}
    yield from medians.values()
    yield from judge({name: row.figure for name, row in medians.items()})
    for peer in chosen if kills else ():
        if peer.work:
            yield kill(peer, messages, kills)


def judge(rates: Mapping[str, float]) -> Iterator[Row]:
    """The bars for which everything was measured, as ratios of one run."""
    one, four = "enqueue by 1, 1", "enqueue by 1, 4"
    taken, by_four = "receive by 1, 1", "receive by 1, 4"
    for mine, cell, other, beside, bar in (
        ("fdbqueue, embedded", one, "litequeue", one, 0.6),
        ("fdbqueue, embedded", four, "fdbqueue, embedded", one, 1.5),
        ("fdbqueue, embedded", taken, "litequeue", taken, 1.0),
        ("fdbqueue, embedded", by_four, "fdbqueue, embedded", taken, 1.5),
        ("fdbqueue, embedded", "worker by 1, 4", "Dramatiq", "worker by 1, 4", 1.0),
        ("fdbqueue, server", one, "plain recipe, server", one, 0.85),
        ("fdbqueue, server", "receive by 1, 16", "blind sets, server", "receive by 1, 16", 0.65),
    ):
        rate, to = rates.get(f"{mine}: {cell}"), rates.get(f"{other}: {beside}")
        if rate is not None and to is not None:
            yield at_least(f"{mine}: {cell}: rate to that of {other}, {beside}", rate / to, bar)


def _median(rows: list[Row]) -> Row:
    more = {name: median(row.more[name] for row in rows) for name in rows[0].more}
    return replace(rows[0], figure=median(row.figure for row in rows), more=more)


def _chosen(only: str, skip: str) -> Iterator[Peer]:
    wanted, unwanted = ([word.strip() for word in each.split(",") if word] for each in (only, skip))
    for word in wanted + unwanted:
        if not any(word in name for name in PEERS):
            raise terminal.CommandError(
                f"no peer's name contains {word!r}; their names are: {'; '.join(PEERS)}"
            )
    for name, peer in PEERS.items():
        if any(word in name for word in unwanted):
            continue
        if not wanted or any(word in name for word in wanted):
            yield peer


def _installed(chosen: Iterator[Peer]) -> Iterator[Peer]:
    for peer in chosen:
        try:
            peer.check()
        except Missing as missing:
            terminal.note(f"skipped {peer.name}: {missing}")
        else:
            yield peer
