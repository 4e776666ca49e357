"""A process of a run: acts in its threads until it is told to stop."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from workload.clients import EXPECTED, Client
from workload.features import TABLE
from workload.history import Recorder
from workload.place import Place

from fdbqueue import fdb
from fdbqueue.errors import StoreError, TransactionTooSlow
from fdbqueue.schema import once
from fdbqueue.store import binding, embedded
from fdbqueue.values.selector import grammar

from .job import Job, Skewed

retries: dict[int, int] = {}


def main() -> int:
    """Act; 0 if every thread came to its end."""
    job = Job.parse(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)
    if job.buggify:
        fdb.options.set_client_buggify_enable()
        fdb.options.set_client_buggify_section_activated_probability(50)
        fdb.options.set_client_buggify_section_fired_probability(5)
    once.on_retry(_count)
    recorder = Recorder(job.history)
    place = _open(job)
    failures: list[BaseException] = []
    clients = [
        Client(place, recorder, f"{job.name}.{thread}", job.seed) for thread in range(job.threads)
    ]
    for client in clients:
        # Others stop in the middle of their commits, and the machine is slow.
        client.expected = (*EXPECTED, TransactionTooSlow)
    runs = [_guarded(client, _life(job, client), failures) for client in clients]
    threads = [threading.Thread(target=run, daemon=True) for run in runs[1:]]
    ended = threading.Event()
    reporter = threading.Thread(target=_report_until, args=(ended, recorder, job), daemon=True)
    stopper = threading.Thread(target=_stop_in_time, args=(clients, job), daemon=True)
    for thread in (*threads, reporter, stopper):
        thread.start()
    if job.interrupts:
        # What is imported at its first use is imported now: a module that is interrupted while it
        # is imported stays half.
        grammar.parse("region = 'eu'")
        signal.signal(signal.SIGALRM, partial(_alarm, clients[0], job))
        signal.setitimer(signal.ITIMER_REAL, job.interrupts)
    # Handlers of signals run in this thread.
    runs[0]()
    signal.setitimer(signal.ITIMER_REAL, 0)
    for thread in threads:
        thread.join()
    ended.set()
    reporter.join()
    recorder.note(job.name, "stopped")
    return 1 if failures else 0


def _life(job: Job, client: Client) -> Callable[[], None]:
    """What a thread does, by the role of its process."""
    if job.role == "client":
        bodies, weights = [body for _, body in TABLE.values()], [each for each, _ in TABLE.values()]
        return partial(client.live, bodies, weights, 0.0)
    return {"worker": client.work, "tasks": client.work_in_tasks}[job.role]


def _alarm(client: Client, job: Job, *signal_: object) -> None:
    pause = client.random.expovariate(1 / job.interrupts)
    signal.setitimer(signal.ITIMER_REAL, max(pause, 0.001))
    client.interrupt()


def _stop_in_time(clients: Sequence[Client], job: Job) -> None:
    while not os.path.exists(job.stop):
        time.sleep(0.1)
    for client in clients:
        client.stops = True


def _report_until(ended: threading.Event, recorder: Recorder, job: Job) -> None:
    met: dict[str, Any] = {}
    while not ended.wait(0.25):
        met = _report(recorder, job, met)
    _report(recorder, job, met)


def _open(job: Job) -> Place:
    """The place of the run, as soon as the disk has room for opening it."""
    while True:
        try:
            return Place(binding.open(job.store), job.root, job.seed, Skewed(job.skew_ms))
        except StoreError:
            time.sleep(0.1)


def _guarded(
    client: Client, life: Callable[[], None], failures: list[BaseException]
) -> Callable[[], None]:
    def run() -> None:
        try:
            life()
        except BaseException as error:
            failures.append(error)
            said = f"{type(error).__name__}: {error}, at {client.doing}"
            client.recorder.note(client.who, "crashed", error=said)
            raise

    return run


def _count(code: int) -> None:
    retries[code] = retries.get(code, 0) + 1


def _report(recorder: Recorder, job: Job, last: dict[str, Any]) -> dict[str, Any]:
    """Note what faults this process has met, if that has changed; the last line counts."""
    active = embedded.faults.active
    met = {
        "injected": dict(active.counts) if active else {},
        "retried": {str(code): count for code, count in dict(retries).items()},
    }
    if met != last:
        recorder.note(job.name, "faults", "", **met)
    return met


if __name__ == "__main__":
    sys.exit(main())
