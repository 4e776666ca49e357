"""The nemesis: what befalls the processes, the server and the queues, at random from a seed."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from workload import final
from workload.history import Recorder
from workload.place import LEASE, TAKEN, Place

from fdbqueue import fdb
from fdbqueue.errors import QueueError

QUOTA_BYTES = 1 << 20
"""Beyond which no file grows while the disk is full: the log of a store in use soon does."""
CAN_FILL = hasattr(resource, "prlimit")


@dataclass
class Victim:
    """A process, and how to start it again, under another name."""

    role: str
    start: Callable[[], tuple[str, subprocess.Popen[bytes]]]
    timer: threading.Timer | None = None

    def __post_init__(self) -> None:
        self.name, self.process = self.start()

    def kill(self) -> None:
        """Kill it, and wait until it is no more."""
        self.process.kill()
        self.process.wait()
        self.resume()

    def pause(self, seconds: float) -> None:
        """Stop it, and let it go on after a while, whatever else is held up by it meanwhile: on
        the embedded engine it may hold the lock of the store."""
        process = self.process
        process.send_signal(signal.SIGSTOP)
        self.timer = threading.Timer(seconds, process.send_signal, (signal.SIGCONT,))
        self.timer.start()

    def resume(self) -> None:
        """Let it go on."""
        if self.timer is not None:
            self.timer.cancel()
            self.process.send_signal(signal.SIGCONT)
            self.timer = None

    def limit(self, size: int) -> None:
        """Let it write no file beyond a size, as a disk does that is full."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self.timer is not None and self.timer.is_alive()


@dataclass
class Nemesis:
    """Picks a misfortune every now and then.

    server: called with what to do to the server (kill, start, pause, resume), where there is one.
    disk: whether the processes write the store's files themselves, so that the disk can be full.
    acted: whether a process, by its name, has begun to act; none is killed before.
    """

    seed: int
    place: Place
    recorder: Recorder
    victims: list[Victim]
    server: Callable[[str], None] | None = None
    disk: bool = False
    every: float = 0.8
    acted: Callable[[str], bool] = lambda name: True
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(f"nemesis:{self.seed}")
        self.paused: dict[str, int] = {}
        self.killed: dict[str, float] = {}
        """When each process was killed, by its name and ``time.monotonic``."""
        self.full = False

    def turn(self) -> None:
        """One misfortune, and the end of those whose time has come."""
        self._mend()
        deeds: list[tuple[Callable[[], None], float]] = [
            (self._kill, 4),
            (self._pause, 2),
            (self._options, 2),
            (self._pause_queue, 1),
        ]
        if self.server is not None:
            deeds.append((self._strike_server, 0.4))
        if self.disk and CAN_FILL:
            deeds.append((self._fill_disk, 0.5))
        deed = self.random.choices([d for d, _ in deeds], [weight for _, weight in deeds])[0]
        try:
            deed()
            self.recorder.note("nemesis", "audit", found=final.beyond_limits(self.place))
        except (QueueError, fdb.FDBError) as error:
            self.counts[f"failed: {error}"] += 1
        time.sleep(self.random.expovariate(1 / self.every))

    def heal(self) -> None:
        """End every misfortune."""
        for victim in self.victims:
            victim.resume()
        self._mend()
        for name in TAKEN:
            self.place.queues[name].set_options(self.place.db, lease=LEASE, backoff=None)

    # -- misfortunes -------------------------------------------------------------------------

    def _kill(self) -> None:
        acting = [victim for victim in self.victims if self.acted(victim.name)]
        if not acting:
            return
        victim = self.random.choice(acting)
        victim.kill()
        self.recorder.note("nemesis", "killed", process=victim.name)
        self.killed[victim.name] = time.monotonic()
        victim.name, victim.process = victim.start()
        self.counts["kills"] += 1

    def _pause(self) -> None:
        victim = self.random.choice(self.victims)
        if not victim.paused:
            victim.pause(LEASE * self.random.uniform(0.2, 2.0))
            self.counts["pauses"] += 1

    def _options(self) -> None:
        name = self.random.choice(TAKEN)
        changes: list[dict[str, Any]] = [
            {"lease": self.random.choice([1.0, LEASE, 4.0])},
            {"dedup_window": self.random.choice([60.0, 300.0])},
        ]
        self.place.queues[name].set_options(self.place.db, **self.random.choice(changes))
        self.counts["changes of options"] += 1

    def _pause_queue(self) -> None:
        name = self.random.choice(TAKEN)
        if name not in self.paused:
            # Noted before and ended after: while it may be paused, it may look empty.
            n = self.recorder.begin("nemesis", "paused", name)
            self.place.queues[name].admin.pause(self.place.db)
            self.paused[name] = n
            self.counts["pauses of queues"] += 1

    def _strike_server(self) -> None:
        assert self.server is not None
        if self.random.random() < 0.5:
            self.server("kill")
            time.sleep(self.random.random() * 2)
            self.server("start")
            self.counts["kills of the server"] += 1
        else:
            self.server("pause")
            time.sleep(self.random.uniform(0.5, 3))
            self.server("resume")
            self.counts["pauses of the server"] += 1

    def _fill_disk(self) -> None:
        for victim in self.victims:
            victim.limit(QUOTA_BYTES)
        self.full = True
        self.counts["full disks"] += 1

    # -- healing -----------------------------------------------------------------------------

    def _mend(self) -> None:
        if self.full:
            for victim in self.victims:
                victim.limit(resource.RLIM_INFINITY)
            self.full = False
        for name in list(self.paused):
            self.place.queues[name].admin.resume(self.place.db)
            self.recorder.end("nemesis", self.paused.pop(name))
