"""The commands of tools/bench."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import bars as bars_
from benchmarks import measure, report
from benchmarks.measure import Figures, Plan
from benchmarks.schemes import SCHEMES
from fdbqueue.binding import DEFAULT

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
console = Console(width=130 if not sys.stdout.isatty() else None)

Json = Annotated[Path | None, typer.Option(help="Write the figures to this file, as JSON.")]
Seconds = Annotated[float, typer.Option(help="How long each run is measured, in seconds.")]
WarmUp = Annotated[float, typer.Option(help="How long each run warms up, in seconds.")]
Repeat = Annotated[int, typer.Option(help="Runs of each kind, taking turns; the median counts.")]
EXPECTED_RATE = 2_500


@app.command()
def run(
    schemes: Annotated[str, typer.Option(help="Names, with commas.")] = ",".join(SCHEMES),
    consumers: Annotated[str, typer.Option(help="Numbers of processes, with commas.")] = (
        "1,2,4,8,16,32"
    ),
    producers: Annotated[int, typer.Option(help="Processes that enqueue meanwhile.")] = 0,
    batch: Annotated[int, typer.Option(help="Messages in one call.")] = 1,
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
    faults: Annotated[float, typer.Option(help="Share of calls that meet a fault.")] = 0.0,
    backlog: Annotated[int | None, typer.Option(help="Messages to begin with.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture to this file.")] = None,
    json_file: Json = None,
) -> None:
    """Measure schemes over the number of consumers, on a queue that is full."""
    wanted = [name.strip() for name in schemes.split(",")]
    for name in wanted:
        if name not in SCHEMES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(SCHEMES)}")
    if backlog is None:
        backlog = int((seconds + warm_up) * EXPECTED_RATE * min(batch, 10))
    figures: list[Figures] = []
    for count in (int(text) for text in consumers.split(",")):
        for name in wanted:
            plan = Plan(name, count, producers, seconds, warm_up, backlog, batch, faults)
            console.print(f"[dim]{name}, {count} consumers …", highlight=False)
            figures.append(measure.queue(plan))
    console.print(report.table(figures))
    if plot is not None:
        report.plot(figures, plot)
    _write(json_file, {"runs": [one.to_json() for one in figures]})


@app.command()
def bars(
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
    repeat: Repeat = 3,
    consumers: Annotated[int, typer.Option(help="Consumer processes.")] = 16,
    only: Annotated[str | None, typer.Option(help="Groups to run, with commas.")] = None,
    json_file: Json = None,
) -> None:
    """Every figure that the project promises, each with its bar, and whether it holds."""
    plan = Plan("staged", consumers, 0, seconds, warm_up)
    groups = None if only is None else [name.strip() for name in only.split(",")]
    results, figures = bars_.run(replace(plan), repeat, groups, console.print)
    console.print(report.verdicts(results))
    _write(
        json_file,
        {
            "bars": [one.to_json() for one in results],
            "runs": {name: [one.to_json() for one in runs] for name, runs in figures.items()},
        },
    )
    if not all(one.holds for one in results):
        sys.exit(1)


def _write(path: Path | None, found: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps({"store": DEFAULT.engine.value, **found}, indent=1) + "\n")
