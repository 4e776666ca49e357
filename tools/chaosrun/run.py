"""A chaos run: start, inject faults, repair, drain, check, report."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from workload import checker, final
from workload.clients import Interrupted
from workload.history import Operation, Recorder, read
from workload.place import MAX_SKEW_MS, Place

from fdbqueue import fdb
from fdbqueue.store import binding
from fdbqueue.store.binding import Engine
from fdbqueue.store.clocks import Clock

from .job import Job, Later
from .nemesis import Nemesis, Victim

INTERRUPTS = 0.1
"""Seconds between the signals that raise in one thread of each client, on the embedded engine."""
CREW = ("client", "client", "client", "worker", "tasks", "client")
"""What the processes do; more of them begin anew."""
SERVER = Path(__file__).parent.parent / "fdbserver"
CHANGES = re.compile(rb'"name":"(?:enqueue|ack|effect|release|fail|reject|cancel)"')
ACTS = re.compile(rb'"name":"(?!faults|stopped|crashed)')
STOP_SECONDS = 300


def main() -> int:
    """Run it; 0 if nothing is violated."""
    options = _options()
    if options.check:
        return _conclude(read(sorted(Path(options.check).glob("*.jsonl"))), {})
    directory = Path(options.history or tempfile.mkdtemp(prefix="fdbqueue-chaos-"))
    if any(directory.glob("*.jsonl")):
        print(f"{directory} has the histories of another run: name an empty directory")
        return 2
    directory.mkdir(parents=True, exist_ok=True)
    run = Run(options, directory)
    print(f"seed {options.seed}; histories in {directory}", flush=True)
    code = run.run()
    if code == 0 and not options.history:
        shutil.rmtree(directory)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--seconds", type=float, default=60, help="how long to inject faults")
    parser.add_argument("--operations", type=int, help="stop after this many that change messages")
    parser.add_argument("--processes", type=int, default=9)
    parser.add_argument("--faults", type=float, default=0.01, help="share of store calls that fail")
    parser.add_argument("--every", type=float, default=0.8, help="seconds between two disturbances")
    parser.add_argument("--strike-server", action="store_true", help="also disturb tools/fdbserver")
    parser.add_argument("--history", help="keep the histories in this directory")
    parser.add_argument("--check", help="only check the histories in this directory")
    return parser.parse_args()


class Run:
    """One run."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.random = random.Random(f"run:{options.seed}")
        self.root = fdb.tuple.pack((f"fdbqueue-chaos-{uuid.uuid4().hex}",)).hex()
        self.embedded = binding.DEFAULT.engine is Engine.EMBEDDED
        configured = os.environ.get("FDBQUEUE_STORE")
        self.store = configured or str(directory / "store.fdbq")
        if not self.embedded:
            self.store = binding.DEFAULT.path or binding.default_cluster_file()
        self.stop = directory / "stop"
        self.recorder = Recorder(directory / "nemesis.jsonl")
        self.crew = [CREW[n % len(CREW)] for n in range(options.processes)]
        self.incarnations = 0

    def run(self) -> int:
        """From the beginning to the verdict."""
        place = self._place()
        place.create()
        victims = [Victim(role, partial(self.start, role)) for role in self.crew]
        nemesis = Nemesis(
            self.options.seed,
            place,
            self.recorder,
            victims,
            self._server if self.options.strike_server else None,
            self.embedded,
            self.options.every,
            self._acted,
        )
        began = time.monotonic()
        died: list[str] = []
        try:
            while time.monotonic() - began < self.options.seconds and not self._enough():
                nemesis.turn()
                died += [
                    f"{victim.role}: {victim.process.returncode}"
                    for victim in victims
                    if victim.process.poll() is not None
                ]
                if died:
                    break
            seconds = time.monotonic() - began
            nemesis.heal()
            final.look_at_the_dead(place, self.recorder, nemesis.killed)
            self.stop.touch()
            died += [failed for victim in victims if (failed := self._end(victim))]
        finally:
            for victim in victims:
                victim.kill()
        for failure in died:
            self.recorder.note("run", "died", what=failure)
        told: dict[str, Any] = {
            "seed": self.options.seed,
            "seconds": round(seconds, 1),
            **nemesis.counts,
        }
        later = self._place(Later(600_000))
        final.drain(later, self.recorder)
        final.describe(later, self.recorder)
        place.db.clear_range_startswith(place.space.key())
        return _conclude(read(sorted(self._histories())), told)

    def _place(self, clock: Clock | None = None) -> Place:
        return Place(binding.open(self.store), self.root, self.options.seed, clock)

    def start(self, role: str) -> tuple[str, subprocess.Popen[bytes]]:
        """Start a process, under a name that none had before."""
        self.incarnations += 1
        name = f"{role}-{self.incarnations}"
        job = Job(
            role=role,
            name=name,
            seed=self.options.seed,
            store=self.store,
            root=self.root,
            history=str(self.directory / f"{name}.jsonl"),
            stop=str(self.stop),
            threads=2 if role == "client" else 1,
            skew_ms=self.random.randint(-MAX_SKEW_MS, MAX_SKEW_MS),
            buggify=not self.embedded and self.options.faults > 0,
            interrupts=INTERRUPTS if self.embedded and role == "client" else 0.0,
        )
        environment = {**os.environ, "FDBQUEUE_STORE": self.store}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        if self.embedded and self.options.faults:
            seed, rate = self.random.randrange(10**9), self.options.faults
            kinds = ("conflict", "unknown_committed", "unknown_lost", "delay_before", "delay_after")
            rates = [f"{kind}={rate}" for kind in kinds]
            # A transaction reads several times and commits once.
            rates += [f"{kind}={rate / 5}" for kind in ("too_old", "future_version", "behind")]
            environment["FDBQUEUE_FAULTS"] = f"{seed}:{','.join(rates)}"
        with open(self.directory / f"{name}.err", "wb") as errors:
            return name, subprocess.Popen(
                [sys.executable, "-m", "chaosrun.child", job.to_text()],
                env=environment,
                stderr=errors,
                start_new_session=True,
            )

    def _acted(self, name: str) -> bool:
        return any(ACTS.search(path.read_bytes()) for path in self._histories(f"{name}.*"))

    def _histories(self, of: str = "*") -> Iterator[Path]:
        return self.directory.glob(f"{of}.jsonl")

    def _enough(self) -> bool:
        if self.options.operations is None:
            return False
        changes = sum(len(CHANGES.findall(path.read_bytes())) for path in self._histories())
        # A run is not over before every role took part in it.
        return changes >= self.options.operations and all(
            self._acted(f"{role}-*") for role in self.crew
        )

    def _end(self, victim: Victim) -> str | None:
        try:
            code = victim.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            victim.process.send_signal(signal.SIGUSR1)  # it writes down where its threads are
            time.sleep(0.5)
            written = (self.directory / f"{victim.name}.err").read_text(errors="replace")
            print(f"{victim.name} does not stop; its last words:\n{written[-8_000:]}")
            return f"{victim.role}: does not stop"
        return f"{victim.role}: {code}" if code else None

    def _server(self, what: str) -> None:
        subprocess.run([SERVER, what], check=True, capture_output=True)


def _conclude(history: list[Operation], told: dict[str, Any]) -> int:
    told.update(figures(history))
    print(json.dumps(told))
    violations = checker.check(history)
    shown: set[str] = set()
    for violation in violations:
        if violation.kind not in shown:
            shown.add(violation.kind)
            print(f"\nVIOLATION {violation}")
    kinds = Counter(violation.kind for violation in violations)
    for kind, count in kinds.items():
        print(f"{count:,} violations: {kind}")
    if not violations:
        print("0 violations")
    return 1 if violations else 0


def figures(history: list[Operation]) -> dict[str, Any]:
    """What happened, in numbers."""
    acts = [one for one in history if one.who not in ("store", "run", "nemesis")]
    acts = [one for one in acts if one.name not in ("faults", "stopped")]
    injected: Counter[str] = Counter()
    retried: Counter[str] = Counter()
    last = {one.who: one for one in history if one.name == "faults"}
    for one in last.values():
        injected.update(one.what["injected"])
        retried.update(one.what["retried"])
    enqueued = sum(len(one.what["messages"]) for one in acts if one.name == "enqueue")
    return {
        "operations": len(acts),
        "messages": enqueued,
        "interrupted": sum((one.error or "").startswith(Interrupted.__name__) for one in acts),
        "without room": sum((one.error or "").startswith("StoreFull") for one in acts),
        "faults": sum(injected.values()),
        "injected": dict(injected),
        "retried": dict(retried),
    }
