"""The seam between the layer and the engine: where the others go on, and where faults happen.

The functions of the bindings' library object are wrapped: a client gives way before each call of
the store, and after a commit. What decides conflicts and versions is the engine's own.
"""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fdbqueue.store import embedded
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded import StoreFull, helpers
from fdbqueue.store.embedded import faults as engine_faults
from fdbqueue.store.embedded import timers as engine_timers
from fdbqueue.store.embedded.codes import (
    COMMIT_UNKNOWN,
    FUTURE_VERSION,
    NOT_COMMITTED,
    PROCESS_BEHIND,
    TIMED_OUT,
    TOO_OLD,
    Fault,
)
from fdbqueue.store.embedded.storage.commit import Committer
from fdbqueue.store.embedded.storage.database import CHECKSUMS_VARIABLE, OpenStore
from fdbqueue.store.embedded.transactions.commit_requests import CommitRequest
from fdbqueue.store.embedded.transactions.transaction import live

from .driver import SECOND, Event, Process, Scheduler, Strand

MOST_ROWS, MOST_BYTES = 5_000, 2_000_000
"""What a transaction may read, and what it may write, beyond what its caller asked for."""
MOST_SECONDS = 5.0
"""What a transaction may take, unless its process, or the store, stands still."""
MOST_STOPPED = 60.0
"""How long the store answers nobody, at most."""
MOST_SLOW = 3.0
"""How long a commit takes at most that others overtake."""
MOST_FULL = 20.0
"""How long the disk has no room, at most."""
ZOMBIE_SECONDS = 4.0
"""After so long a commit that is under way is too old to land."""
OLD_VERSIONS = 5_000_000
"""So many versions after its reads a commit is refused, as on a cluster."""
SERVES = "fulfilment.py"
"""Who leads a line reads what all have asked for that stand in it, and not only its caller."""
_LOG_BYTES = 8 << 20

PIPELINED = ("get", "get_range", "get_key", "watch")
WAITED_FOR = 0.1
"""How many of them take a round trip, and not only a turn."""
READS = ("get", "get_range", "get_key", "get_read_version", "watch")


@dataclass
class Rates:
    """How often each fault happens, at each call where it can."""

    conflict: float = 0.0
    unknown_made: float = 0.0
    unknown_lost: float = 0.0
    zombie: float = 0.0
    timeout: float = 0.0
    too_old: float = 0.0
    read: float = 0.0
    death: float = 0.0
    pause: float = 0.0
    watch_late: float = 0.0
    watch_spurious: float = 0.0
    stop: float = 0.0
    full: float = 0.0
    slow: float = 0.0


@dataclass
class Usage:
    """What a transaction has read since it began."""

    begun_ns: int = 0
    rows: int = 0
    bytes: int = 0
    spared: bool = False


@dataclass
class Seam:
    """The calls of the store of one run. Installed once in a process of the machine."""

    scheduler: Scheduler
    latency: float
    """Seconds that a call of the store takes on average."""
    rates: Rates = field(default_factory=Rates)
    on_death: Callable[[Strand], None] = lambda strand: None
    on_commit: Callable[[Sequence[tuple[int, bytes, object]]], None] = lambda mutations: None
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """What broke a rule at the seam: its kind, and the detail."""
    asked: Counter[str] = field(default_factory=Counter)
    """By strand: in how many transactions it has read."""

    def __post_init__(self) -> None:
        self._usage: dict[Any, Usage] = {}
        self._stopped_until = self._full_until = 0
        self._library: Any = fdb.impl._capi
        self._network = Process(self.scheduler, "network")
        self.store: OpenStore

    def install(self, path: str) -> None:
        """Take the engine's place in the bindings; its threads do not start."""
        vars(helpers)["Helper"].start = _start
        timers, scheduler = engine_timers.timers, self.scheduler

        def call_at(when: float, function: Callable[[], object]) -> engine_timers.TimedCall:
            call = engine_timers.TimedCall(timers, function)

            def make() -> None:
                wanted, call.function = call.function, None
                if wanted is not None:
                    wanted()

            scheduler.call_at(int(when * SECOND) + 1, make)
            return call

        timers.call_at = call_at  # type: ignore[method-assign]
        future: Any = fdb.impl.Future
        future.block_until_ready, future.Event = _block, partial(Event, scheduler)
        engine_faults.active = self  # type: ignore[assignment]
        for name in (*READS, "commit", "on_error"):
            self._wrap(f"fdb_transaction_{name}", getattr(self, f"_{name}", self._read))
        # No disk is below it that could flip a bit.
        os.environ[CHECKSUMS_VARIABLE] = "off"
        self.store = embedded.open_store(path, "normal")

    def _wrap(self, name: str, around: Callable[..., Any]) -> None:
        inner = getattr(self._library, name)
        call = partial(around, inner)
        for setting in ("argtypes", "restype", "errcheck"):
            if hasattr(inner, setting):
                setattr(call, setting, getattr(inner, setting))
        setattr(self._library, name, call)

    # -- calls -------------------------------------------------------------------------------

    def give_way(self, name: str) -> None:
        """Let others go on, as long as the call takes; the client may stand still, or die."""
        strand = self.scheduler.strand
        if strand is None:
            return
        self.counts["calls"] += 1
        chance, rates = self.scheduler.random.random, self.rates
        if strand.held:
            self._blame("lock held", f"{name} is called while a lock is held")
        # The reads of a transaction are under way together: few of them are waited for.
        waits = name not in PIPELINED or chance() < WAITED_FOR
        if rates.death and not strand.process.immortal and chance() < rates.death:
            self.counts["death"] += 1
            self.on_death(strand)
            self.scheduler.switch()
        if rates.pause and chance() < rates.pause:
            self.counts["pause"] += 1
            pause = 10 ** (chance() * 3 - 1)  # from a tenth of a second to 100 seconds
            strand.process.paused_until = self.scheduler.now_ns + int(pause * SECOND)
            waits = True
        now_ns = self.scheduler.now_ns
        if rates.stop and chance() < rates.stop and now_ns > self._stopped_until:
            self.counts["stop"] += 1
            self._stopped_until = now_ns + int(MOST_STOPPED * chance() * SECOND)
        if self._stopped_until > now_ns:
            strand.park((self._stopped_until - now_ns) / SECOND)
        if waits:
            strand.park(self.latency * 2 * chance() ** 3)

    def _read(self, inner: Any, handle: Any, *arguments: Any) -> Any:
        self.give_way(inner.__name__.removeprefix("fdb_transaction_"))
        return inner(handle, *arguments)

    def _get_read_version(self, inner: Any, handle: Any) -> Any:
        tr = live[handle]
        if tr.read_version is None:
            self.give_way("get_read_version")
            self._count(handle, 0, 0)
        return inner(handle)

    def _get(self, inner: Any, handle: Any, *arguments: Any) -> Any:
        self.give_way("get")
        future = inner(handle, *arguments)
        if future.at_hand:
            self._count(handle, 1, len(future.value or b""))
        return future

    def _get_range(self, inner: Any, handle: Any, *arguments: Any) -> Any:
        self.give_way("get_range")
        future = inner(handle, *arguments)
        if future.at_hand:
            rows = future.value[0]
            self._count(handle, len(rows), sum(len(key) + len(value) for key, value in rows))
        return future

    def _on_error(self, inner: Any, handle: Any, code: int) -> Any:
        self.give_way("on_error")
        self._usage.pop(handle, None)
        return inner(handle, code)

    def _commit(self, inner: Any, handle: Any, *arguments: Any) -> Any:
        self.give_way("commit")
        strand = self.scheduler.strand
        if strand is not None and self._happens("slow"):
            strand.park(MOST_SLOW * self.scheduler.random.random() ** 2)
        self._usage.pop(handle, None)
        future = inner(handle, *arguments)
        self._look_after()
        # It is made, and the client does not know yet.
        self.give_way("after commit")
        return future

    def _count(self, handle: Any, rows: int, size: int) -> None:
        strand, now_ns = self.scheduler.strand, self.scheduler.now_ns
        if strand is None:
            return
        used = self._usage.get(handle)
        if used is None:
            used = self._usage[handle] = Usage(now_ns)
            self.asked[strand.name] += 1
            strand.asked += 1
        used.rows += rows
        used.bytes += size
        if (used.rows > MOST_ROWS or used.bytes > MOST_BYTES) and not used.spared:
            frames = traceback.walk_stack(None)
            used.spared = any(one.f_code.co_filename.endswith(SERVES) for one, _ in frames)
            if not used.spared:
                self._bound("reads", used.rows, used.bytes)
        took, stood = now_ns - used.begun_ns, max(self._stopped_until, strand.process.paused_until)
        if took > MOST_SECONDS * SECOND and stood <= used.begun_ns:
            self._blame("budget", f"a transaction takes {took / SECOND:.1f} s")

    def _bound(self, what: str, rows: int, size: int) -> None:
        strand = self.scheduler.strand
        if strand is None:
            return
        more_rows, more_bytes = strand.allowance
        if rows > MOST_ROWS + more_rows or size > MOST_BYTES + more_bytes:
            self._blame("budget", f"a transaction {what} {rows:,} rows, {size:,} bytes")

    def _blame(self, kind: str, detail: str) -> None:
        strand = self.scheduler.strand
        if strand is not None and not self.problems:
            where = "".join(traceback.format_stack(limit=14)[:-2])
            self.problems.append((kind, f"{strand.name}: {detail}\n{where}"))

    # -- what the engine's threads do ----------------------------------------------------------

    def _look_after(self) -> None:
        watches, rates = self.store.watches, self.rates
        if watches._by_key:
            pause = 0.0
            if rates.watch_late and self.scheduler.random.random() < rates.watch_late:
                self.counts["watch_late"] += 1
                pause = 20 * self.scheduler.random.random()
            self.scheduler.call_later(pause + 0.001, watches.look)
            if rates.watch_spurious and self.scheduler.random.random() < rates.watch_spurious:
                self.counts["watch_spurious"] += 1
                key = self.scheduler.random.choice(sorted(watches._by_key))
                for watch in list(watches._by_key[key]):
                    watch.complete()
        checkpointer = self.store.checkpointer
        if checkpointer._pages >= 4_000:
            checkpointer._pages = 0
            checkpointer._checkpoint("PASSIVE")
            if self.store.file.log_bytes() > _LOG_BYTES:
                self.store.snapshots.drop_idle(also_kept=True)
                checkpointer._checkpoint("RESTART")

    # -- faults, where the engine asks for them -------------------------------------------------

    def _happens(self, kind: str) -> bool:
        rate = getattr(self.rates, kind)
        if not rate or self.scheduler.strand is None or self.scheduler.random.random() >= rate:
            return False
        self.counts[kind] += 1
        return True

    def before_read(self) -> None:
        """Called before every read; may raise a fault."""
        if self._happens("read"):
            raise Fault(self.scheduler.random.choice((TOO_OLD, FUTURE_VERSION, PROCESS_BEHIND)))

    def commit(self, committer: Committer, request: CommitRequest) -> None:
        """Commit or not, now or later, and report the true outcome or not."""
        self.counts["commits"] += 1
        mutations = request.mutations
        size = sum(len(key) + len(value or b"") for _, key, value in mutations)
        self._bound("writes", len(mutations), size)
        now_ns = self.scheduler.now_ns
        if self._happens("full"):
            self._full_until = now_ns + int(MOST_FULL * self.scheduler.random.random() * SECOND)
        if now_ns < self._full_until:
            raise StoreFull("simulated")
        if self._happens("conflict"):
            raise Fault(NOT_COMMITTED)
        if self._happens("too_old"):
            raise Fault(TOO_OLD)
        if self._happens("unknown_lost"):
            raise Fault(COMMIT_UNKNOWN)
        # Only a transaction whose time is limited is told nothing of a commit under way.
        limited = bool(request.deadline)
        if self._happens("zombie"):
            seconds = ZOMBIE_SECONDS * self.scheduler.random.random() ** 2
            # In a strand: it may have to wait for another commit.
            land = partial(self._land, committer, request)
            self.scheduler.call_later(seconds, partial(self._network.spawn, land, "zombie"))
            raise Fault(TIMED_OUT if limited else COMMIT_UNKNOWN)
        self._make(committer, request)
        if request.error is None and limited and self._happens("timeout"):
            raise Fault(TIMED_OUT)
        if request.error is None and self._happens("unknown_made"):
            raise Fault(COMMIT_UNKNOWN)

    def _make(self, committer: Committer, request: CommitRequest) -> None:
        committer.commit(request)
        if request.error is None:
            self.on_commit(request.mutations)

    def _land(self, committer: Committer, request: CommitRequest) -> None:
        read = request.read_version
        if read is not None and self.store.clock.now() - read > OLD_VERSIONS:
            return
        request.deadline = 0.0
        self._make(committer, request)
        self.counts["landed"] += request.error is None
        self._look_after()


def _start(helper: Any) -> None:
    helper.running = True


def _block(future: Any) -> None:
    future.capi.fdb_future_block_until_ready(future.fpointer)
