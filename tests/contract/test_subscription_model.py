"""Several subscriptions against a model: a sorted list of messages, and a place for each browser.

The model has no cursors for those that acquire: they get the first messages that match, always.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

import fdbqueue
from fdbqueue import Delivery, NewMessage, Queue
from fdbqueue.messages.delivery.redelivery import release_delay
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import Position
from tests.schemes import forced

pytestmark = pytest.mark.usefixtures("small_blocks")

REGIONS = ("eu", "us", "as")
ACQUIRERS = {
    "none": None,
    "eu": "region = 'eu'",
    "not-us": "region <> 'us'",
    "again": "attempts > 0",
}
BROWSERS = {"all": None, "eu": "region = 'eu'"}
LEVELS = 3
LEASE = 60.0
REST = 45.0


@dataclass(order=True)
class Stored:
    position: Position
    region: str = field(compare=False)
    attempts: int = field(default=0, compare=False)
    released: int = field(default=0, compare=False)
    """Releases without an error since the last failure."""

    def fail(self) -> None:
        self.attempts += 1
        self.released = 0

    def matches(self, selector: str | None) -> bool:
        tests = {
            None: True,
            "region = 'eu'": self.region == "eu",
            "region <> 'us'": self.region != "us",
            "attempts > 0": self.attempts > 0,
        }
        return tests[selector]


class Subscribed(RuleBasedStateMachine):
    deliveries: Bundle[Delivery | None] = Bundle("deliveries")
    scheme = "auto"

    def __init__(self) -> None:
        super().__init__()
        # Cursors move for a single message, so that few messages make every history.
        self.moves = mock.patch("fdbqueue.subscriptions.acquire.MIN_SKIPPED", 1)
        self.moves.start()
        self.db = fdbqueue.open()
        self.root = fdb.Subspace((f"test-{uuid.uuid4().hex}",))
        self.clock = ManualClock()
        self.queue = forced(
            Queue.create(
                self.db,
                "model",
                root=self.root,
                levels=LEVELS,
                lease=LEASE,
                max_attempts=None,
                clock=self.clock,
            ),
            self.scheme,
        )
        self.ready: list[Stored] = []
        self.resting: list[tuple[float, Stored]] = []
        self.leased: dict[bytes, tuple[float, Stored]] = {}
        self.places: dict[str, dict[int, Position]] = {}
        self.ends: dict[int, Position] = {}
        self.acquirers = {
            name: self.queue.subscriptions.open(self.db, name, selector=selector)
            for name, selector in ACQUIRERS.items()
        }

    def teardown(self) -> None:
        self.moves.stop()
        self.db.clear_range_startswith(self.root.key())

    @rule(regions=st.lists(st.sampled_from(REGIONS), min_size=1, max_size=4), data=st.data())
    def enqueue(self, regions: list[str], data: st.DataObject) -> None:
        messages = [
            NewMessage(b"", data.draw(st.integers(0, 9)), {"region": region}) for region in regions
        ]
        ids = self.queue.enqueue_many(self.db, messages)
        for message_id, region in zip(ids, regions, strict=True):
            position = Position.from_id(message_id)
            self.ready.append(Stored(position, region))
            self.ends[position.level] = Position(position.level, position.index, b"\xff" * 9)
        self.ready.sort()

    @rule(target=deliveries, name=st.sampled_from(sorted(ACQUIRERS)))
    def acquire(self, name: str) -> Delivery | None:
        self._return_what_is_due()
        expected = [m for m in self.ready if m.matches(ACQUIRERS[name])][:1]
        return self._leased(expected, self.acquirers[name].receive(self.db))

    @rule(target=deliveries)
    def receive(self) -> Delivery | None:
        self._return_what_is_due()
        return self._leased(self.ready[:1], self.queue.receive(self.db))

    def _leased(self, expected: list[Stored], found: Delivery | None) -> Delivery | None:
        assert [m.position for m in expected] == ([Position.from_id(found.id)] if found else [])
        if found is not None:
            self.ready.remove(expected[0])
            self.leased[found.token] = (self.clock.seconds + LEASE, expected[0])
        return found

    @rule(delivery=consumes(deliveries))
    def release(self, delivery: Delivery | None) -> None:
        if delivery is not None and delivery.token in self.leased:
            self.queue.release(self.db, delivery)
            message = self.leased.pop(delivery.token)[1]
            delay = release_delay(message.released)
            message.released += 1
            if delay:
                self.resting.append((self.clock.seconds + delay, message))
            else:
                self.ready = sorted([*self.ready, message])

    @rule(delivery=consumes(deliveries))
    def release_for_later(self, delivery: Delivery | None) -> None:
        if delivery is not None and delivery.token in self.leased:
            self.queue.release(self.db, delivery, error="no stock", delay=REST)
            message = self.leased.pop(delivery.token)[1]
            message.fail()
            self.resting.append((self.clock.seconds + REST, message))

    @rule(delivery=consumes(deliveries))
    def ack(self, delivery: Delivery | None) -> None:
        if delivery is not None and delivery.token in self.leased:
            del self.leased[delivery.token]
            self.queue.ack(self.db, delivery)

    @rule()
    def wait(self) -> None:
        self.clock.seconds += LEASE / 2 + 1

    def _return_what_is_due(self) -> None:
        for token, (expiry, message) in list(self.leased.items()):
            if expiry < self.clock.seconds:
                del self.leased[token]
                message.fail()
                self.ready.append(message)
        self.ready += [message for due, message in self.resting if due < self.clock.seconds]
        self.resting = [rest for rest in self.resting if rest[0] >= self.clock.seconds]
        self.ready.sort()

    @rule(name=st.sampled_from(sorted(BROWSERS)), limit=st.integers(1, 3))
    def browse(self, name: str, limit: int) -> None:
        browser = self.queue.subscriptions.open(
            self.db, f"browse-{name}", mode="browse", selector=BROWSERS[name]
        )
        self._return_what_is_due()
        places = self.places.setdefault(name, {})
        expected = []
        for message in self.ready:
            place = places.get(message.position.level)
            if place is not None and message.position <= place:
                continue
            places[message.position.level] = message.position
            if message.matches(BROWSERS[name]):
                expected.append(message.position)
            if len(expected) == limit:
                break
        assert [Position.from_id(m.id) for m in browser.browse(self.db, limit)] == expected

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.places)))
        browser = self.queue.subscriptions.open(self.db, f"browse-{name}")
        places: list[Position | str] = ["first", "now", *(m.position for m in self.ready)]
        to = data.draw(st.sampled_from(places))
        if isinstance(to, Position):
            browser.seek(self.db, to.to_id())
            before = int.from_bytes(to.random, "big") - 1
            random = before.to_bytes(len(to.random), "big") + b"\xff"
            self.places[name][to.level] = Position(to.level, to.index, random)
            return
        browser.seek(self.db, to)
        self.places[name] = dict(self.ends) if to == "now" else {}

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.places)))
        del self.places[name]
        self.queue.subscriptions.remove(self.db, f"browse-{name}")

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        depth = self.queue.depth(self.db)
        assert depth.ready + depth.leased + depth.delayed == sum(
            map(len, (self.ready, self.leased, self.resting))
        )


TestSubscribed = Subscribed.TestCase
TestSubscribed.settings = settings(
    max_examples=20,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class InLine(Subscribed):
    """The same, through the lines of the subscriptions and of the queue."""

    scheme = "staged"


TestInLine = InLine.TestCase
TestInLine.settings = settings(TestSubscribed.settings, max_examples=12)
