"""A process of a run: acts in its threads until it is told to stop."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fdbqueue import fdb
from fdbqueue.errors import StoreError
from fdbqueue.schema import once
from fdbqueue.store import binding, embedded
from fdbqueue.values.selector import grammar

from .actors import ROLES, Actor
from .history import Recorder
from .place import Job, Place, Skewed

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
    actors = [ROLES[job.role](job, place, recorder, thread) for thread in range(job.threads)]
    runs = [_guarded(actor, failures) for actor in actors]
    threads = [threading.Thread(target=run, daemon=True) for run in runs[1:]]
    ended = threading.Event()
    reporter = threading.Thread(target=_report_until, args=(ended, recorder, job), daemon=True)
    for thread in (*threads, reporter):
        thread.start()
    if job.interrupts:
        # What is imported at its first use is imported now: a module that is interrupted while it
        # is imported stays half.
        grammar.parse("region = 'eu'")
        signal.signal(signal.SIGALRM, partial(_alarm, actors[0]))
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


def _alarm(actor: Actor, *signal_: object) -> None:
    pause = actor.random.expovariate(1 / actor.job.interrupts)
    signal.setitimer(signal.ITIMER_REAL, max(pause, 0.001))
    actor.interrupt()


def _report_until(ended: threading.Event, recorder: Recorder, job: Job) -> None:
    met: dict[str, Any] = {}
    while not ended.wait(0.25):
        met = _report(recorder, job, met)
    _report(recorder, job, met)


def _open(job: Job) -> Place:
    """The place of the run, as soon as the disk has room for opening it."""
    while True:
        try:
            return Place(binding.open(job.store), job.root, Skewed(job.skew_ms))
        except StoreError:
            time.sleep(0.1)


def _guarded(actor: Actor, failures: list[BaseException]) -> Callable[[], None]:
    def run() -> None:
        try:
            actor.run()
        except BaseException as error:
            failures.append(error)
            actor.recorder.note(actor.who, "crashed", error=f"{type(error).__name__}: {error}")
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
