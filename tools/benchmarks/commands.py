"""``tools/bench …``: the schemes compared, and every promised figure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer

from fdbqueue.cli import durations, terminal
from fdbqueue.cli.main import STYLE
from fdbqueue.cli.parameters import AsJson

from .peers.command import peers

app = Typer(
    name="bench",
    help="Measure how fast the store and its queues are.",
    epilog="A benchmark writes to its own subspace, away from all queues, and removes it at the "
    "end, even after Ctrl-C. It does load the store, so avoid busy hours.",
    add_completion=False,
    no_args_is_help=True,
    **STYLE,
)

Seconds = Annotated[float, durations.option("Duration of each run.", 0.1)]
WarmUp = Annotated[float, durations.option("Warm-up before each run.", 0)]
JsonFile = Annotated[
    Path | None, Option(metavar="FILE", help="Also write all figures to this file, as JSON.")
]

EXPECTED_RATE = 2_500
HANDLED_RATE = 100_000
"""More messages a second than workers handle in batches, so that their queue does not run empty."""

app.command()(peers)


def print_row(name: str, *texts: str) -> None:
    """Print one row of a table whose rows are known one after another."""
    print(f"{name:<20}" + "".join(f"{text:>12}" for text in texts))
    terminal.flush()


@app.command()
def schedules(
    counts: Annotated[
        str, Option("--schedules", metavar="N,…", help="Numbers of schedules of one queue.")
    ] = "0,10000",
    as_json: AsJson = False,
) -> None:
    """Measure what a tick costs while many schedules tick at once, and what they cost otherwise.

    \b
    Examples:
      tools/bench schedules
      tools/bench schedules --schedules 1000 --json
    """
    from . import schedules as schedules_

    numbers = [int(text) if text == "0" else _positive(text, 100_000) for text in counts.split(",")]
    found = []
    names = ["cron ms", "processor ms", "every ms", "skip ms", "idle %", "idle trips/s"]
    if not as_json:
        print_row("", "schedules", *names)
    for each in schedules_.run(numbers):
        found.append(each.to_json())
        if not as_json:
            number, *figures = each.to_json().values()
            print_row("ticks", f"{number:,}", *(f"{figure:.2f}" for figure in figures))
    if as_json:
        terminal.print_json(found)


@app.command()
def groups(
    counts: Annotated[
        str, Option("--messages", metavar="N,…", help="Numbers of messages of one group.")
    ] = "1000,100000",
    as_json: AsJson = False,
) -> None:
    """Measure what a group costs those who end its messages, and how often they conflict.

    \b
    Examples:
      tools/bench groups
      tools/bench groups --messages 10000 --json
    """
    from . import groups as groups_

    found = []
    if not as_json:
        names = ["ended/s", "alone/s", "conflicts", "alone", "find ms"]
        print_row("", "messages", *names)
    for each in groups_.run([_positive(text, 1_000_000) for text in counts.split(",")]):
        found.append(each.to_json())
        if not as_json:
            rates = f"{each.ended:,.0f}", f"{each.alone:,.0f}"
            conflicts = f"{each.conflicts:,}", f"{each.conflicts_alone:,}"
            print_row("groups", f"{each.messages:,}", *rates, *conflicts, f"{each.find_ms:.2f}")
    if as_json:
        terminal.print_json(found)


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
      tools/bench beats
      tools/bench beats --consumers 10,1000 --json
    """
    from . import heartbeats as beats_

    counts = [_positive(text, 100_000) for text in consumers.split(",")]
    found = []
    if not as_json:
        print_row(
            "", "consumers", "processes", "rows", "most rows", "written", "round trips", "p50 ms"
        )
    for each in beats_.run(counts):
        found.append(each.to_json())
        if not as_json:
            print_row(
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
def costs(as_json: AsJson = False) -> None:
    """Count what each operation reads, writes and waits for, and try which operations conflict.

    Prints the tables of docs/capacity.md, in Markdown: payloads of 100 bytes, on an open queue.

    \b
    Examples:
      tools/bench costs
      tools/bench costs --json
    """
    from . import costs as costs_

    found, clashes = costs_.run()
    if as_json:
        terminal.print_json(
            {
                "costs": [each.to_json() for each in found],
                "conflicts": [each.to_json() for each in clashes],
            }
        )
    else:
        print(costs_.tables(found, clashes))


@app.command("start")
def first_steps(as_json: AsJson = False) -> None:
    """Follow docs/getting-started.md as a new user does, from a clone to a worker on real data.

    It measures what is committed. Needs git and the package index, and 150 MB of temporary space.

    \b
    Examples:
      tools/bench start
      tools/bench start --json
    """
    from . import first_steps as first_steps_

    found = []
    for each in first_steps_.run():
        found.append(each.to_json())
        if not as_json:
            print(f"{each.seconds:8.1f} s  {each.command}")
            terminal.flush()
    if as_json:
        terminal.print_json(found)
    else:
        print(f"{sum(each['seconds'] for each in found):8.1f} s  in all")


@app.command()
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
        int | None, Option(metavar="N", min=0, help="Messages in the queue at the start.")
    ] = None,
    plot: Annotated[Path | None, Option(metavar="FILE", help="Also write a plot.")] = None,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare ways to dequeue, by number of consumers.

    first, auto and staged are the ways to receive. "plain recipe"
    and "published staged" are published recipes without leases: they lose what a crash interrupts.
    Those that begin with "subscribed" have consumers of one subscription, which wants all messages.

    \b
    Examples:
      tools/bench schemes auto first --consumers 1,8 --seconds 2
      tools/bench schemes --plot bench.png --json-file bench.json
    """  # fmt: skip
    from . import measure, report
    from .schemes import SCHEMES

    wanted = _known("scheme", names or SCHEMES, SCHEMES)
    counts = [*map(_positive, consumers.split(","))]
    if backlog is None:
        backlog = int((seconds + warm_up) * EXPECTED_RATE * min(batch, 10))
    figures: list[measure.Figures] = []
    for count in counts:
        for name in wanted:
            terminal.note(f"{name}, {terminal.count(count, 'consumer')} …")
            plan = measure.Plan(name, count, producers, seconds, warm_up, backlog, batch, faults)
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
        Option(metavar="GROUP,…", help="Only enqueue, dequeue, few, batches, backlog or faults."),
    ] = None,
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
    repeat: Annotated[
        int, Option(metavar="N", min=1, help="Runs of each kind, of which the median counts.")
    ] = 3,
    consumers: Annotated[int, Option(metavar="N", min=1, max=256, help="Consumer processes.")] = 16,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure every figure that fdbqueue promises.

    The exit code is 1 if one does not hold. It takes some minutes, and holds a million messages for
    a while.

    \b
    Examples:
      tools/bench bars
      tools/bench bars --only enqueue,faults --seconds 2 --repeat 1
    """
    from . import bars as bars_
    from . import report
    from .measure import Plan

    groups = None if only is None else _known("group", only.split(","), bars_.GROUPS)
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
        raise Exit(1)


@app.command()
def beside(
    commit: Annotated[str, Argument(metavar="COMMIT", help="What to compare with.")],
    rows: Annotated[
        list[str] | None,
        Argument(metavar="ROW…", help="Only rows whose names begin so; by default all."),
    ] = None,
    rounds: Annotated[int, Option(metavar="N", min=1, help="Of which the median counts.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Run the benchmarks of a commit and of this tree in turn, and print the ratio of each rate.

    The commit is checked out into a temporary directory, and installed there into an environment of
    its own, which takes minutes. Each tree is measured by its own program. Above 1, this tree is
    faster.

    \b
    Examples:
      tools/bench beside HEAD~20
      tools/bench beside HEAD~20 producers "blocks: enqueue"
    """
    from . import beside as beside_

    with beside_.checked_out(commit) as tree:
        earlier, this = beside_.program(tree), beside_.program(beside_.ROOT)
        found = beside_.compare(earlier, this, rows or [], rounds, terminal.note)
    if as_json:
        terminal.print_json(found)
    elif found:
        ratios = [(row, f"{ratio:.2f}") for row, ratio in found.items()]
        terminal.print_table(["row", "ratio"], ratios, ["ratio"])
    else:
        raise terminal.CommandError("there is no row that both have", exit_code=1)


@app.command()
def blocks(
    rounds: Annotated[int, Option(metavar="N", min=1, help="Calls of each kind.")] = 30,
    messages: Annotated[
        int,
        Option(metavar="N", min=1_000, help="Messages in the queue whose storage is measured."),
    ] = 1_000_000,
    seconds: Annotated[
        float, durations.option("How long workers handle batches; 0 for none.", 0)
    ] = 3.0,
    baseline: Annotated[
        str,
        Option(metavar="COMMIT", help="Also receive and acknowledge as this commit does."),
    ] = "",
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure messages of 100 bytes that are enqueued together beside blind sets of the same bytes.

    Workers of four processes handle batches of 100, beside blind sets of four processes. The exit
    code is 1 if a promised figure does not hold.

    \b
    Examples:
      tools/bench blocks
      tools/bench blocks --rounds 10 --messages 100000
      tools/bench blocks --baseline 9d3a96a0482a
    """
    from . import batch_handlers, report
    from . import blocks as blocks_

    stored = blocks_.storage(messages)  # In a new store: a file does not shrink.
    costs = blocks_.run(rounds, baseline)
    bars_ = blocks_.judge(costs, stored)
    rates = batch_handlers.run(seconds, int(seconds * HANDLED_RATE)) if seconds else {}
    if rates:
        bars_.append(batch_handlers.judge(rates))
    found = {
        "costs": [one.to_json() for one in costs],
        "rates of four processes": rates,
        "bars": [one.to_json() for one in bars_],
    }
    if as_json:
        terminal.print_json(found)
    else:
        terminal.print_table(report.COST, report.costs(costs), report.COST[1:])
        for name, rate in rates.items():
            print(f"{name}, {batch_handlers.PROCESSES} processes: {rate:,.0f} messages/s")
        print()
        terminal.print_table(report.BAR, report.verdicts(bars_), report.BAR[2:])
    _write(json_file, found)
    if not all(one.holds for one in bars_):
        raise Exit(1)


@app.command()
def credit(
    seconds: Annotated[float, durations.option("Duration of each run.", 0.1)] = 5.0,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure how often a worker whose credit is used up looks at a queue that messages come to.

    The exit code is 1 if a promised figure does not hold.

    \b
    Examples:
      tools/bench credit
      tools/bench credit --seconds 20 --json
    """
    from . import credit as credit_
    from . import report

    bars_ = credit_.judge(credit_.run(seconds))
    found = {"bars": [one.to_json() for one in bars_]}
    if as_json:
        terminal.print_json(found)
    else:
        terminal.print_table(report.BAR, report.verdicts(bars_), report.BAR[2:])
    _write(json_file, found)
    if not all(one.holds for one in bars_):
        raise Exit(1)


@app.command()
def wakeups(
    messages: Annotated[
        int, Option(metavar="N", min=8, help="Messages that come one by one.")
    ] = 400,
    subscriptions: Annotated[
        int, Option(metavar="N", min=1, help="Subscriptions with selectors.")
    ] = 1_000,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure whom an enqueue wakes, how evenly equal consumers are served, and what subscriptions
    with selectors cost an enqueue.

    The exit code is 1 if a promised figure does not hold.

    \b
    Examples:
      tools/bench wakeups
      tools/bench wakeups --subscriptions 10000 --json
    """
    from . import report
    from . import wakeups as wakeups_

    bars_ = wakeups_.run(messages, subscriptions)
    found = {"bars": [one.to_json() for one in bars_]}
    if as_json:
        terminal.print_json(found)
    else:
        terminal.print_table(report.BAR, report.verdicts(bars_), report.BAR[2:])
    _write(json_file, found)
    if not all(one.holds for one in bars_):
        raise Exit(1)


@app.command()
def producers(
    threads: Annotated[
        str, Option(metavar="N,…", help="Numbers of threads that add messages.")
    ] = "1,8,64",
    seconds: Seconds = 1.0,
    rounds: Annotated[
        int, Option(metavar="N", min=1, help="Rounds, of which the median counts.")
    ] = 3,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure threads that send single messages, beside single and batched enqueues.

    \b
    Examples:
      tools/bench producers
      tools/bench producers --threads 1,16 --seconds 3
    """
    from . import producers as producers_
    from . import report

    counts = [_positive(text) for text in threads.split(",")]
    found = producers_.run(counts, seconds, rounds)
    if as_json:
        terminal.print_json([one.to_json() for one in found])
    else:
        terminal.print_table(report.ADDING, report.adding(found), report.ADDING[1:])
    _write(json_file, {"costs": [one.to_json() for one in found]})


@app.command()
def web(as_json: AsJson = False) -> None:
    """Check the bars of the web pages, with 1,000 queues, 10,000 limits and ten viewers.

    \b
    Examples:
      tools/bench web
      tools/bench web --json
    """
    from . import web as web_

    found = []
    for each in web_.run():
        found.append(each)
        if not as_json:
            verdict = "PASS" if each.passed else "FAIL"
            print(f"{verdict}  {each.name}: {each.figure:,.1f} {each.unit}, bar {each.bar:g}")
            terminal.flush()
    if as_json:
        terminal.print_json([each.to_json() for each in found])
    if not all(each.passed for each in found):
        raise Exit(1)


@app.command("aio")
def tasks(
    seconds: Seconds = 1.0,
    rounds: Annotated[
        int, Option(metavar="N", min=1, help="Rounds, of which the median counts.")
    ] = 3,
    waiting: Annotated[
        int, Option(metavar="N", min=1, help="Tasks that wait for a message.")
    ] = 1000,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure tasks of asyncio that enqueue beside a thread, and many that wait for a message.

    The exit code is 1 if a promised figure does not hold.

    \b
    Examples:
      tools/bench aio
      tools/bench aio --waiting 100 --seconds 3
    """
    from . import report
    from . import tasks as tasks_

    rates, waits = tasks_.run(seconds, rounds, waiting)
    bars_ = tasks_.judge(rates, waits)
    found = {"rates": rates, "waiting": waits, "bars": [one.to_json() for one in bars_]}
    if as_json:
        terminal.print_json(found)
    else:
        for way, rate in rates.items():
            print(f"{way}: {rate:,.0f} messages/s")
        terminal.print_table(report.BAR, report.verdicts(bars_), report.BAR[2:])
    _write(json_file, found)
    if not all(one.holds for one in bars_):
        raise Exit(1)


@app.command()
def fairness(
    only: Annotated[
        str | None,
        Option(
            metavar="GROUP,…",
            help="Only costs, waits, drain or limits; with --keep also fill, before a drain.",
        ),
    ] = None,
    backlog: Annotated[
        int, Option(metavar="N", min=1_000, help="Messages of the key that is noisy.")
    ] = 20_000,
    quiet: Annotated[
        int, Option(metavar="N", min=100, help="Keys with one message each beside it.")
    ] = 20_000,
    drained: Annotated[
        int | None,
        Option(metavar="N", min=100, help="How many of these come in the drain; by default all."),
    ] = None,
    calls: Annotated[int, Option(metavar="N", min=10, help="Messages of each measurement.")] = 300,
    rounds: Annotated[
        int, Option(metavar="N", min=1, help="Rounds, of which the median counts.")
    ] = 9,
    workers: Annotated[
        int, Option(metavar="N", min=1, max=256, help="Processes that handle messages.")
    ] = 16,
    keys: Annotated[
        int, Option(metavar="N", min=1, help="Keys of these, with ten messages at once.")
    ] = 1_000,
    kills: Annotated[bool, Option(help="Kill workers meanwhile.")] = False,
    keep: Annotated[
        str | None,
        Option(metavar="NAME", help="Keep the messages of the drain until it is done."),
    ] = None,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure what keys cost, and how long quiet keys wait beside one with a backlog.

    The exit code is 1 if a promised figure does not hold. With --keep, a run that is stopped while
    it fills the queues goes on the next time, on the store of FDBQUEUE_STORE.

    \b
    Examples:
      tools/bench fairness
      tools/bench fairness --only limits --workers 16 --keys 1000 --kills
      tools/bench fairness --only drain --quiet 1000000 --backlog 1000000 --keep full
    """
    from benchmarks import processes

    from . import fairness as fairness_
    from . import key_limits, report

    known = [*fairness_.GROUPS, *([fairness_.FILL] if keep else [])]
    groups = _known("group", only.split(","), known) if only else [*fairness_.GROUPS]
    limits = key_limits.Plan(workers, keys, kills)
    kept = processes.kept(keep) if keep else None
    plan = fairness_.Plan(backlog, quiet, min(drained or quiet, quiet), calls, rounds, limits, kept)
    figures, bars_ = fairness_.run(plan, groups, terminal.note)
    found = {
        "figures": [one.to_json() for one in figures],
        "bars": [one.to_json() for one in bars_],
    }
    if as_json:
        terminal.print_json(found)
    else:
        for one in figures:
            print(f"{one.name:<40}{one.figure:>12,.2f}")
        if bars_:
            print()
            terminal.print_table(report.BAR, report.verdicts(bars_), report.BAR[2:])
    _write(json_file, found)
    if not all(one.holds for one in bars_):
        raise Exit(1)


@app.command()
def spark(
    only: Annotated[
        str | None, Option(metavar="GROUP,…", help="Only these of browse, write, consume.")
    ] = None,
    rows: Annotated[int, Option(metavar="N", min=1_000, help="Messages in each queue.")] = 300_000,
    size: Annotated[
        int, Option("--bytes", metavar="N", min=0, max=50_000, help="Size of each payload.")
    ] = 100,
    repeat: Annotated[
        int, Option(metavar="N", min=1, help="Runs of each kind, of which the median counts.")
    ] = 3,
    cores: Annotated[int, Option(metavar="N", min=1, help="Cores that Spark may use.")] = 2,
    json_file: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure the Spark data source against one that does nothing.

    Needs fdbqueue[spark] and Java. The exit code is 1 if a promised figure does not hold.

    \b
    Examples:
      tools/bench spark
      tools/bench spark --only browse --rows 1000000 --bytes 500
    """
    from . import report
    from . import spark as pipeline

    groups = None if only is None else _known("group", only.split(","), pipeline.GROUPS)
    found = []
    if not as_json:
        print(f"{'':<50}{'rows/s':>12}{'CPU µs/row':>14}")
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
        raise Exit(1)


def _write(path: Path | None, found: dict[str, Any]) -> None:
    from fdbqueue.store.binding import DEFAULT

    if path is not None:
        path.write_text(
            json.dumps({"store": DEFAULT.engine.name.lower(), **found}, indent=1) + "\n"
        )
