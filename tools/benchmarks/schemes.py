"""``tools/bench schemes``: ways to dequeue, compared by number of consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fdbqueue.cli import terminal

from . import measure
from .declare import Row, Seconds, benchmark, counts, known
from .measure import Figures, Plan, WarmUp
from .ways import SCHEMES

EXPECTED_RATE = 2_500


@benchmark("schemes")
def schemes(
    names: Annotated[
        list[str] | None, Argument(metavar="SCHEME…", help="The schemes; by default all.")
    ] = None,
    consumers: Annotated[
        str, Option(metavar="N,…", help="Numbers of consumer processes.")
    ] = "1,2,4,8,16,32",
    producers: Annotated[
        int, Option(metavar="N", min=0, help="Processes that enqueue at the same time.")
    ] = 0,
    batch: Annotated[int, Option(metavar="N", min=1, help="Messages in one call.")] = 1,
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
    plot: Annotated[Path | None, Option(metavar="FILE", help="Also write a plot.")] = None,
) -> Iterator[Row]:
    """Compare ways to dequeue, by number of consumers.

    first, auto and staged are the ways to receive. "plain recipe"
    and "published staged" are published recipes without leases: they lose what a crash interrupts.
    Those that begin with "subscribed" have consumers of one subscription, which wants all messages.

    \b
    Examples:
      tools/bench schemes auto first --consumers 1,8 --seconds 2
      tools/bench schemes --plot bench.png --json-file bench.json
    """
    wanted = known("scheme", names or (), SCHEMES)
    backlog = int((seconds + warm_up) * EXPECTED_RATE * min(batch, 10))
    found: list[tuple[str, int, Figures]] = []
    for count in counts(consumers):
        for name in wanted:
            one = measure.run(Plan(name, count, producers, seconds, warm_up, backlog, batch))
            found.append((name, count, one))
            yield Row(f"{name}, {count}", one.rate, more=_more(one))
    if plot is not None:
        terminal.note(f"plotted in {plot}")
        _plot(found, plot)


def _more(one: Figures) -> dict[str, float]:
    return {
        "p50 ms": one.p50_ms,
        "p99 ms": one.p99_ms,
        "attempts": one.attempts_per_success,
        "commits": one.commits_per_message,
        "round trips": one.round_trips_per_message,
        "CPU s/1000": one.cpu_seconds_per_thousand,
        "most:least": one.most_to_least,
        "overtaken": one.order_violations,
    }


def _plot(found: Sequence[tuple[str, int, Figures]], path: Path) -> None:
    """Plot throughput and latency by number of consumers, with a line for each scheme."""
    import matplotlib

    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    canvas, (rates, latencies) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for scheme in dict.fromkeys(name for name, _, _ in found):
        counts, runs = zip(*(each[1:] for each in found if each[0] == scheme), strict=True)
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
