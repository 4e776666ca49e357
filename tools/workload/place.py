"""Where a run takes place: the queues, and the marks that settle unknown outcomes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from fdbqueue import Bounds, KeyLimits, Queue, QueueOptions, Subscription, fdb, list_queues
from fdbqueue.schema.scope import Scheme
from fdbqueue.store import world
from fdbqueue.store.clocks import Clock

LEASE = 2.0
WORKERS_LEASE = 60.0
"""What a worker held that was killed must return long before."""
MAX_ATTEMPTS = 8
MAX_DEATHS = 4
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
MIXED, TARGET, MADE = "mixed", "target", "made"
"""The queue whose options change and whose messages have every property, where they go, and one
that is deleted and made anew."""
SOURCED, SCHEDULE, TICK_SECONDS, BURST = "sourced", "ticks", 2.0, 3
"""The queue that a schedule and a sink fill, and the burst of its rate, one a second."""
ABOUT: dict[str, Sequence[str]] = {
    "taken": [*QUEUES],
    "subscribed": ["watched", "filtered"],
    "grouped": [*TAKEN, "worked"],
    "mixed": [MIXED, TARGET],
    "planned": [MIXED],
    "made": [MADE],
    "sourced": [SOURCED],
}
"""By area of operations: the queues that they are about."""
TARGETS: list[dict[str, Any]] = [
    {},
    {"sort": "n"},
    {"last_value": "n"},
    {"last_value": "region"},
    {"bounds": Bounds(messages=40, when_full="reject")},
    {"bounds": Bounds(bytes=100_000, when_full="block")},
    {"bounds": Bounds(messages=40, when_full="drop-oldest", dropped="dead")},
]
"""What of ``TARGET`` is fixed by the seed."""
BROWSERS: dict[str, str | None] = {"all": None, "eu": "region = 'eu'"}
FILTERS = {"eu": "region = 'eu'", "us": "region = 'us'"}
REGIONS = ("eu", "us")
KEYS = ("k0", "k1", "k2", "k3")
LIMITS, SLOTS = (("api", "shared"), ("zone", "shared")), 3
"""The limits that messages of all queues in ``TAKEN`` share, and how many may be out of each."""
SHARED = (("db", "shared"), ("net", "shared"))
"""Limits that messages of ``MIXED``, ``TARGET`` and ``MADE`` share."""
QUEUE_LEVEL = {name: QueueOptions.of(options).level for name, options in QUEUES.items()}
"""The level of a priority in each queue."""


class Place:
    """The queues and marks of a run, below one prefix, and handles of a process on them.

    queues: those whose history is checked in full.
    """

    def __init__(self, db: fdb.Database, root: str, seed: int, clock: Clock | None = None) -> None:
        self.db, self.clock = db, clock or Clock()
        self.space = fdb.Subspace(rawPrefix=bytes.fromhex(root))
        self.root = self.space.subspace(("queues",))
        chance = random.Random(f"place:{seed}")
        self.fixed = chance.choice(TARGETS)
        self.ordered = "sort" in self.fixed or "last_value" in self.fixed
        """Whether ``TARGET`` takes no messages with a key."""
        self.largest = chance.choice([100_000, 100_000, 1_000_000, 8_000_000])
        """The bytes of the largest payload."""
        self.keyed = chance.choice([0.1, 0.5])
        """How many messages have a key, or count in a limit."""
        self.rate = chance.choice([None, "1/s"])
        """Of the keys of ``MIXED``, until its options are changed."""
        self.taken: list[str] = [*TAKEN]
        """Of these, the queues that clients use now."""
        self.mixed_now = [MIXED, MIXED, MIXED, TARGET]
        """Of these two, the queues that clients use now."""
        self.subscribed_now = ["watched", "watched", "filtered"]
        """Of the queues with subscriptions, those to which clients enqueue now."""
        self.usual: int | None = None
        """The priority of all messages now; None if they have several."""
        self.late = 0.05
        """How many messages have a delay now."""
        self.queues = {name: self._handle(name) for name in QUEUES}
        for name, scheme in SCHEMES.items():
            self.queues[name]._entry.force(scheme)
        self.callbacks, self.made = self._handle(CALLBACKS), self._handle(MADE)
        self.sourced = self._handle(SOURCED)
        self.any = {name: self._handle(name) for name in (MIXED, TARGET)}
        self.mixed, self.target = self.any.values()
        self._filters: dict[str, Subscription] = {}
        self._making = world.Lock()

    def narrow(self, chance: random.Random) -> None:
        """Let clients use fewer queues and levels, or more delays, for some time: so they meet."""
        self.taken = chance.choice([[chance.choice(TAKEN)], [*TAKEN]])
        self.mixed_now = chance.choice([[TARGET], [MIXED, MIXED, MIXED, TARGET]])
        self.subscribed_now = chance.choice([["watched"], ["watched", "watched", "filtered"]])
        self.usual = chance.choice([None, None, 4])
        self.late = chance.choice([0.05, 0.05, 0.5])

    def _handle(self, name: str) -> Queue:
        return Queue(name, self.root, clock=self.clock)

    @property
    def taken_from(self) -> list[Queue]:
        """All queues that there are, but that of the callbacks, which nobody takes."""
        made = [self.made] if MADE in list_queues(self.db, root=self.root) else []
        return [*self.queues.values(), *self.any.values(), self.sourced, *made]

    @property
    def every(self) -> list[Queue]:
        """All queues that there are."""
        return [*self.taken_from, self.callbacks]

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
        terms: dict[str, Any] = {
            "lease": LEASE,
            "max_attempts": MAX_ATTEMPTS,
            "max_deaths": MAX_DEATHS,
        }
        queues: dict[str, dict[str, Any]] = {
            CALLBACKS: {},
            **{name: terms | options for name, options in QUEUES.items()},
            TARGET: {"levels": 2, **self.fixed},
            SOURCED: {"lease": LEASE, "max_attempts": None, "rate": f"1/s, burst {BURST}"},
            MIXED: {
                "levels": 4,
                "keys": KeyLimits(concurrency=2, rate=self.rate),
                "dedup_window": 5.0,
                **terms,
            },
        }
        made = {
            name: Queue.create(self.db, name, root=self.root, **options)
            for name, options in queues.items()
        }
        schedules = made[SOURCED].schedules
        schedules.set(self.db, SCHEDULE, every=TICK_SECONDS, catch_up="all")
        for limit in (*LIMITS, *SHARED):
            made[CALLBACKS].limits[limit].set(self.db, concurrency=SLOTS)
        for browser, selector in BROWSERS.items():
            made["watched"].subscriptions.open(self.db, browser, mode="browse", selector=selector)
        for taker, selector in FILTERS.items():
            made["filtered"].subscriptions.open(self.db, taker, selector=selector)

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
