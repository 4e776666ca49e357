"""Where a run takes place: the queues, and the marks that settle unknown outcomes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fdbqueue import KeyLimits, Producer, Queue, Subscription, fdb
from fdbqueue.schema.scope import Scheme
from fdbqueue.store import world
from fdbqueue.store.clocks import Clock

LEASE = 2.0
WORKERS_LEASE = 300.0
"""Longer than a run may wait: what a worker held that was killed must return before."""
MAX_ATTEMPTS = 8
MAX_SKEW_MS = 500

QUEUES: dict[str, dict[str, Any]] = {
    "first": {"levels": 3, "history_seconds": 86_400},
    "staged": {"levels": 3},
    "auto": {"levels": 10, "keys": KeyLimits(concurrency=3)},
    "worked": {"levels": 3},
    "watched": {"levels": 3},
    "filtered": {"levels": 2},
}
SCHEMES: dict[str, Scheme] = {"first": "first", "staged": "staged", "filtered": "staged"}
"""How some are received from, whatever the contention."""
CALLBACKS = "callbacks"
"""The queue of the callbacks of all groups, which nobody takes from."""
TAKEN = ("first", "staged", "auto")
"""Queues that plain, transactional and batch consumers take from."""
BROWSERS: dict[str, str | None] = {"all": None, "eu": "region = 'eu'"}
FILTERS = {"eu": "region = 'eu'", "us": "region = 'us'"}
REGIONS = ("eu", "us")
KEYS = ("k0", "k1", "k2", "k3")
LIMITS = (("api", "shared"), ("zone", "shared"))
"""The limits that messages of all queues in ``TAKEN`` share."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is told: who it is, where everything is, and what it must suffer."""

    role: str
    name: str
    seed: int
    store: str
    root: str
    history: str
    stop: str
    threads: int = 2
    skew_ms: int = 0
    buggify: bool = False
    interrupts: float = 0.0
    """Seconds between signals whose handler raises in the first thread; 0 for none."""
    pace: float = 0.0
    batch: int = 20

    def to_text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Job:
        """From the command line."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Skewed(Clock):
    """A machine whose wall clock is wrong by some milliseconds."""

    skew_ms: int

    def wall_ms(self) -> int:
        """The wrong wall clock."""
        return super().wall_ms() + self.skew_ms


@dataclass(frozen=True)
class Later(Clock):
    """Both clocks a while ahead: what would lapse by then has lapsed."""

    seconds: int

    def wall_ms(self) -> int:
        """The wall clock to be."""
        return super().wall_ms() + self.seconds * 1000

    def versions_ahead(self) -> int:
        """How far the version to be is ahead."""
        return self.seconds * 1_000_000


class Place:
    """The queues and marks of a run, below one prefix."""

    def __init__(self, db: fdb.Database, root: str, clock: Clock | None = None) -> None:
        self.db = db
        self.space = fdb.Subspace(rawPrefix=bytes.fromhex(root))
        self.root = self.space.subspace(("queues",))
        self.queues = {name: Queue(name, self.root, clock=clock or Clock()) for name in QUEUES}
        for name, scheme in SCHEMES.items():
            self.queues[name]._entry.force(scheme)
        self.callbacks = Queue(CALLBACKS, self.root, clock=clock or Clock())
        self._producers: dict[str, Producer[Any]] = {}
        self._filters: dict[str, Subscription] = {}
        self._making = world.Lock()

    def producer(self, name: str) -> Producer[Any]:
        """The producer of a queue that the threads of this process share."""
        with self._making:
            if name not in self._producers:
                self._producers[name] = self.queues[name].producer(self.db)
            return self._producers[name]

    def filter(self, name: str) -> Subscription:
        """A subscription of the filtered queue that the threads of this process share: a handle
        remembers whether it leads the line."""
        if name not in self._filters:
            opened = self.queues["filtered"].subscriptions.open(self.db, name)
            with self._making:
                self._filters.setdefault(name, opened)
        return self._filters[name]

    def create(self) -> None:
        """Make the queues and their subscriptions."""
        callbacks = Queue.create(self.db, CALLBACKS, root=self.root)
        for limit in LIMITS:
            callbacks.limits[limit].set(self.db, concurrency=3)
        for name, options in QUEUES.items():
            queue = Queue.create(
                self.db, name, root=self.root, lease=LEASE, max_attempts=MAX_ATTEMPTS, **options
            )
            if name == "watched":
                for browser, selector in BROWSERS.items():
                    queue.subscriptions.open(self.db, browser, mode="browse", selector=selector)
            if name == "filtered":
                for taker, selector in FILTERS.items():
                    queue.subscriptions.open(self.db, taker, selector=selector)

    # -- marks: written in the transaction that they tell about -------------------------------

    def mark(self, tr: fdb.Transaction, who: str, n: int, value: Any) -> None:
        """Note that an operation has committed, and what came of it."""
        tr[self.space.pack(("marks", who, n))] = json.dumps(value).encode()

    def marked(self, tr: fdb.Transaction, who: str, n: int) -> Any:
        """What an operation left; None if it has not committed."""
        value = tr[self.space.pack(("marks", who, n))].value
        return None if value is None else json.loads(value)

    def marks(self) -> Iterator[tuple[str, int, Any]]:
        """All of them."""
        space = self.space.subspace(("marks",))
        for key, value in self._rows(space):
            who, n = space.unpack(key)
            yield who, n, json.loads(value)

    def effect(self, tr: fdb.Transaction, queue: str, tag: str) -> None:
        """The effect of a message: adds one, so that a doubled one shows."""
        tr.add(self.space.pack(("effects", queue, tag)), (1).to_bytes(8, "little"))

    def effects(self) -> Iterator[tuple[str, str, int]]:
        """The queue, the tag and the number of effects of every message that had any."""
        space = self.space.subspace(("effects",))
        for key, value in self._rows(space):
            queue, tag = space.unpack(key)
            yield queue, tag, int.from_bytes(value, "little")

    def log(self, tr: fdb.Transaction, browser: str, seen: list[list[Any]]) -> None:
        """What a browser has seen, in the transaction that moves it on."""
        key = fdb.tuple.pack_with_versionstamp(
            (fdb.tuple.Versionstamp(),), self.space.pack(("seen", browser))
        )
        tr.set_versionstamped_key(key, json.dumps(seen).encode())

    def seen(self, browser: str) -> list[list[Any]]:
        """All that a browser has seen, in order."""
        space = self.space.subspace(("seen", browser))
        return [one for _, value in self._rows(space) for one in json.loads(value)]

    def _rows(self, space: fdb.Subspace) -> Iterator[tuple[bytes, bytes]]:
        every = space.range()
        begin, end = every.start, every.stop
        while True:
            rows = list(self._page(self.db, begin, end))
            yield from rows
            if len(rows) < 1000:
                return
            begin = rows[-1][0] + b"\0"

    @staticmethod
    @fdb.transactional
    def _page(tr: fdb.Transaction, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return [(bytes(kv.key), bytes(kv.value)) for kv in tr.get_range(begin, end, limit=1000)]
