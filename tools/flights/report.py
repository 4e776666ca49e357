"""What the demo prints: progress while it runs, and tables and a chart at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotext  # type: ignore[import-untyped]
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .proof import Claim
from .table import LATE_MINUTES, Totals

console = Console(highlight=False)

BAR_WIDTH = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """How far it was, at some second of the run."""

    second: float
    enqueued: int
    done: int


def progress() -> Progress:
    """Progress bars for what is enqueued and what is done."""
    return Progress(
        TextColumn("  {task.description:<10}"),
        BarColumn(bar_width=36),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def step(text: str) -> None:
    """One line that says what happens now."""
    console.print(Text.assemble(("==> ", "bold"), text), soft_wrap=True)


def chart(samples: Sequence[Sample], killed: float | None) -> None:
    """Messages enqueued and done, over time."""
    figure = plotext.figure
    figure.plot_size(min(console.width, 100), 14)
    figure.theme("colorless")
    figure.title("messages, by second")
    seconds = [sample.second for sample in samples]
    figure.draw(_curve("enqueued", "cyan", seconds, [sample.enqueued for sample in samples]))
    figure.draw(_curve("done", "green", seconds, [sample.done for sample in samples]))
    if killed is not None:
        figure.line(killed, "vertical", pixel=plotext.pixel("red", "default"), label="killed")
    console.print(Text.from_ansi(str(figure.build())))


def _curve(name: str, color: str, seconds: Sequence[float], counts: Sequence[int]) -> Any:
    marker = plotext.marker("braille", pixel=plotext.pixel(color))
    return plotext.figure.signal(seconds, counts, marker=marker).label(name).lines()


def carriers(sums: Mapping[str, Totals]) -> None:
    """The summary that the workers kept in the store."""
    table = _table("carrier", "flights", "cancelled", "min late (mean)", "")
    worst = max(mean_delay(totals) for totals in sums.values())
    for carrier, totals in sorted(sums.items(), key=lambda item: -item[1].flights):
        delay = mean_delay(totals)
        table.add_row(
            carrier,
            f"{totals.flights:,}",
            f"{totals.missing:,}",
            f"{delay:.1f}",
            _bar(delay / worst),
        )
    console.print(table)


def mean_delay(totals: Totals) -> float:
    """Minutes late per flight that arrived; early ones count as 0."""
    return totals.late / max(1, totals.flights - totals.missing)


def waits(counts: Mapping[int, int], waited_ms: Mapping[int, int]) -> None:
    """How long messages waited, by priority."""
    means = {priority: waited_ms.get(priority, 0) / n / 1000 for priority, n in counts.items()}
    longest = max(means.values())
    table = _table("", "flights that are", "messages", "mean wait", "")
    for priority in sorted(counts, reverse=True):
        table.add_row(
            str(priority),
            _lateness(priority),
            f"{counts[priority]:,}",
            f"{means[priority]:.1f} s",
            _bar(means[priority] / longest if longest else 0),
        )
    console.print(table)


def _lateness(priority: int) -> str:
    if priority == 0:
        return "on time"
    start = LATE_MINUTES[priority - 1]
    if priority == len(LATE_MINUTES):
        return f"{start} min late, or cancelled"
    return f"{start} to {LATE_MINUTES[priority] - 1} min late"


def workers(
    count: int, settled: Mapping[int, int], again: Mapping[int, int], killed: int | None
) -> None:
    """Who did how much, of ``count`` workers."""
    table = _table("worker", "settled", "of these delivered again", "")
    for worker in range(count):
        table.add_row(
            str(worker),
            f"{settled.get(worker, 0):,}",
            f"{again.get(worker, 0):,}",
            "killed" if worker == killed else "",
        )
    console.print(table)


def proof(claims: Sequence[Claim]) -> None:
    """What had to hold, and whether it did."""
    for claim in claims:
        mark = ("  ok    ", "bold green") if claim.holds else ("  WRONG ", "bold red")
        console.print(Text.assemble(mark, claim.text), soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False)
    for column in columns:
        left = column in ("", "carrier", "worker", "flights that are")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _bar(share: float) -> Text:
    return Text("█" * max(1, round(share * BAR_WIDTH)), style="cyan")
