"""``fdbq bench …``: the speed of the store and of its queues."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import durations, terminal
from ..declarations import Argument, Group, Option
from ..parameters import AsJson

app = Group(
    name="bench",
    help="Measure how fast the store and its queues are.",
    epilog="A benchmark writes to its own subspace, away from all queues, and removes it at the "
    "end, even after Ctrl-C. It does load the store, so avoid busy hours.",
)

Seconds = Annotated[float, durations.option("Duration of each run.", 0.1)]
WarmUp = Annotated[float, durations.option("Warm-up before each run.", 0)]
JsonFile = Annotated[Path | None, Option(help="Also write all figures to this file, as JSON.")]

EXPECTED_RATE = 2_500


@app.callback(invoke_without_command=True)
def _bench(ctx: typer.Context) -> None:
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
    from . import quick as quick_

    terminal.note(f"on {DEFAULT}")
    steps = []
    if not as_json:
        _print_step("", "processes", "batch", "messages/s", "p50 ms", "p99 ms")
    with _interrupted_by_sigterm():
        for step in quick_.run(processes, seconds, size, batch):
            steps.append(step.to_json())
            if not as_json:
                _print_step(
                    step.name,
                    terminal.cell(step.processes),
                    terminal.cell(step.batch),
                    "" if step.rate is None else f"{step.rate:,.0f}",
                    f"{step.p50_ms:,.1f}",
                    f"{step.p99_ms:,.1f}",
                )
    if as_json:
        terminal.print_json(
            {"store": DEFAULT.path, "engine": DEFAULT.engine.name.lower(), "steps": steps}
        )


def _print_step(name: str, *texts: str) -> None:
    print(f"{name:<20}" + "".join(f"{text:>12}" for text in texts))
    terminal.flush()


@app.command()
def beats(
    consumers: Annotated[
        str, Option(metavar="N,…", help="Numbers of registered consumers.")
    ] = "10,10000",
    as_json: AsJson = False,
) -> None:
    """Measure the cost of heartbeats.

    First all consumers belong to the process that beats, then each has its own process.

    \b
    Examples:
      fdbq bench beats
      fdbq bench beats --consumers 10,1000 --json
    """
    from . import heartbeats as beats_

    counts = [_positive(text, 100_000) for text in consumers.split(",")]
    found = []
    if not as_json:
        _print_step(
            "", "consumers", "processes", "rows", "most rows", "written", "round trips", "p50 ms"
        )
    with _interrupted_by_sigterm():
        for each in beats_.run(counts):
            found.append(each.to_json())
            if not as_json:
                _print_step(
                    "heartbeat",
                    f"{each.consumers:,}",
                    each.processes,
                    f"{each.rows:g}",
                    str(each.most_rows),
                    f"{each.written:g}",
                    f"{each.round_trips:g}",
                    f"{each.p50_ms:,.1f}",
                )
    if as_json:
        terminal.print_json(found)


@app.command()
def schemes(
    names: Annotated[
        list[str] | None, Argument(metavar="SCHEME…", help="The schemes; by default all.")
    ] = None,
    consumers: Annotated[
        str, Option(metavar="N,…", help="Numbers of consumer processes.")
    ] = "1,2,4,8,16,32",
    producers: Annotated[int, Option(min=0, help="Processes that enqueue at the same time.")] = 0,
    batch: Annotated[int, Option(min=1, help="Messages in one call.")] = 1,
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
    faults: Annotated[
        float,
        Option(
            metavar="SHARE",
            min=0.0,
            max=0.5,
            help="Share of calls that fail; only on the embedded engine.",
        ),
    ] = 0.0,
    backlog: Annotated[
        int | None, Option(min=0, help="Messages in the queue at the start.")
    ] = None,
    plot: Annotated[Path | None, Option(help="Also write a plot; needs fdbqueue[plot].")] = None,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare ways to dequeue, by number of consumers.

    first, auto, staged and relaxed are the values of a queue's option contention. "plain recipe"
    and "published staged" are published recipes without leases: they lose what a crash interrupts.

    \b
    Examples:
      fdbq bench schemes auto relaxed --consumers 1,8 --seconds 2
      fdbq bench schemes --plot bench.png --json-file bench.json
    """  # fmt: skip
    from . import measure, report
    from .schemes import SCHEMES

    wanted = _known("scheme", names or SCHEMES, SCHEMES)
    counts = [*map(_positive, consumers.split(","))]
    if plot is not None:
        report.check_plot()
    if backlog is None:
        backlog = int((seconds + warm_up) * EXPECTED_RATE * min(batch, 10))
    figures: list[measure.Figures] = []
    with _interrupted_by_sigterm():
        for count in counts:
            for name in wanted:
                terminal.note(f"{name}, {terminal.count(count, 'consumer')} …")
                plan = measure.Plan(
                    name, count, producers, seconds, warm_up, backlog, batch, faults
                )
                figures.append(measure.queue(plan))
    if plot is not None:
        report.plot(figures, plot)
    found = {"runs": [one.to_json() for one in figures]}
    if as_json:
        terminal.print_json(found)
    else:
        terminal.print_table(report.RUN, report.rows(figures), report.RUN[1:])
    _write(json_file, found)


def _known(noun: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    wanted = [name.strip() for name in names]
    if unknown := [name for name in wanted if name not in {*known}]:
        choices = ", ".join(known)
        raise terminal.CommandError(f"unknown {noun} {unknown[0]!r}; the {noun}s are {choices}")
    return wanted


def _positive(text: str, most: int = 256) -> int:
    if not text.strip().isdecimal() or not 0 < int(text) <= most:
        raise terminal.CommandError(f"--consumers: {text!r} is not a number from 1 to {most:,}")
    return int(text)


@app.command()
def bars(
    only: Annotated[
        str | None,
        Option(metavar="GROUP,…", help="Only these of enqueue, dequeue, batches, backlog, faults."),
    ] = None,
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
    repeat: Annotated[
        int, Option(min=1, help="Runs of each kind, of which the median counts.")
    ] = 3,
    consumers: Annotated[int, Option(min=1, max=256, help="Consumer processes.")] = 16,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure every figure that fdbqueue promises.

    The exit code is 1 if one does not hold. It takes some minutes, and holds a million messages for
    a while.

    \b
    Examples:
      fdbq bench bars
      fdbq bench bars --only enqueue,faults --seconds 2 --repeat 1
    """
    from . import bars as bars_
    from . import report
    from .measure import Plan

    groups = None if only is None else _known("group", only.split(","), bars_.GROUPS)
    with _interrupted_by_sigterm():
        results, runs = bars_.run(
            Plan("staged", consumers, 0, seconds, warm_up), repeat, groups, terminal.note
        )
    found = {
        "bars": [one.to_json() for one in results],
        "runs": {name: [one.to_json() for one in each] for name, each in runs.items()},
    }
    if as_json:
        terminal.print_json(found["bars"])
    else:
        terminal.print_table(report.BAR, report.verdicts(results), report.BAR[2:])
    _write(json_file, found)
    if not all(one.holds for one in results):
        raise terminal.Exit(1)


@app.command()
def spark(
    only: Annotated[
        str | None, Option(metavar="GROUP,…", help="Only these of browse, write, consume.")
    ] = None,
    rows: Annotated[int, Option(min=1_000, help="Messages in each queue.")] = 300_000,
    size: Annotated[int, Option("--bytes", min=0, max=50_000, help="Size of each payload.")] = 100,
    repeat: Annotated[
        int, Option(min=1, help="Runs of each kind, of which the median counts.")
    ] = 3,
    cores: Annotated[int, Option(min=1, help="Cores that Spark may use.")] = 2,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure the Spark data source against one that does nothing.

    Needs fdbqueue[spark] and Java. The exit code is 1 if a promised figure does not hold.

    \b
    Examples:
      fdbq bench spark
      fdbq bench spark --only browse --rows 1000000 --bytes 500
    """
    from . import report
    from . import spark as pipeline

    groups = None if only is None else _known("group", only.split(","), pipeline.GROUPS)
    found = []
    if not as_json:
        print(f"{'':<50}{'rows/s':>12}{'CPU µs/row':>14}")
    with _interrupted_by_sigterm():
        for rate in pipeline.run(rows, size, repeat, groups, f"local[{cores}]"):
            found.append(rate)
            if not as_json:
                cpu = "" if rate.cpu_us is None else f"{rate.cpu_us:,.1f}"
                figure = f"{rate.figure:,.{0 if rate.figure >= 100 else 2}f}"
                print(f"{rate.name:<50}{figure:>12}{cpu:>14}")
                terminal.flush()
    bars_ = [rate.bar for rate in found if rate.bar is not None]
    if as_json:
        terminal.print_json([rate.to_json() for rate in found])
    else:
        print()
        terminal.print_table(report.BAR, report.verdicts(bars_), report.BAR[2:])
    _write(json_file, {"rates": [rate.to_json() for rate in found]})
    if not all(one.holds for one in bars_):
        raise terminal.Exit(1)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a benchmark like Ctrl-C, so that it removes its data."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write(path: Path | None, found: dict[str, Any]) -> None:
    from ...store.binding import DEFAULT

    if path is not None:
        path.write_text(
            json.dumps({"store": DEFAULT.engine.name.lower(), **found}, indent=1) + "\n"
        )
