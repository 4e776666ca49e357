"""Figures as rows of a table, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .bars import Bar
from .blocks import Cost
from .measure import Figures
from .producers import Cost as AddingCost

RUN = (
    "scheme", "consumers", "messages/s", "p50 ms", "p99 ms", "attempts", "commits",
    "round trips", "CPU s/1000", "most:least", "overtaken",
)  # fmt: skip
COST = ("", "messages", "messages/s", "mutations/message", "bytes/message")
ADDING = ("", "threads", "messages/s", "CPU µs/message", "messages/commit")
BAR = ("", "bar", "figure", "must be")


def rows(figures: Sequence[Figures]) -> list[tuple[str, ...]]:
    """A row for each run, with the headers ``RUN``."""
    return [
        (
            str(one.plan["scheme"]),
            str(one.plan["consumers"]),
            f"{one.rate:,.0f}",
            f"{one.p50_ms:.1f}",
            f"{one.p99_ms:.1f}",
            f"{one.attempts_per_success:.2f}",
            f"{one.commits_per_message:.2f}",
            f"{one.round_trips_per_message:.1f}",
            f"{one.cpu_seconds_per_thousand:.2f}",
            f"{one.most_to_least:.2f}",
            f"{one.order_violations:,}",
        )
        for one in figures
    ]


def costs(found: Sequence[Cost]) -> list[tuple[str, ...]]:
    """A row for each operation, with the headers ``COST``."""
    return [
        (
            each.operation,
            str(each.messages),
            f"{each.rate:,.0f}",
            # Those of another process are not counted.
            f"{each.mutations:.2f}" if each.mutations else "-",
            f"{each.size:,.0f}" if each.mutations else "-",
        )
        for each in found
    ]


def adding(found: Sequence[AddingCost]) -> list[tuple[str, ...]]:
    """A row for each way to add messages, with the headers ``ADDING``."""
    return [
        (
            each.way,
            str(each.threads),
            f"{each.rate:,.0f}",
            f"{each.cpu_us:,.0f}",
            f"{each.shared:.1f}",
        )
        for each in found
    ]


def verdicts(bars: Sequence[Bar]) -> list[tuple[str, ...]]:
    """A row for each bar, with the headers ``BAR``."""
    return [
        (
            "pass" if one.holds else "FAIL",
            one.name,
            f"{one.figure:.3g}",
            f"{'≤' if one.at_most else '≥'} {one.bar:g}",
        )
        for one in bars
    ]


def plot(figures: Sequence[Figures], path: Path) -> None:
    """Plot throughput and latency by number of consumers, with a line for each scheme."""
    import matplotlib

    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    canvas, (rates, latencies) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    schemes = list(dict.fromkeys(str(one.plan["scheme"]) for one in figures))
    for scheme in schemes:
        runs = [one for one in figures if one.plan["scheme"] == scheme]
        counts = [one.plan["consumers"] for one in runs]
        (line,) = rates.plot(counts, [one.rate for one in runs], marker="o", label=scheme)
        latencies.plot(counts, [one.p99_ms for one in runs], marker="o", color=line.get_color())
        latencies.plot(counts, [one.p50_ms for one in runs], linestyle=":", color=line.get_color())
    rates.set_ylabel("messages a second")
    rates.set_ylim(bottom=0)
    latencies.set_ylabel("ms: p99, and dotted p50")
    latencies.set_yscale("log")
    for axes in (rates, latencies):
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
        axes.set_xlabel("consumer processes")
        axes.grid(alpha=0.3)
    rates.legend(fontsize="small")
    canvas.tight_layout()
    canvas.savefig(path, dpi=110)
    pyplot.close(canvas)
