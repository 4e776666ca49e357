"""The watcher: one thread of a process looks at the queues, for all viewers together.

It runs only while somebody views. A watch of each queue tells it what has moved, and it reads only
that. A tick a second reads one key, which tells whether the catalogue or any options changed. It
looks at everything at its start, then, and every half a minute, for what no watch can see; watches
that have not fired stay.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from ..consumers.watching import ArmedWatch
from ..errors import QueueError
from ..queue import overview
from ..queue.overview import Surveyed
from ..store import cluster_status
from ..store.binding import FAILURES, fdb
from ..store.clocks import METADATA_VERSION
from ..values.model import Depth

TICK_SECONDS = 1.0
REST_SECONDS = 0.25
"""Between two looks: changes in between are seen together."""
FULL_SECONDS = 30.0
SHARE = 20
"""Looking at everything again waits at least that many times as long as it took."""
TIMEOUT_SECONDS = 10.0
MAX_WATCHES = 5_000
"""Half of what a FoundationDB client allows; other queues are seen every half a minute."""
STATUS_SECONDS = 5.0
RATE_SECONDS = 10.0
SAMPLE_SECONDS, SAMPLES = 2.0, 150
AGES = 200
"""Of how many queues one look reads the age."""

log = logging.getLogger("fdbqueue.web")


class Sample(NamedTuple):
    """Counters of a queue at a moment, in seconds of the monotonic clock."""

    at: float
    enqueued: int
    done: int
    ready: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as viewers see it; rates are in messages per second."""

    name: str
    seen: Surveyed
    depth: Depth = field(default_factory=Depth)
    rate_in: float = 0.0
    rate_out: float = 0.0
    samples: tuple[Sample, ...] = field(default=(), compare=False, repr=False)


class QueueViews(Struct, frozen=True):
    """All queues in the order of their names, as they were last seen.

    at: when, in seconds of the monotonic clock. conflicts: of the whole cluster, per second.
    failed: why the store cannot be read; then the rest is from before.
    """

    views: Mapping[str, QueueView]
    at: float = float("-inf")
    conflicts: float | None = None
    failed: str | None = None


class QueueChange(Struct, frozen=True):
    """What is new. everything: perhaps other queues than before."""

    names: frozenset[str]
    everything: bool = False


Notify: TypeAlias = Callable[[QueueChange], object]


class Watcher:
    """Looks at the queues below a root."""

    def __init__(self, db: fdb.Database, root: fdb.Subspace) -> None:
        self.db = db
        self.root = root
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._viewers: dict[object, Notify] = {}
        self._thread: threading.Thread | None = None
        self._stirred = threading.Event()
        self._moved: set[str] = set()
        self._watches: dict[str, list[ArmedWatch]] = {}
        self._history: dict[str, deque[Sample]] = {}
        self._falling: set[str] = set()
        self._fell_at = float("-inf")
        self._ages: dict[str, tuple[Surveyed, int | None]] = {}
        self._look = QueueViews({})
        self._full_at = self._status_at = float("-inf")
        self._full_took = 0.0
        self._stamp: bytes | None = None

    def look(self) -> QueueViews:
        """All queues as they are now, give or take a second."""
        with self._looking:
            if self._thread is None and time.monotonic() - self._look.at > TICK_SECONDS:
                self._all(watch=False)
            return self._look

    def ages(self, views: Iterable[QueueView]) -> dict[str, int]:
        """Since when the oldest ready message of each queue waits, in wall clock milliseconds."""
        held = {view.name: view.seen for view in views if view.depth.ready}
        known = self._ages
        # What has moved was seen anew, even if it has the same depth.
        unknown = [
            (name, seen)
            for name, seen in held.items()
            if name not in known or known[name][0] is not seen
        ]
        for start in range(0, len(unknown), AGES):
            some = unknown[start : start + AGES]
            found = overview.ready_since_ms(self.db, some, root=self.root, timeout=TIMEOUT_SECONDS)
            known |= {name: (seen, found.get(name)) for name, seen in some}
        ages = {name: known[name][1] for name in held}
        return {name: since_ms for name, since_ms in ages.items() if since_ms is not None}

    def follow(self, notify: Notify) -> Callable[[], None]:
        """Call ``notify`` in the watcher's thread after each change; returns how to end that."""
        viewer = object()
        with self._lock:
            self._viewers[viewer] = notify
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fdbqueue-web", daemon=True)
                self._thread.start()

        def leave() -> None:
            with self._lock:
                self._viewers.pop(viewer, None)
            self._stirred.set()

        return leave

    def _run(self) -> None:
        while self._wanted():
            with self._looking:
                change = self._next()
            for notify in [*self._viewers.values()]:
                with suppress(RuntimeError):  # its event loop has ended
                    notify(change)
            time.sleep(REST_SECONDS)
            self._stirred.wait(TICK_SECONDS - REST_SECONDS)
            self._stirred.clear()

    def _wanted(self) -> bool:
        """Whether anybody views; if not, the thread ends."""
        with self._lock:
            if self._viewers:
                return True
            self._thread = None
            watches = self._take_watches()
        _cancel(watches)
        return False

    def _take_watches(self) -> list[ArmedWatch]:
        """All watches, to cancel; the next look is at everything, and watches it anew."""
        watches, self._watches = self._watches, {}
        self._full_at = float("-inf")
        return [each for some in watches.values() for each in some]

    def _next(self) -> QueueChange:
        """Look at what has changed."""
        before = self._look
        names: frozenset[str] = frozenset()
        try:
            now = time.monotonic()
            if now - self._status_at > STATUS_SECONDS:
                self._status_at, conflicts = now, cluster_status.conflicts(self.db)
            else:
                conflicts = before.conflicts
            stamp = self._catalogue()
            if self._full_due(now, stamp):
                self._stamp = stamp
                names = self._all(watch=True)
            else:
                names = self._some(self._take_moved())
            self._look = QueueViews(self._look.views, self._look.at, conflicts)
        except (*FAILURES, QueueError) as error:
            log.warning("the store cannot be read: %s", error)
            # The last numbers stay, marked as old: an empty page would say that there are no
            # queues.
            self._look = QueueViews(before.views, before.at, before.conflicts, str(error))
            _cancel(self._take_watches())
        other = self._look.views.keys() != before.views.keys() or self._look.failed != before.failed
        return QueueChange(names, other)

    def _full_due(self, now: float, stamp: bytes | None) -> bool:
        passed = now - self._full_at
        if stamp == self._stamp:
            return passed > max(FULL_SECONDS, SHARE * self._full_took)
        # With thousands of queues a look at all takes seconds: somebody who makes queues all the
        # time must not keep it busy.
        return passed > SHARE * self._full_took

    def _catalogue(self) -> bytes | None:
        """What differs once any queue was created, deleted or got other options."""
        tr = self.db.create_transaction()
        tr.options.set_timeout(round(1000 * TIMEOUT_SECONDS))
        value = tr.snapshot.get(METADATA_VERSION).value
        return None if value is None else bytes(value)

    def _take_moved(self) -> set[str]:
        with self._lock:
            moved, self._moved = self._moved, set()
        return moved

    def _all(self, *, watch: bool) -> frozenset[str]:
        began = time.monotonic()
        moved = self._take_moved()
        before = self._look.views
        names = overview.list_queues(self.db, root=self.root, timeout=TIMEOUT_SECONDS)
        names.sort(key=overview.natural)
        watched = [name for name in names if name in self._watches and name not in moved]
        same: set[str] = set()
        found: dict[str, Surveyed] = {}
        for name, seen in self._read(watched, watch=False).items():
            known = before[name].seen
            if seen.levels.keys() == known.levels.keys():  # whose watches still see all of it
                same.add(name)
                if seen != known:
                    found[name] = seen
        found |= self._read([name for name in names if name not in same], watch=watch)
        for gone in self._history.keys() - found.keys() - same:
            del self._history[gone]
            self._ages.pop(gone, None)
            _cancel(self._watches.pop(gone, []))
        changed = self._show(found, [name for name in names if name in found or name in same])
        if watch:
            self._full_at = time.monotonic()
            self._full_took = self._full_at - began
        return changed

    def _some(self, names: Iterable[str]) -> frozenset[str]:
        """Look at the queues that have moved, and let the rates of the others fall."""
        return self._show(self._read(sorted(names), watch=True))

    def _read(self, names: list[str], *, watch: bool) -> dict[str, Surveyed]:
        if not watch:
            return dict(overview.surveyed(self.db, names, root=self.root, timeout=TIMEOUT_SECONDS))
        found: dict[str, Surveyed] = {}
        for start in range(0, len(names), overview.BATCH):
            found |= self._watch(names[start : start + overview.BATCH])
        return found

    def _watch(self, names: list[str]) -> dict[str, Surveyed]:
        found, watches = overview.watch(self.db, names, root=self.root, timeout=TIMEOUT_SECONDS)
        for name in names:
            _cancel(self._watches.pop(name, []))
        armed = sum(map(len, self._watches.values()))
        for name, some in watches.items():
            if armed + len(some) > MAX_WATCHES:
                _cancel(some)
                continue
            armed += len(some)
            self._watches[name] = some
            for each in some:
                each.on_ready(partial(self._fired, name, some))
        return found

    def _fired(self, name: str, watches: list[ArmedWatch], _: object) -> None:
        """Called back when a watch has fired, and when it was cancelled."""
        if self._watches.get(name) is watches:
            with self._lock:
                self._moved.add(name)
            self._stirred.set()

    def _show(
        self, found: Mapping[str, Surveyed], names: list[str] | None = None
    ) -> frozenset[str]:
        """Show what was found, and of the other queues what was known; returns which have changed.

        names: all queues, in order; None for those from before.
        """
        at = time.monotonic()
        before = self._look.views
        new = {name: self._view(name, seen, at) for name, seen in found.items()}
        if at - self._fell_at >= TICK_SECONDS:
            self._fell_at = at
            for name in [*self._falling]:
                if name not in new and name in before:
                    new[name] = self._view(name, before[name].seen, at)
        changed = frozenset(name for name, view in new.items() if view != before.get(name))
        self._falling |= {name for name, view in new.items() if view.rate_in or view.rate_out}
        self._falling -= {name for name, view in new.items() if not (view.rate_in or view.rate_out)}
        views = {**before, **new}
        if names is not None:
            views = {name: views[name] for name in names}
            self._falling &= views.keys()
        self._look = QueueViews(views, at, self._look.conflicts)
        return changed

    def _view(self, name: str, seen: Surveyed, at: float) -> QueueView:
        samples = self._history.setdefault(name, deque(maxlen=SAMPLES))
        depth = seen.depth
        now = Sample(at, depth.enqueued, depth.done, depth.ready)
        if len(samples) > 1 and at - samples[-2].at < SAMPLE_SECONDS:
            samples.pop()
        samples.append(now)
        base = next((each for each in samples if at - each.at <= RATE_SECONDS), now)
        passed = at - base.at
        rate_in, rate_out = (
            _as_shown(max(0, new - old) / passed) if passed > 0 else 0.0
            for old, new in ((base.enqueued, now.enqueued), (base.done, now.done))
        )
        return QueueView(name, seen, depth, rate_in, rate_out, tuple(samples))


def _as_shown(rate: float) -> float:
    """A rate as precise as pages show it, so that a row comes again only if it looks different."""
    return round(rate, 1) if rate < 10 else float(round(rate))


def _cancel(watches: Iterable[ArmedWatch]) -> None:
    for each in watches:
        each.cancel()
