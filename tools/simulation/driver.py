"""One thread that runs many: strands, which are greenlets, on a heap of virtual time.

A strand runs until it waits; then the earliest entry of the heap is next. Chance, all from one
seed, decides how long each call of the store takes, and so who goes on. Nothing here uses the
machine's clock, or its random numbers.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Any

from greenlet import getcurrent, greenlet

from fdbqueue.store import world

SECOND = 1_000_000_000
OVER_AFTER = 64
"""After so many entries of the heap a run is asked whether it is over."""
EPOCH_NS = 1_800_000_000 * SECOND
"""The wall clock at the beginning of a run."""


class Scheduler:
    """The heap, the virtual time and the chance of a run."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.now_ns = 0
        self.strand: Strand | None = None
        self.dead: list[Strand] = []
        """Kept to the end: a greenlet that is collected would run its ``finally``."""
        self.crashes: list[tuple[str, BaseException]] = []
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._order = 0
        self.hub = getcurrent()
        self._idents = 0

    def call_at(self, at_ns: int, action: Callable[[], object]) -> None:
        """Do something at a moment, or now if that is over."""
        self._order += 1
        heappush(self._heap, (max(at_ns, self.now_ns), self._order, action))

    def call_later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something after so many seconds."""
        self.call_at(self.now_ns + int(min(seconds, 1e9) * SECOND) + 1, action)

    def run(self, until_ns: int, over: Callable[[], bool]) -> None:
        """Let time pass up to a moment, or until it is over, which is asked now and then."""
        heap, done = self._heap, 0
        while heap and heap[0][0] <= until_ns:
            self.now_ns, _, action = heappop(heap)
            action()
            done += 1
            if not done % OVER_AFTER and over():
                return
        if not over():
            self.now_ns = max(self.now_ns, until_ns)

    def ident(self) -> int:
        """A number that no strand has."""
        self._idents += 1
        return self._idents

    def switch(self) -> None:
        """Let the others go on; called in a strand."""
        self.hub.switch()


class Strand:
    """What is a thread elsewhere."""

    def __init__(self, process: Process, target: Callable[[], object], name: str) -> None:
        self.process, self.name = process, name
        self.scheduler = process.scheduler
        self.ident = self.scheduler.ident()
        self.over = self.dead = False
        self.held: list[Lock] = []
        self.joining: list[Strand] = []
        self.allowance: tuple[int, int] = (0, 0)
        """Rows and bytes that its caller asked for, or handed in."""
        self.asked = 0
        """In how many transactions it has read."""
        self._target = target
        # At its end the hub goes on, not who has started it.
        self._greenlet = greenlet(self._run, self.scheduler.hub)
        self._parked, self._epoch, self._woken = True, 0, False
        self.scheduler.call_at(self.scheduler.now_ns, partial(self._fire, 0))

    def _run(self) -> None:
        try:
            self._target()
        except Exception as error:
            self.scheduler.crashes.append((self.name, error))
        self.over = True
        self.process.strands.pop(self, None)
        for other in self.joining:
            other.wake()

    def park(self, seconds: float | None = None) -> bool:
        """Wait until it is woken, for at most ``seconds``; returns whether it was."""
        self._epoch += 1
        self._parked, self._woken = True, False
        if seconds is not None:
            self.scheduler.call_later(max(0.0, seconds), partial(self._fire, self._epoch))
        self.scheduler.switch()
        return self._woken

    def wake(self) -> None:
        """End what it waits for."""
        if self._parked and not self._woken:
            self._woken = True
            pause = self.scheduler.random.randrange(20_000)
            self.scheduler.call_at(self.scheduler.now_ns + pause, partial(self._fire, self._epoch))

    def _fire(self, epoch: int) -> None:
        """Go on, unless what it waited for then is over."""
        if self.dead or self.over or not self._parked or epoch != self._epoch:
            return
        scheduler, process = self.scheduler, self.process
        if process.paused_until > scheduler.now_ns:
            scheduler.call_at(process.paused_until, partial(self._fire, epoch))
            return
        self._parked = False
        if world.current is not process.world:
            world.enter(process.world)
        scheduler.strand = self
        self._greenlet.switch()
        scheduler.strand = None


class Process:
    """What is a process of its own elsewhere: a clock, and what it remembers.

    skew: by how many seconds its wall clock is wrong. drift: by how much more in each second.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.skew = self.drift = 0.0
        self.paused_until = 0
        self.dead = self.immortal = False
        self.strands: dict[Strand, None] = {}
        """In the order in which they began."""
        self.world = SimulatedWorld(self)

    def spawn(self, target: Callable[[], object], name: str) -> Strand:
        """A new strand of it."""
        strand = Strand(self, target, name)
        self.strands[strand] = None
        return strand

    def kill(self) -> None:
        """End it as SIGKILL does: nothing of it runs again."""
        self.dead = True
        for strand in self.strands:
            strand.dead = True
            self.scheduler.dead.append(strand)


class SimulatedWorld(world.World):
    """The world of a simulated process."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        scheduler = process.scheduler
        self.random = random.Random(f"{scheduler.random.random()}:{process.name}")
        self.urandom = self.random.randbytes

        def monotonic_ns() -> int:
            return scheduler.now_ns

        def store_time_ns() -> int:
            return EPOCH_NS + scheduler.now_ns

        def time_ns() -> int:
            off = process.skew + process.drift * scheduler.now_ns / SECOND
            return store_time_ns() + int(off * SECOND)

        def sleep(seconds: float) -> None:
            strand = scheduler.strand
            if strand is None:
                raise RuntimeError("nobody is there to sleep")
            strand.park(seconds)

        self.monotonic_ns, self.time_ns, self.store_time_ns = monotonic_ns, time_ns, store_time_ns
        self.monotonic = lambda: scheduler.now_ns / SECOND
        self.time = lambda: time_ns() / SECOND
        self.sleep = sleep
        self.get_ident = lambda: 0 if scheduler.strand is None else scheduler.strand.ident
        self.in_main_thread = lambda: False
        self.Lock = lambda: Lock(scheduler)
        self.Condition = lambda lock=None: Condition(scheduler, lock)
        self.Event = lambda: Event(scheduler)
        self.Thread = lambda *given, **named: Thread(scheduler, *given, **named)


# -- what threads have ------------------------------------------------------------------------


class Lock:
    """As ``threading.Lock``. One that another strand releases than has taken it is a signal."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._taken = self._signals = False
        self._owner: Strand | None = None
        self._waiting: deque[Strand] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it."""
        strand = self._scheduler.strand
        if self._taken:
            if not blocking or timeout == 0:
                return False
            if strand is None:
                raise RuntimeError("a lock is held over a call of the store")
            self._waiting.append(strand)
            strand.park(None if timeout < 0 else timeout)
            if self._owner is not strand:
                self._waiting.remove(strand)
                return False
        self._taken, self._owner = True, strand
        if strand is not None and not self._signals:
            strand.held.append(self)
        return True

    def release(self) -> None:
        """Give it to who waits longest."""
        if not self._taken:
            raise RuntimeError("release unlocked lock")
        self._signals = self._owner is not self._scheduler.strand
        if self._owner is not None and self in self._owner.held:
            self._owner.held.remove(self)
        self._taken, self._owner = False, None
        while self._waiting:
            following = self._waiting.popleft()
            if not following.dead:
                self._taken, self._owner = True, following
                following.wake()
                return

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """As ``threading.Condition``, but for its lock: nobody takes one twice."""

    def __init__(self, scheduler: Scheduler, lock: Lock | None = None) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler) if lock is None else lock
        self._waiting: list[Strand] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is notified."""
        strand = self._scheduler.strand
        if strand is None:
            raise RuntimeError("nobody is there to wait")
        self._waiting.append(strand)
        self._lock.release()
        woken = strand.park(timeout)
        if strand in self._waiting:
            self._waiting.remove(strand)
        self._lock.acquire()
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until something holds."""
        until = None if timeout is None else self._scheduler.now_ns + int(timeout * SECOND)
        while not (found := predicate()):
            left = None if until is None else (until - self._scheduler.now_ns) / SECOND
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        """Wake some who wait."""
        for strand in self._waiting[:n]:
            strand.wake()
        del self._waiting[:n]

    def notify_all(self) -> None:
        """Wake all who wait."""
        self.notify(len(self._waiting))


class Event:
    """As ``threading.Event``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiting: list[Strand] = []

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def set(self) -> None:
        """Wake all who wait."""
        self._set = True
        for strand in self._waiting:
            strand.wake()
        self._waiting.clear()

    def clear(self) -> None:
        """Let others wait again."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set."""
        if not self._set:
            strand = self._scheduler.strand
            if strand is None:
                raise RuntimeError("nobody is there to wait")
            self._waiting.append(strand)
            strand.park(timeout)
            if strand in self._waiting:
                self._waiting.remove(strand)
        return self._set


class Thread:
    """As ``threading.Thread``."""

    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object],
        name: str = "thread",
        args: Iterable[Any] = (),
        daemon: bool | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._target, self._args = target, tuple(args)
        self.name, self.daemon = name, daemon
        self.strand: Strand | None = None

    @property
    def ident(self) -> int | None:
        """The number of its strand."""
        return None if self.strand is None else self.strand.ident

    def start(self) -> None:
        """Begin, in the process of the caller."""
        mine = self._scheduler.strand
        if mine is None:
            raise RuntimeError("nobody is there to start a thread")
        name = f"{mine.process.name}/{self.name}"
        self.strand = mine.process.spawn(lambda: self._target(*self._args), name)

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.strand is not None and not self.strand.over

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        mine = self._scheduler.strand
        if self.is_alive() and self.strand is not None and mine is not None:
            self.strand.joining.append(mine)
            mine.park(timeout)
