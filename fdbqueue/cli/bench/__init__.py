"""``fdbq bench …``: the speed of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import durations, terminal
from ..declarations import Group, Option
from ..parameters import AsJson

app = Group(
    name="bench",
    help="Measure how fast the store and its queues are.",
    epilog="A benchmark writes to its own subspace, away from all queues, and removes it at the "
    "end, even after Ctrl-C. It does load the store, so avoid busy hours.",
)


@app.callback(invoke_without_command=True)
def start(ctx: typer.Context) -> None:
    """Without a command, this runs fdbq bench quick."""
    if ctx.invoked_subcommand is None:
        quick()


@app.command()
def quick(
    processes: Annotated[
        int, Option(min=1, max=64, help="Processes in steps that use several.")
    ] = 4,
    seconds: Annotated[float, durations.option("Duration of each step.", 0.1)] = 1.0,
    size: Annotated[
        int, Option("--bytes", min=8, max=1_000_000, help="Size of each payload.")
    ] = 100,
    batch: Annotated[
        int, Option(min=2, max=500, help="Messages in a batch of at most 2 MB.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Measure throughput and latency, in about ten seconds.

    Each step runs with one process and with several; its times are per call. The last line is the
    time from the return of an enqueue until a waiting consumer has the message. The benchmark also
    checks that no message is lost or delivered twice.

    \b
    Examples:
      fdbq bench
      fdbq bench quick --processes 16 --bytes 2000
      fdbq --store /tmp/trial.fdbq bench quick --json
    """
    from ...store.binding import DEFAULT
    from .throughput import run

    terminal.note(f"on {DEFAULT}")
    steps = []
    if not as_json:
        print_row("", "processes", "batch", "messages/s", "p50 ms", "p99 ms")
    for step in run(processes, seconds, size, batch):
        steps.append(step.to_json())
        if not as_json:
            rate = "" if step.rate is None else f"{step.rate:,.0f}"
            times = f"{step.p50_ms:,.1f}", f"{step.p99_ms:,.1f}"
            print_row(step.name, f"{step.processes:,}", f"{step.batch:,}", rate, *times)
    if as_json:
        terminal.print_json(
            {"store": DEFAULT.path, "engine": DEFAULT.engine.name.lower(), "steps": steps}
        )


def print_row(name: str, *texts: str) -> None:
    """Print one row of a table whose rows are known one after another."""
    print(f"{name:<20}" + "".join(f"{text:>12}" for text in texts))
    terminal.flush()
