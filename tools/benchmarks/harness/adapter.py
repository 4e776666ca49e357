"""The process: producer, worker and sampler, until SIGTERM."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, TextIO

import fdbqueue
from fdbqueue import Message, Queue, Worker, fdb
from fdbqueue.errors import QueueError
from fdbqueue.schema.catalogue import FORMAT_VERSION

from .latencies import WINDOW, Latencies
from .settings import SCENARIO, Settings

MANIFEST: dict[str, Any] = json.loads(Path(__file__).with_name("adapter.json").read_text())
POLL = 0.05
STOP_SECONDS = 3.0
_STAMP = 20
"""Digits at the beginning of a payload: nanoseconds of the wall clock when it was enqueued."""


class Adapter:
    """One process of a run.

    tokens: lines such as ``ENQUEUE 25``, of which each says how many messages to enqueue in one
    call, where the harness paces.
    """

    def __init__(self, settings: Settings, tokens: TextIO) -> None:
        self.settings = settings
        self._tokens = tokens
        self._stopping = Event()
        self._latencies = Latencies()
        self._counting = Lock()
        self._enqueued = self._completed = 0
        self._db = fdbqueue.open()
        self._queue: Queue[bytes] = Queue.open(self._db, SCENARIO)

    def run(self) -> None:
        """Work until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        worker = Worker(self._db, self.settings.workers, shutdown=STOP_SECONDS)
        worker.add(self._queue, self._handle)
        self._emit(self._described())
        with worker:
            for work in (self._produce, self._sample):
                Thread(target=work, daemon=True).start()
            while not self._stopping.wait(POLL):
                pass

    # -- work ------------------------------------------------------------------------------------

    def _handle(self, message: Message) -> None:
        waited = time.time_ns() - int(message.payload[:_STAMP])
        self._latencies.add(waited / 1e6, time.monotonic())
        if self.settings.work:
            time.sleep(self.settings.work)
        with self._counting:
            self._completed += 1

    def _produce(self) -> None:
        for count in self._wanted():
            for first in range(0, count, self.settings.batch):
                self._enqueue(min(self.settings.batch, count - first))
            if self._stopping.is_set():
                return

    def _wanted(self) -> Iterator[int]:
        if self.settings.harness_paces:
            return self._told()
        return self._missing() if self.settings.mode == "depth-target" else self._credited()

    def _told(self) -> Iterator[int]:
        for line in self._tokens:
            word, _, count = line.strip().partition(" ")
            if word == "ENQUEUE" and count.isdecimal():
                yield int(count)
            elif line.strip():
                _note(f"not understood: {line.strip()!r}")

    def _missing(self) -> Iterator[int]:
        while not self._stopping.wait(POLL):
            yield max(0, self.settings.depth - self._depth())

    def _credited(self) -> Iterator[int]:
        """What the rate and the time that has really passed add up to."""
        credit, last = 0.0, time.monotonic()
        while not self._stopping.wait(self.settings.tick):
            now = time.monotonic()
            credit += self.settings.rate_now() * (now - last)
            last = now
            yield int(credit)
            credit -= int(credit)

    def _enqueue(self, count: int) -> None:
        stamp = b"%0*d" % (_STAMP, time.time_ns())
        payload = stamp.ljust(self.settings.size, b".")
        try:
            self._queue.enqueue_many(self._db, [payload] * count)
        except (QueueError, fdb.FDBError) as error:
            _note(f"{count} messages were not enqueued: {error}")
            return
        with self._counting:
            self._enqueued += count

    def _depth(self) -> int:
        return self._queue.depth(self._db).ready

    # -- samples ---------------------------------------------------------------------------------

    def _sample(self) -> None:
        every = self.settings.sample
        before, last = (0, 0), time.monotonic()
        # In step with the clock of the wall, as other systems are.
        while not self._stopping.wait(every - time.time() % every):
            now = time.monotonic()
            with self._counting:
                counts = self._enqueued, self._completed
            rates = [(b - a) / (now - last) for a, b in zip(before, counts, strict=True)]
            before, last = counts, now
            try:
                self._tell(rates, now)
            except (QueueError, fdb.FDBError) as error:
                _note(f"no sample: {error}")

    def _tell(self, rates: list[float], now: float) -> None:
        waits = self._latencies.percentiles((0.5, 0.95, 0.99), now)
        samples: list[tuple[str, float, float]] = [
            (f"claim_p{share}_ms", each, WINDOW)
            for share, each in zip((50, 95, 99), waits, strict=True)
        ]
        for name, rate in zip(("enqueue_rate", "completion_rate"), rates, strict=True):
            samples.append((name, rate, self.settings.sample))
        if self.settings.instance == 0:
            rate = self.settings.rate_now() if self.settings.mode == "fixed" else 0.0
            samples += [("queue_depth", self._depth(), 0), ("producer_target_rate", rate, 0)]
        moment = _now()
        for metric, value, window in samples:
            self._emit(
                {
                    "t": moment,
                    "system": MANIFEST["system"],
                    "kind": "adapter",
                    "subject_kind": "adapter",
                    "subject": "",
                    "metric": metric,
                    "value": value,
                    "window_s": window,
                }
            )

    def _described(self) -> dict[str, Any]:
        return {
            "kind": "descriptor",
            "system": MANIFEST["system"],
            "event_tables": MANIFEST["event_tables"],
            "extensions": MANIFEST["extensions"],
            "version": fdbqueue.__version__,
            "schema_version": str(FORMAT_VERSION),
            "db_name": MANIFEST["db_name"],
            "started_at": _now(),
        }

    def _emit(self, record: dict[str, Any]) -> None:
        line = json.dumps({**record, "instance_id": self.settings.instance})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _note(text: str) -> None:
    print(f"fdbqueue: {text}", file=sys.stderr, flush=True)
