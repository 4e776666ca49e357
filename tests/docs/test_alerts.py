"""Each alert of docs/kit fires in the incident that it is for, and none where all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families as parsed

from fdbqueue import Message, NewMessage, Queue, Run
from fdbqueue.metrics import QueueCollector, WorkerMetrics
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.worker import Worker
from tests.docs.promql import Scrape, firing, rules
from tests.patience import eventually
from tests.taking import take

WORKED = {"FdbqueueFailing", "FdbqueueHandlerFails", "FdbqueueLeasesLost"}
"""Those for which a worker runs, so that the clock is the real one."""


class Site:
    """A queue, its worker, and who scrapes them, each minute of a clock that the test moves."""

    def __init__(self, db: fdb.Database, space: fdb.Subspace) -> None:
        self.db, self.clock = db, ManualClock()
        self.queue = Queue.create(db, "orders", root=space, backoff=None, clock=self.clock)
        self.scrapes: list[tuple[float, Scrape]] = []
        self.registry = CollectorRegistry()
        self.metrics = WorkerMetrics(self.registry)
        self.collector = QueueCollector(db, lambda: [self.queue])
        self.answers, self.real = True, False

    def minutes(self, count: int, each: Callable[[], object] = lambda: None) -> None:
        """Let time pass. each: what happens in each minute."""
        for _ in range(count):
            each()
            found: Scrape = {}
            texts = [self.metrics.exposition()[1], self.collector.exposition()[1]]
            for text in texts if self.answers else ():
                for family in parsed(text.decode()):
                    for one in family.samples:
                        found[one.name, frozenset(one.labels.items())] = one.value
            self.scrapes.append((60.0 * len(self.scrapes), found))
            self.clock.seconds += 0 if self.real else 60

    def handle(self, count: int = 1, payload: bytes = b"x") -> None:
        """Let the worker handle messages."""
        before = self._handled()
        self.queue.enqueue_many(self.db, [payload] * count)
        eventually(lambda: self._handled() >= before + count)

    def _handled(self) -> float:
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "fdbqueue_handled_total"
        )

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        return {rule["alert"] for rule in rules() if firing(rule, self.scrapes)}


@pytest.fixture
def site(db: fdb.Database, space: fdb.Subspace) -> Site:
    return Site(db, space)


@pytest.fixture
def worked(site: Site) -> Iterator[Site]:
    """With a worker."""
    site.real = True

    def handle(message: Message) -> None:
        if message.payload == b"bad":
            raise ValueError("bad")
        if message.payload == b"lost":
            (held,) = site.queue.admin.leases(site.db)
            site.queue.ack(site.db, held.delivery)

    with Worker(site.db, metrics=site.metrics).add(site.queue, handle):
        yield site


def unreadable(site: Site) -> None:
    site.db[site.queue._keys.meta] = b"\x63"
    site.minutes(20)


def retrying(site: Site) -> None:
    site.queue.set_options(site.db, backoff={"wait": "wait_fixed", "seconds": 86_400})
    site.queue.enqueue_many(site.db, [b"x"] * 101)
    for delivery in site.queue.receive_many(site.db, 101):
        site.queue.release(site.db, delivery, error="no stock")
    site.minutes(20)


def unread(site: Site) -> None:
    site.queue.subscriptions.open(site.db, "audit", mode="browse")
    site.queue.enqueue_many(site.db, [b"x"] * 1_000)
    site.minutes(65)


def dead(site: Site) -> None:
    site.queue.enqueue(site.db, b"x")
    site.minutes(5)
    delivery = take(site.db, site.queue)
    site.queue.reject(site.db, delivery, "no stock")
    site.minutes(5)


def unmeasured(site: Site) -> None:
    site.minutes(2)
    site.answers = False
    site.minutes(7)


def ready(site: Site) -> None:
    site.queue.enqueue(site.db, b"x")
    site.minutes(12)


def late(site: Site) -> None:
    site.queue.enqueue(site.db, b"x", delay=60)
    site.minutes(10)


def leased(site: Site) -> None:
    site.queue.enqueue(site.db, b"x")
    assert site.queue.receive(site.db, lease=7_200)
    timeout = Run().timeout
    assert isinstance(timeout, float | int)
    site.minutes(int(timeout / 60))  # until a worker would give its handler up


def keyed(site: Site) -> None:
    site.queue.enqueue_many(site.db, [NewMessage(b"x", key="k")] * 2)
    site.minutes(22)


def paused(site: Site) -> None:
    site.queue.admin.pause(site.db)
    site.minutes(62)


def failing(site: Site) -> None:
    def some() -> None:
        site.handle(2)
        site.handle(1, b"bad")

    site.minutes(25, some)


def always_failing(site: Site) -> None:
    site.minutes(12, lambda: site.handle(1, b"bad"))


def losing(site: Site) -> None:
    site.minutes(3, site.handle)
    site.minutes(2, lambda: site.handle(1, b"lost"))


INCIDENTS: dict[str, Callable[[Site], None]] = {
    "FdbqueueNotMeasured": unmeasured,
    "FdbqueueUnreadable": unreadable,
    "FdbqueueOldestReady": ready,
    "FdbqueueNoConsumers": ready,
    "FdbqueueOverdue": late,
    "FdbqueueDeadLetters": dead,
    "FdbqueueFailing": failing,
    "FdbqueueHandlerFails": always_failing,
    "FdbqueueRunsLong": leased,
    "FdbqueueRetrying": retrying,
    "FdbqueueUnread": unread,
    "FdbqueueLeasesLost": losing,
    "FdbqueueKeyWaits": keyed,
    "FdbqueuePaused": paused,
}


@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_an_alert_fires_in_its_incident(request: pytest.FixtureRequest, alert: str) -> None:
    site: Any = request.getfixturevalue("worked" if alert in WORKED else "site")
    INCIDENTS[alert](site)
    assert alert in site.firing()


def test_no_alert_fires_where_all_is_well(worked: Site) -> None:
    worked.minutes(10, lambda: worked.handle(20))
    worked.handle(1, b"bad")
    worked.minutes(60, lambda: worked.handle(20))
    assert worked.firing() == set()
