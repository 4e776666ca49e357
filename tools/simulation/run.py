"""One run: from a seed to a history, and what is wrong with it."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import random
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from workload import final
from workload.checker import check
from workload.features import AREAS, TABLE
from workload.history import Operation, assembled
from workload.operations import pause_and_resume
from workload.place import ABOUT, Place

from fdbqueue.errors import TransactionTooLarge
from fdbqueue.schema.keys import AgendaKeys
from fdbqueue.store import world
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.transactions import atomic

from . import invariants, knobs, waiting
from .driver import SECOND, Process, Scheduler, Strand
from .processes import Home, Memory, SimulatedClient
from .seam import Rates, Seam

ROOT = b"simulated".hex()
BEGIN_NS = 1_000 * SECOND
LIVE_SECONDS = 120.0
"""Within so long after the faults every call returns."""
REST_SECONDS = 90.0
"""After so long every lease and every delay of a run is over."""
DRAIN_SECONDS = 900.0
SETTLE_SECONDS = 30.0
"""After so long who waits for messages asks no more often."""
MOST = {
    "read": 0.003,
    "death": 0.002,
    "pause": 0.002,
    "watch_late": 0.3,
    "watch_spurious": 0.1,
    "stop": 0.0005,
    "full": 0.005,
    "slow": 0.6,
}
"""How often a fault happens at most, where not at a tenth of the calls."""
DRIFT = 1e-4
"""By how much more a clock that drifts is wrong, each second."""
TOO_LARGE = (2101, 2102, 2103)
"""Errors of the store: a transaction, a key or a value is too large."""
FAULTS = [each.name for each in fields(Rates)]
SETTING = ["skew", "watches", "processes", "threads", "worker", "operator"]
"""What else a seed chooses: clocks, a limit on watches, more than one process, more than one thread
of each, workers, and somebody who pauses queues."""
PARTS = [*FAULTS, *SETTING, *TABLE]
PHASES = [20, 50, 100]
"""Operations after which ``verify`` is asked, and clients turn to others."""
USUAL = 0.5
"""How often an operation is made that others meet, beside the most frequent one of its kind."""
PHASE_SECONDS = 20.0
"""Or after so long: an operation may find nothing to do."""
LOOKED_AFTER = (atomic.BYTE_MIN, atomic.COMPARE_AND_CLEAR)
"""What changes when to look at an agenda."""
STEPS = 1_000_000
"""Calls of the store after which a run that goes in circles is given up."""


@dataclass
class Settings:
    """What a run does; what is None comes from its seed."""

    seed: int
    operations: int = 2_000
    seconds: float | None = None
    """Virtual seconds of the busy part, where it does not end by operations."""
    think: float | None = None
    idle: float = 60.0
    """Virtual seconds without messages that follow."""
    without: frozenset[str] = frozenset()
    """What is left out of what the seed chooses: see ``PARTS``."""


@dataclass
class Outcome:
    """What came of a run."""

    seed: int
    problems: list[str]
    digest: str
    operations: int
    virtual_seconds: float
    counts: dict[str, int] = field(default_factory=dict)
    history: list[Operation] = field(default_factory=list)


class TooLarge(logging.Handler):
    """What a thread of the layer could not do because it was too large."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        """Look for such an error."""
        given = record.args if isinstance(record.args, tuple) else ()
        for error in (*given, *(record.exc_info or ())):
            if isinstance(error, TransactionTooLarge) or getattr(error, "code", 0) in TOO_LARGE:
                self.problems.append(f"too large: {record.getMessage()}")


class Run:
    """The simulated machine park of one seed. directory: for its store."""

    def __init__(self, settings: Settings, directory: str) -> None:
        self.settings, self.directory = settings, directory
        self.scheduler = Scheduler(f"schedule:{settings.seed}")
        self.scheduler.now_ns = BEGIN_NS
        self.random = chance = random.Random(f"run:{settings.seed}")
        self.recorder = Memory()
        self.problems: list[str] = []
        self.homes: list[Home] = []
        self._opened = 0
        thinks = chance.choice([0.0, 0.005, 0.05, 0.5])
        self.think: float = thinks if settings.think is None else settings.think
        latency = chance.choice([0.0002, 0.001, 0.005, 0.02])
        self.seam = Seam(self.scheduler, latency, on_death=self._died)
        self.rates = self._rates(chance)
        swarm = {
            name: weight * chance.choice([0.0, 0.0, 0.3, 1.0, 3.0])
            for name, (weight, _) in TABLE.items()
        }
        self.swarm = [weight * self._has(name) for name, weight in swarm.items()]
        if not any(self.swarm):
            self.swarm = [weight * self._has(name) for name, (weight, _) in TABLE.items()]
        self.weights = [*self.swarm]
        self.phases = chance.random() < 0.7
        self.skew = chance.choice([0.0, 0.0, 0.4, 30.0]) * self._has("skew")
        watches = chance.choice([None, None, 2, 20])
        self.watches = watches if self._has("watches") else None
        self.about: Sequence[str] | None = None
        """The queues that a phase is about; None for all."""
        self._stopping = False

    def _has(self, part: str) -> bool:
        """Whether a part of what the seed chooses takes place."""
        return part not in self.settings.without

    def _rates(self, chance: random.Random) -> Rates:
        chosen = Rates()
        for name in FAULTS:
            if chance.random() < (0.8 if name == "slow" else 0.5):
                rate = MOST.get(name, 0.1) * 10 ** -chance.uniform(0, 1.3)
                setattr(chosen, name, rate * self._has(name))
        return chosen

    # -- processes -------------------------------------------------------------------------------

    def _open(self) -> fdb.Database:
        # The bindings keep one database for each path, and a process has its own.
        self._opened += 1
        return fdb.open(f"{self.directory}{'/.' * self._opened}/store")

    def _process(self, name: str) -> Home:
        process = Process(self.scheduler, name)
        process.skew = self.random.uniform(-self.skew, self.skew)
        process.drift = self.random.choice([0.0, 0.0, DRIFT]) if self.skew else 0.0
        before = world.current
        world.enter(process.world)
        home = Home(process, Place(self._open(), ROOT, self.settings.seed))
        world.enter(before)
        self.homes.append(home)
        return home

    def _start(self, name: str) -> None:
        if self._stopping:
            return
        home = self._process(name)
        if self.watches is not None:
            home.place.db.options.set_max_watches(self.watches)
        chance, bodies = self.random, [body for _, body in TABLE.values()]
        for thread in range(chance.choice([1, 2, 4]) if self._has("threads") else 1):
            client = self._client(home, str(thread))
            self._spawn(home, client, partial(client.live, bodies, self.weights, self.think))
        if chance.random() < 0.4 and self._has("worker"):
            working = self._client(home, "worker")
            work = partial(working.work, chance.choice([1, 4]), chance.choice([None, 20]))
            self._spawn(home, working, work)

    def _client(self, home: Home, thread: str) -> SimulatedClient:
        who = f"{home.process.name}.{thread}"
        return SimulatedClient(home.place, self.recorder, who, self.settings.seed)

    @staticmethod
    def _spawn(home: Home, client: SimulatedClient, body: Callable[[], object]) -> None:
        home.clients.append(client)
        client.strand = home.process.spawn(body, client.who)

    def _operate(self) -> None:
        """Start the operator, who pauses queues now and then and does not die."""
        home = self._process("operator-0")
        home.process.immortal = True
        client, rarely = self._client(home, "0"), self.random.choice([2, 20])

        def operate() -> None:
            while not client.stops:
                world.sleep(client.random.random() * rarely)
                pause_and_resume(client)

        self._spawn(home, client, operate)

    def _died(self, strand: Strand) -> None:
        process = strand.process
        process.kill()
        self.recorder.note("nemesis", "killed", process=process.name)
        name, _, life = process.name.rpartition("-")
        again = partial(self._start, f"{name}-{int(life) + 1}")
        self.scheduler.call_later(10 * self.random.random(), again)

    # -- the run ---------------------------------------------------------------------------------

    def execute(self) -> Outcome:
        """Run, and check."""
        self.hub = Process(self.scheduler, "hub")
        world.enter(self.hub.world)
        logger = logging.getLogger("fdbqueue")
        logger.propagate, logger.handlers = False, [TooLarge(self.problems)]
        knobs.turn(self.settings.seed)
        gc.collect()
        gc.disable()
        self.seam.install(f"{self.directory}/store")
        self.place = Place(self._open(), ROOT, self.settings.seed)
        self.agendas = invariants.agendas(self.place)
        self.seam.on_commit = self._committed
        try:
            self._all()
        except Exception:
            self.problems.append(f"the run itself: {traceback.format_exc()}")
        return self._outcome()

    def _all(self) -> None:
        self.place.create()
        self.seam.rates = self.rates
        for n in range(self.random.choice([1, 2, 3, 5]) if self._has("processes") else 1):
            self._start(f"p{n}-0")
        if self._has("operator"):
            self._operate()
        self._busy()
        self._calm()
        if not self._broken():
            self._drain()
        if not self._broken() and self.settings.idle:
            self._idle(self.settings.idle)

    def _operations(self) -> int:
        return sum(client.done for home in self.homes for client in home.clients)

    def _busy(self) -> None:
        settings, seconds = self.settings, self.settings.seconds
        end = BEGIN_NS + int((seconds or 1e7) * SECOND)
        while self.scheduler.now_ns < end and not self._broken():
            self._turn()
            wanted = self._operations() + self.random.choice(PHASES)
            if seconds is None:
                wanted = min(wanted, settings.operations)
            until = min(end, self.scheduler.now_ns + int(PHASE_SECONDS * SECOND))
            self._advance(until, lambda wanted=wanted: self._operations() >= wanted)
            self._verify()
            if seconds is None and self._operations() >= settings.operations:
                return

    def _turn(self) -> None:
        """Choose what clients do for some time: everything, or what some queues are for, each as
        often, or a few operations of that, or one beside the usual ones: so rare ones meet."""
        chance, area = self.random, self.random.choice([*AREAS])
        self.weights[:], self.about = self.swarm, None
        narrow = chance.random()
        for home in self.homes:
            home.place.narrow(random.Random(narrow))
        some = [name for name in AREAS[area] if self._has(name)]
        if not self.phases or not some or chance.random() < 0.2:
            return
        self.about = ABOUT[area]
        count = chance.choice([1, 1, 2, 4, 20])
        few = {*chance.sample(some, min(len(some), count))}
        most = max(TABLE[name][0] for name in some)
        few |= {name for name in some if count == 1 and TABLE[name][0] >= USUAL * most}
        self.weights[:] = [float(name in few) for name in TABLE]

    def _broken(self) -> bool:
        return bool(self.problems or self.scheduler.crashes or self.seam.problems)

    def _advance(self, until_ns: int, over: Any) -> None:
        begun = self.seam.counts["calls"]
        found = 0

        def ends() -> bool:
            nonlocal found
            found += 1
            if not found % 512:
                gc.collect()
            if self.seam.counts["calls"] - begun > STEPS:
                raise RuntimeError("the run goes in circles")
            return self._broken() or bool(over())

        self.scheduler.run(until_ns, ends)

    def _verify(self) -> None:
        world.enter(self.hub.world)
        self.problems += final.audit(self.place, self.about)

    def _committed(self, mutations: Iterable[tuple[int, bytes, object]]) -> None:
        """Look at the agendas that a commit has changed, before anybody else goes on."""
        changed = [key for op, key, _ in mutations if op in LOOKED_AFTER]
        for begin, keys in self.agendas.items() if changed else ():
            if any(key.startswith(begin) for key in changed):
                self.scheduler.call_at(0, partial(self._look_at, keys))

    def _look_at(self, keys: AgendaKeys) -> None:
        world.enter(self.hub.world)
        self.problems += invariants.overlooked(self.place, keys)

    def _calm(self) -> None:
        """End the faults: every call must return within bounded time."""
        self.seam.rates = Rates()
        self._stopping = True
        for home in self.homes:
            process = home.process
            process.paused_until = min(process.paused_until, self.scheduler.now_ns)
            for client in home.clients:
                client.stops = True
        self._return(self.homes)

    def _return(self, homes: list[Home]) -> None:
        """Within bounded time every client of some processes returns."""
        until = self.scheduler.now_ns + int(LIVE_SECONDS * SECOND)
        self._advance(until, lambda: all(home.at_rest for home in homes))
        if self._broken():
            return
        for client in (client for home in homes if not home.at_rest for client in home.clients):
            if not client.strand.over:
                self.problems.append(f"liveness: {client.who} is still at: {client.doing}")

    def _drain(self) -> None:
        """Take everything that is left, in a process of its own, and look at what stays."""
        home = self._process("drainer-0")
        client = self._client(home, "0")

        def drain() -> None:
            world.sleep(REST_SECONDS)
            final.drain(home.place, self.recorder)

        self._spawn(home, client, drain)
        client.strand.allowance = 10**9, 10**9
        until = self.scheduler.now_ns + int(DRAIN_SECONDS * SECOND)
        self._advance(until, lambda: client.strand.over)
        if not client.strand.over and not self._broken():
            self.problems.append("liveness: the queues could not be drained")
        if self._broken():
            return
        world.enter(self.hub.world)
        final.describe(self.place, self.recorder)

    def _idle(self, seconds: float) -> None:
        """Let a line wait for many messages, and then a worker and a consumer for some that do not
        come, and at last for one."""
        world.enter(self.hub.world)
        invariants.purge(self.place)
        name = self.random.choice([*waiting.QUEUES])
        self._line(name)
        if self._broken():
            return
        world.enter(self.hub.world)
        comes = waiting.coming(self.place, name, self.random)
        home = self._process("idle-0")
        working, waits = self._client(home, "worker"), self._client(home, "0")
        self._spawn(home, working, partial(working.work, 2))
        self._spawn(home, waits, partial(waiting.stand, waits, name, 1))
        self._advance(self.scheduler.now_ns + int(SETTLE_SECONDS * SECOND), lambda: False)
        self.seam.asked.clear()
        self._advance(self.scheduler.now_ns + int(seconds * SECOND), lambda: False)
        asked = invariants.asked(self.seam, seconds)
        working.stops = True
        self._told(comes, [waits], waiting.WOKEN_SECONDS)
        self._return([home])
        world.enter(self.hub.world)
        self.problems += asked
        self.problems += invariants.rows_left(self.place)

    def _line(self, name: str) -> None:
        """Let several stand in line, and messages come for all of them at once."""
        homes = [self._process(f"line{n}-0") for n in range(2)]
        clients = [self._client(homes[n % 2], str(n)) for n in range(waiting.STAND)]
        for n, client in enumerate(clients):
            stands = partial(waiting.stand, client, name, waiting.TURNS)
            self._spawn(homes[n % 2], client, stands)
        self._advance(self.scheduler.now_ns + SECOND, lambda: False)
        messages = waiting.some(waiting.STAND * waiting.TURNS)
        comes = partial(self.place.queues[name].enqueue_many, self.place.db, messages)
        self._told(comes, clients, waiting.SERVED_SECONDS + 50 * self.seam.latency)
        self._return(homes)

    def _told(
        self, comes: Callable[[], object], clients: Sequence[SimulatedClient], seconds: float
    ) -> None:
        """Within so long clients have taken what comes."""
        world.enter(self.hub.world)
        comes()
        until = self.scheduler.now_ns + int(seconds * SECOND)
        self._advance(until, lambda: all(client.strand.over for client in clients))
        left = [client.doing for client in clients if not client.strand.over]
        if left and not self._broken():
            self.problems.append(f"waiting: after {seconds:.2f} s: {left}")

    @property
    def virtual_seconds(self) -> float:
        """How much time has passed."""
        return (self.scheduler.now_ns - BEGIN_NS) / SECOND

    def _outcome(self) -> Outcome:
        problems = [*self.problems]
        for name, error in self.scheduler.crashes:
            shown = "".join(traceback.format_exception(error)[-16:])
            problems.append(f"crashed: {name}: {shown}")
        problems += [f"{kind}: {detail}" for kind, detail in self.seam.problems]
        lines = self.recorder.lines
        history = assembled(lines)
        if not problems:
            problems += [
                str(found)
                for found in check(
                    history, skew_ms=1000 * (self.skew + DRIFT * self.virtual_seconds)
                )
            ]
        digest = hashlib.sha256(json.dumps(lines).encode())
        digest.update(repr((self.scheduler.now_ns, sorted(self.seam.counts.items()))).encode())
        return Outcome(
            self.settings.seed,
            problems,
            digest.hexdigest(),
            self._operations(),
            self.virtual_seconds,
            dict(self.seam.counts),
            history,
        )
