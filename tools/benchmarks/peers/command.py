"""``tools/bench peers``: the comparison as a command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from fdbqueue.cli import durations, terminal

from .. import report
from ..bars import Bar
from ..checkout import checked_out
from .bars import judge
from .foundationdb import FdbQueue
from .peer import Missing, Peer
from .processes import Failed
from .registry import PEERS
from .run import CELLS, Cell, Figures, Killed, Life, kill, live, middle, to_json

WORK = ("enqueue", "receive", "worker")


def peers(
    only: Annotated[
        str, Option(metavar="TEXT,…", help="Only peers whose name contains one of these.")
    ] = "",
    skip: Annotated[
        str, Option(metavar="TEXT,…", help="No peers whose name contains one of these.")
    ] = "",
    work: Annotated[
        str, Option(metavar="WORK,…", help="Only these of enqueue, receive, worker.")
    ] = "",
    seconds: Annotated[float, durations.option("Duration of each measurement.", 0.1)] = 3.0,
    repeat: Annotated[
        int,
        Option(metavar="N", min=1, help="Rounds through all peers, of which the median counts."),
    ] = 3,
    messages: Annotated[
        int,
        Option(metavar="N", min=100, help="Messages that each peer's own worker handles."),
    ] = 5_000,
    kills: Annotated[
        int,
        Option(
            metavar="N", min=0, help="Then kill so many workers of each peer, and count messages."
        ),
    ] = 0,
    baseline: Annotated[
        str, Option(metavar="COMMIT", help="Also measure fdbqueue as of this commit.")
    ] = "",
    json_file: Annotated[
        Path | None, Option(metavar="FILE", help="Also write all figures here.")
    ] = None,
) -> None:
    """Compare fdbqueue with other queues, side by side in one run.

    Each peer gets a temporary directory and, if it needs one, its own server. "enqueue by 100, 4"
    is four processes that enqueue batches of 100; "receive" acknowledges, too. If a peer is not
    installed, the command says what to install, and skips it. A lost message went in and is
    nowhere; a doubled one came out twice. With --kills, each worker is killed in turn and replaced;
    that takes up to two minutes for a peer that does not bring messages back. The exit code is 1 if
    a bar does not hold.

    The servers come from the machine: postgresql, redis-server, rabbitmq-server, and fdbserver from
    FDB_BIN or the PATH. The libraries come from pip:

    pip install litequeue huey diskcache 'psycopg[binary]' procrastinate pgqueuer redis rq
    dramatiq pika

    \b
    Examples:
      tools/bench peers --only fdbqueue,litequeue --seconds 1 --repeat 1
      tools/bench peers --baseline HEAD~20 --json-file peers.json
      tools/bench peers --work worker --kills 12 --messages 2000
    """
    if unknown := {*_words(work)} - {*WORK}:
        raise terminal.CommandError(f"--work: {min(unknown)!r} is none of {', '.join(WORK)}")
    cells = [cell for cell in CELLS if not work or cell.work in _words(work)]
    with ExitStack() as stack:
        suffix = f", {baseline}" if baseline else ""
        if baseline:
            source = stack.enter_context(checked_out(baseline))
            for server in (False, True):
                older = FdbQueue(server=server, source=source, label=suffix)
                PEERS[older.name] = older
        chosen = [*_installed(_chosen(only, skip))]
        lives: dict[str, list[Life]] = {}
        for round_ in range(repeat):
            for peer in chosen:
                terminal.note(f"{round_ + 1} of {repeat}: {peer.name} …")
                try:
                    found = live(peer, cells, seconds, messages)
                except (Failed, Missing) as error:
                    terminal.note(f"{peer.name} failed: {error}")
                    continue
                lives.setdefault(peer.name, []).append(found)
    if not lives:
        raise terminal.CommandError("no peer was measured")
    killed = _killed([peer for peer in chosen if peer.works], messages, kills) if kills else {}
    medians = {name: middle(each) for name, each in lives.items()}
    bars = [*judge(medians, suffix)]
    _show(medians, cells, bars)
    if killed:
        _show_killed(killed)
    if json_file is not None:
        found_ = {
            name: {
                **to_json(life),
                **({"killed": asdict(killed[name])} if name in killed else {}),
            }
            for name, life in medians.items()
        }
        json_file.write_text(json.dumps(found_, indent=1) + "\n")
    if not all(bar.holds for bar in bars):
        raise Exit(1)


def _killed(chosen: list[Peer], messages: int, kills: int) -> dict[str, Killed]:
    found = {}
    for peer in chosen:
        terminal.note(f"kill {kills} workers: {peer.name} …")
        try:
            found[peer.name] = kill(peer, messages, kills)
        except (Failed, Missing) as error:
            terminal.note(f"{peer.name} failed: {error}")
    return found


def _show_killed(killed: Mapping[str, Killed]) -> None:
    heads = ("peer", "kills", "messages", "not handled", "handled twice", "last after s")
    rows = [
        (
            name,
            *(f"{number:,}" for number in (one.kills, one.messages, one.missing, one.twice)),
            f"{one.last_seconds:.1f}",
        )
        for name, one in killed.items()
    ]
    print("\nWorkers that are killed, and replaced")
    terminal.print_table(heads, rows, heads[1:])


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _chosen(only: str, skip: str) -> Iterator[Peer]:
    for word in _words(only) + _words(skip):
        if not any(word in name for name in PEERS):
            raise terminal.CommandError(
                f"no peer's name contains {word!r}; their names are: {'; '.join(PEERS)}"
            )
    for name, peer in PEERS.items():
        wanted = not only or any(word in name for word in _words(only))
        if wanted and not any(word in name for word in _words(skip)):
            yield peer


def _installed(chosen: Iterator[Peer]) -> Iterator[Peer]:
    for peer in chosen:
        try:
            peer.check()
        except Missing as missing:
            terminal.note(f"skipped {peer.name}: {missing}")
        else:
            yield peer


def _show(lives: Mapping[str, Life], cells: list[Cell], bars: list[Bar]) -> None:
    named = [str(cell) for cell in sorted(cells)]
    rates, costs = [], []
    for name, life in lives.items():
        figures = [life.cells.get(cell) for cell in sorted(cells)]
        told = (str(life.lost), str(life.doubled))
        rates.append((name, PEERS[name].durable, *map(_rate, figures), *told))
        costs.append((name, *map(_cost, figures)))
    print("Messages a second")
    terminal.print_table(("peer", "durable", *named, "lost", "doubled"), rates, named)
    print("\nProcessor time a message, in microseconds: clients + server")
    terminal.print_table(("peer", *named), costs, named)
    if any(cell.work != "worker" for cell in cells):
        print("\nMilliseconds a call: half of the calls, and 99 of 100")
        waits = [
            (name, *(_waits(life.cells.get(cell)) for cell in sorted(cells)))
            for name, life in lives.items()
        ]
        terminal.print_table(("peer", *named), waits, named)
    if bars:
        print()
        terminal.print_table(report.BAR, report.verdicts(bars), report.BAR[2:])


def _rate(figures: Figures | None) -> str:
    return "-" if figures is None else f"{figures.rate:,.0f}"


def _waits(figures: Figures | None) -> str:
    if figures is None or figures.p50_ms is None or figures.p99_ms is None:
        return "-"
    return f"{figures.p50_ms:.1f}, {figures.p99_ms:.1f}"


def _cost(figures: Figures | None) -> str:
    if figures is None:
        return "-"
    server = "" if figures.server_us is None else f" + {figures.server_us:,.0f}"
    return f"{figures.client_us:,.0f}{server}"
