"""The whole life of messages against a plain model, with two consumers and a clock by hand.

The model is a list of records; it knows nothing of keys, leases or transactions. After every step
the counters must be those of the model, and at the end every message must be where the model says,
nothing may be stored besides, and the audit must find no deviation.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import tenacity
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import fdbqueue
from fdbqueue import Delivery, Depth, NewMessage, Queue, State
from fdbqueue.errors import LeaseLost
from fdbqueue.messages.delivery.redelivery import release_delay
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import DEFAULT, Engine, fdb
from fdbqueue.store.clocks import SYSTEM_CLOCK, Clock
from fdbqueue.values.model import HeaderValue, OnConflict

pytestmark = pytest.mark.usefixtures("small_blocks")

LEASE = 60.0
REST = 20.0
WINDOW = 300.0
LEVELS = {3: 2, 4: 1, 6: 0}
"""By priority, in a queue with three of them."""
SELDOM = 1
"""How often all runs together must do at least what the strategies would choose too seldom."""


@dataclass
class FrozenClock(Clock):
    """The wall clock stands still but for the tests, and they move the version as far.

    It begins now, so that it is believed: else a delay would end while a slow test runs.
    """

    began: int = field(default_factory=SYSTEM_CLOCK.wall_ms)

    def __post_init__(self) -> None:
        self.ms = self.began

    def wall_ms(self) -> int:
        return self.ms

    def versions_ahead(self) -> int:
        return (self.ms - self.began) * 1000


@dataclass
class Record:
    """A message as the model knows it. ``order`` is its place within its level."""

    id: str
    payload: bytes
    level: int
    state: State
    order: float = 0.0
    due: int = 0
    expires: int | None = None
    lease_until: int = 0
    holder: Delivery | None = None
    attempts: int = 0
    released: int = 0  # without an error, since the last failure
    error: str | None = None
    unique: str | None = None
    placed: bool = field(default=False)
    begun: bool = False
    alone: bool = False
    value: HeaderValue = None
    newest: bool = False  # of its value
    replaced: bool = False  # by a newer one, while it was not ready
    cancelled: bool = False  # while it is leased
    since: int = 0  # when it was enqueued first


HEADER = "value"
ORDERS = [(), ("sort",), ("last_value",), ("sort", "last_value")]
"""The options that the header is given to."""
VALUES = [None, None, 1, 2, -3, 2.5, "a", True]


def rank(value: HeaderValue) -> tuple[int, Any]:
    """The order of values: none, texts, integers, other numbers, then False and True."""
    kinds = (type(None), str, int, float, bool)
    return kinds.index(type(value)), 0 if value is None else value


class Life(RuleBasedStateMachine):
    """One queue, and what it should be."""

    @initialize(
        expired=st.sampled_from(["drop", "dead"]),
        backoff=st.booleans(),
        elsewhere=st.booleans(),
        order=st.sampled_from(ORDERS),
    )
    def create(self, expired: str, backoff: bool, elsewhere: bool, order: tuple[str, ...]) -> None:
        self.db = database()
        self.space = fdb.Subspace((f"test-{uuid.uuid4().hex}",))
        self.clock = FrozenClock()
        self.expired, self.rest = expired, REST if backoff else 0.0
        self.elsewhere = elsewhere
        self.order = order
        options: dict[str, Any] = {"dead_letter_queue": "graveyard"} if elsewhere else {}
        options |= dict.fromkeys(order, HEADER)
        self.graveyard = Queue.create(self.db, "graveyard", root=self.space, clock=self.clock)
        self.queue = Queue.create(
            self.db,
            "q",
            root=self.space,
            clock=self.clock,
            levels=3,
            lease=LEASE,
            max_attempts=2,
            expired=expired,
            backoff=tenacity.wait_fixed(REST) if backoff else None,
            **options,
        )
        self.records: list[Record] = []
        self.lost: list[Delivery] = []
        self.orders, self.names = count(1), count()
        self.forwarded = 0
        self.counts = {"enqueued": 0, "done": 0, "expired": 0, "purged": 0}
        self.dedup: dict[str, tuple[str, int]] = {}
        self.paused = False

    def teardown(self) -> None:
        if not hasattr(self, "db"):
            return
        self.finish()
        self.db.clear_range_startswith(self.space.key())

    # -- the model ---------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.clock.ms

    def of(self, state: State) -> list[Record]:
        return [record for record in self.records if record.state is state]

    def ready(self) -> list[Record]:
        return sorted(self.of(State.READY), key=self.place)

    def place(self, record: Record) -> tuple[Any, ...]:
        by = rank(record.value) if "sort" in self.order else ()
        return record.level, by, record.order

    def newest(self, record: Record) -> Record | None:
        """The newest message of the same value."""
        same = [r for r in self.records if r.newest and rank(r.value) == rank(record.value)]
        return same[0] if same and "last_value" in self.order else None

    def arrive(self, record: Record) -> None:
        """It becomes ready behind all others, and replaces the one before."""
        record.state, record.order, record.placed = State.READY, next(self.orders), True
        older = self.newest(record)
        if older is not None:
            older.newest = False
            if older.state is State.READY:
                self.end(older, "purged")
                DONE["replaced"] += 1
            else:
                older.replaced = True
        record.newest = record.value is not None

    def come_back(self, record: Record) -> None:
        """It becomes ready at its place, unless it was replaced."""
        if record.replaced:
            self.end(record, "purged")
            DONE["came too late"] += 1
        else:
            record.state = State.READY

    def holding(self, unique: str | None) -> list[Record]:
        alive = [r for r in self.records if r.state is not State.DEAD]
        return [r for r in alive if unique and r.unique == unique]

    def alive(self, record: Record) -> bool:
        return record.expires is None or record.expires > self.now

    def end(self, record: Record, counter: str) -> None:
        self.records.remove(record)
        self.counts[counter] += 1

    def die(self, record: Record) -> None:
        record.holder = None
        if self.elsewhere:
            self.forwarded += 1
            self.end(record, "purged")
        else:
            record.state, record.expires = State.DEAD, None
            record.newest = record.replaced = False

    def expire(self, record: Record) -> None:
        if self.expired == "dead":
            self.die(record)
        else:
            self.end(record, "expired")

    def give_back(self, record: Record, delay: float) -> None:
        record.holder = None
        if record.cancelled:
            self.end(record, "purged")
            return
        if not self.alive(record):
            self.expire(record)
        elif delay:
            record.state, record.due = State.DELAYED, self.now + int(delay * 1000)
        else:
            self.come_back(record)

    def fail(self, record: Record, delay: float | None) -> None:
        record.attempts += 1
        record.released = 0
        if record.attempts >= 2 and not record.cancelled:
            self.die(record)
        else:
            self.give_back(record, self.rest if delay is None else delay)

    def happen(self) -> None:
        """What receivers and sweeps do: lapses first, then what is due."""
        for record in self.of(State.LEASED):
            if record.lease_until <= self.now:
                assert record.holder is not None
                self.lost.append(record.holder)
                record.alone = True
                # The time of the lease, which is over, counts for the rest.
                if record.begun:
                    self.fail(record, max(0.0, self.rest - LEASE))
                else:
                    self.give_back(record, 0)
        due = [r for r in self.of(State.DELAYED) if r.due <= self.now]
        for record in sorted(due, key=lambda r: r.due):
            if not self.alive(record):
                self.expire(record)
                continue
            if record.placed:
                self.come_back(record)
            else:
                self.arrive(record)

    # -- producing ---------------------------------------------------------------------------

    @rule(
        priority=st.sampled_from([3, 4, 6]),
        delay=st.sampled_from([0, 0, 0, 10]),
        ttl=st.sampled_from([None, None, 30, 90]),
        unique=st.sampled_from([None, None, None, "k"]),
        dedup_id=st.sampled_from([None, None, None, "d"]),
        value=st.sampled_from(VALUES),
    )
    def enqueue(
        self,
        priority: int,
        delay: int,
        ttl: int | None,
        unique: str | None,
        dedup_id: str | None,
        value: HeaderValue = None,
    ) -> None:
        if delay and any(r.due == self.now + delay * 1000 for r in self.of(State.DELAYED)):
            # Of two producers, what is due at the same millisecond has no order.
            self.clock.ms += 1
        payload = b"%d" % next(self.names)
        message_id = self.queue.enqueue_many(
            self.db,
            [
                NewMessage(
                    payload,
                    priority,
                    headers={HEADER: value},
                    delay=delay,
                    ttl=ttl,
                    unique=unique,
                    dedup_id=dedup_id,
                )
            ],
        )[0]
        if dedup_id in self.dedup and self.dedup[dedup_id][1] > self.now:
            assert message_id == self.dedup[dedup_id][0]
            return
        for record in self.holding(unique):
            # One that waits and has expired ends here, at the latest.
            if record.state is not State.LEASED and not self.alive(record):
                self.expire(record)
        holders = self.holding(unique)
        if holders:
            assert message_id == holders[0].id
            return
        if dedup_id:
            self.dedup[dedup_id] = (message_id, self.now + int(WINDOW * 1000))
        self.added(message_id, payload, priority, value, delay=delay, ttl=ttl, unique=unique)

    @rule(
        priority=st.sampled_from([3, 4, 6]),
        delay=st.sampled_from([5, 10]),
        how=st.sampled_from(["replace", "debounce"]),
        max_delay=st.sampled_from([None, 8, 20]),
        value=st.sampled_from(VALUES),
        more=st.booleans(),
    )
    def replace(
        self,
        priority: int,
        delay: int,
        how: OnConflict,
        max_delay: int | None,
        value: HeaderValue,
        more: bool,
    ) -> None:
        """An enqueue that changes the message that holds its unique key, and perhaps another."""
        self.sweep()
        debounces = how == "debounce"
        holder = next(iter(self.holding("k")), None)
        waits = holder is not None and holder.state is not State.LEASED
        due = self.now + delay * 1000 if debounces else None
        if holder is not None and waits:
            due = self.put_off(holder, delay, max_delay) if debounces else None
            if due is None and holder.state is State.DELAYED:
                due = holder.due
        if any(r.due == due and r is not holder for r in self.of(State.DELAYED)):
            return  # What is due at the same millisecond has no order.
        payload = b"%d" % next(self.names)
        message_id = self.queue.enqueue(
            self.db,
            payload,
            priority=priority,
            headers={HEADER: value},
            delay=delay if debounces else 0,
            unique="k",
            on_conflict=how,
            max_delay=max_delay if debounces else None,
        )
        if holder is None or not waits:
            if holder is not None:
                holder.unique = None
            later = delay if debounces else 0
            self.added(message_id, payload, priority, value, delay=later, unique="k")
        else:
            self.changed(holder, message_id, payload, priority, value, due)
            DONE[how] += 1
        if more:
            self.replace(priority, delay, how, max_delay, value, False)

    @precondition(lambda self: not self.paused)
    @rule(rest=st.sampled_from([7, 40]), max_delay=st.sampled_from([None, 20]))
    def replace_what_rests(self, rest: int, max_delay: int | None) -> None:
        """A message that rests after an attempt does not rest shorter for a debounce."""
        self.replace(6, 5, "replace", None, None, False)
        self.receive("one", 3)
        for record in [each for each in self.holding("k") if each.state is State.LEASED]:
            assert record.holder is not None
            self.queue.release(self.db, record.holder, delay=rest)
            self.lost.append(record.holder)
            self.give_back(record, rest)
            DONE["rest"] += record.state is State.DELAYED
        self.replace(6, 10, "debounce", max_delay, None, False)

    @precondition(lambda self: not self.paused and "last_value" in self.order)
    @rule(value=st.sampled_from([each for each in VALUES if each is not None]))
    def come_too_late(self, value: HeaderValue) -> None:
        """What is leased when a newer one of its value comes does not come back."""
        self.enqueue(6, 0, None, None, None, value)
        self.receive("one", 3)
        self.enqueue(6, 0, None, None, None, value)
        for record in [each for each in self.of(State.LEASED) if each.replaced]:
            assert record.holder is not None
            self.queue.release(self.db, record.holder, delay=0)
            self.lost.append(record.holder)
            self.give_back(record, 0)

    def put_off(self, record: Record, delay: int, max_delay: int | None) -> int | None:
        """When it is due, after a debounce."""
        asked = self.now + delay * 1000
        if max_delay is not None:
            asked = min(asked, record.since + max_delay * 1000)
        if record.state is State.READY:
            return asked if asked > self.now else None
        return max(asked, record.due) if record.placed else asked

    def changed(
        self,
        old: Record,
        message_id: str,
        payload: bytes,
        priority: int,
        value: HeaderValue,
        due: int | None,
    ) -> None:
        """It says something else, or another is in its place."""
        if self.order:
            assert message_id != old.id
            self.end(old, "purged")
            delay = 0 if due is None else 1
            self.added(message_id, payload, priority, value, delay=delay, unique="k")
            new = next(r for r in self.records if r.id == message_id)
            new.since, new.due = old.since, due or new.due
            return
        assert message_id == old.id
        if LEVELS[priority] != old.level:
            old.level = LEVELS[priority]
            old.order = next(self.orders) if old.placed else 0.0
        old.payload, old.value, old.expires = payload, value, None
        old.attempts = old.released = 0
        old.error, old.alone = None, False
        if due is not None:
            old.state, old.due = State.DELAYED, due
            if due <= self.now:
                self.happen()

    @rule(
        some=st.lists(
            st.tuples(st.sampled_from([3, 4, 6]), st.sampled_from(VALUES)), min_size=2, max_size=6
        )
    )
    def enqueue_some(self, some: list[tuple[int, HeaderValue]]) -> None:
        """Together: those of one level share a row."""
        messages = [
            NewMessage(b"%d" % next(self.names), priority, headers={HEADER: value})
            for priority, value in some
        ]
        ids = self.queue.enqueue_many(self.db, messages)
        for message_id, message, (priority, value) in zip(ids, messages, some, strict=True):
            self.added(message_id, message.payload, priority, value)

    def added(
        self,
        message_id: str,
        payload: bytes,
        priority: int,
        value: HeaderValue,
        *,
        delay: int = 0,
        ttl: int | None = None,
        unique: str | None = None,
    ) -> None:
        self.counts["enqueued"] += 1
        record = Record(
            id=message_id,
            payload=payload,
            level=LEVELS[priority],
            state=State.DELAYED,
            due=self.now + delay * 1000,
            expires=None if ttl is None else self.now + ttl * 1000,
            unique=unique,
            value=value,
            since=self.now,
        )
        if not delay:
            self.arrive(record)
        self.records.append(record)

    # -- consuming ---------------------------------------------------------------------------

    @rule(consumer=st.sampled_from(["one", "two"]), most=st.integers(1, 3))
    def receive(self, consumer: str, most: int) -> None:
        found = self.queue.receive_many(self.db, most, consumer=consumer)
        if self.paused:
            assert found == []
            self.follow_a_leader()
            return
        self.happen()
        if not found:
            for record in self.ready():
                assert not self.alive(record), "empty is answered only if there is nothing"
                self.expire(record)
            return
        # A batch may end at a message that has expired, but it never leaves one out.
        front = self.ready()
        alone = [r for r in self.records if r.alone and r.id in {one.id for one in found}]
        assert not alone or len(found) == 1
        for delivery in found:
            while not self.alive(front[0]):
                self.expire(front.pop(0))
            record = front.pop(0)
            assert (delivery.id, delivery.payload) == (record.id, record.payload)
            assert delivery.attempt == record.attempts + 1
            assert delivery.message.last_error == record.error
            record.state, record.holder = State.LEASED, delivery
            record.begun = len(found) == 1
            record.lease_until = self.now + int(LEASE * 1000)
        self.adopt_expired(front)

    def adopt_expired(self, candidates: list[Record]) -> None:
        """Which of the expired messages behind them a receive met is its own business."""
        gone = [r for r in candidates if not self.alive(r) and not self.is_ready(r.id)]
        for record in gone:
            self.expire(record)

    def follow_a_leader(self) -> None:
        """Of a paused queue, a leader of the line ends leases and delays; others leave them."""
        over = [r for r in self.of(State.LEASED) if r.lease_until <= self.now]
        over += [r for r in self.of(State.DELAYED) if r.due <= self.now]
        found = [(record, self.queue.get(self.db, record.id)) for record in over]
        if any(one is None or one.state is not record.state for record, one in found):
            self.happen()

    def is_ready(self, message_id: str) -> bool:
        found = self.queue.get(self.db, message_id)
        return found is not None and found.state is State.READY

    @precondition(lambda self: not self.paused)
    @rule(most=st.integers(1, 2))
    def dequeue(self, most: int) -> None:
        for _ in range(most):
            self.dequeue_one()

    def dequeue_one(self) -> None:
        found = self.queue.receive(self.db, at_most_once=True)
        self.happen()
        front = self.ready()
        while front and not self.alive(front[0]):
            self.expire(front.pop(0))
        assert (found is None) == (not front)
        if found is not None:
            assert found.id == front[0].id
            self.end(front.pop(0), "done")
            DONE["dequeue"] += 1
        self.adopt_expired(front)

    @precondition(lambda self: bool(self.of(State.LEASED)))
    @rule(data=st.data(), how=st.sampled_from(["rest", "fail", "fail now"]), seconds=st.just(21))
    def fail_and_wait(self, data: st.DataObject, how: str, seconds: int) -> None:
        self.settle(data, how)
        self.wait(seconds)
        self.receive("one", 3)

    @precondition(lambda self: bool(self.of(State.LEASED)))
    @rule(data=st.data(), how=st.sampled_from(["ack", "release", "rest", "fail", "fail now"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        record = data.draw(st.sampled_from(self.of(State.LEASED)))
        assert record.holder is not None
        delivery = record.holder
        if how == "ack":
            self.queue.ack(self.db, delivery)
            self.end(record, "done")
        elif how == "release":
            self.queue.release(self.db, delivery)
            self.give_back(record, release_delay(record.released))
            record.released += 1
        elif how == "rest":
            self.queue.release(self.db, delivery, delay=15)
            self.give_back(record, 15)
        else:
            delay = 0 if how == "fail now" else None
            record.error = f"error {next(self.names)}"
            self.queue.release(self.db, delivery, error=record.error, delay=delay)
            self.fail(record, delay)
        self.lost.append(delivery)

    @precondition(lambda self: bool(self.of(State.LEASED)))
    @rule(data=st.data(), drop=st.booleans())
    def reject(self, data: st.DataObject, drop: bool) -> None:
        record = data.draw(st.sampled_from(self.of(State.LEASED)))
        assert record.holder is not None
        self.queue.reject(self.db, record.holder, "no", drop=drop)
        self.lost.append(record.holder)
        record.attempts += 1
        record.error = "no"
        if drop or record.cancelled:
            self.end(record, "purged")
        else:
            self.die(record)

    @precondition(lambda self: bool(self.of(State.LEASED)))
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.of(State.LEASED)))
        assert record.holder is not None
        record.holder = self.queue.extend(self.db, record.holder)
        assert record.holder.cancelled == record.cancelled
        record.lease_until = self.now + int(LEASE * 1000)

    @precondition(lambda self: bool(self.lost))
    @rule(data=st.data())
    def settle_what_is_lost(self, data: st.DataObject) -> None:
        delivery = data.draw(st.sampled_from(self.lost))
        attempts = [
            lambda: self.queue.ack(self.db, delivery),
            lambda: self.queue.release(self.db, delivery, error="late"),
            lambda: self.queue.reject(self.db, delivery, "late"),
            lambda: self.queue.extend(self.db, delivery),
        ]
        try:
            data.draw(st.sampled_from(attempts))()  # type: ignore[no-untyped-call]
        except LeaseLost:
            return
        raise AssertionError("a lease was settled twice")

    @precondition(lambda self: bool(self.of(State.LEASED)))
    @rule(data=st.data(), sweep=st.booleans())
    def let_leases_lapse(self, data: st.DataObject, sweep: bool) -> None:
        self.wait(61)
        if sweep:
            self.sweep()
        else:
            self.receive("two", 2)
        if self.lost:
            self.settle_what_is_lost(data)

    @rule(consumer=st.sampled_from(["one", "two"]))
    def rest_until_expired(self, consumer: str) -> None:
        """Messages that expire in each of the states that a sweep meets them in."""
        for delay in (10, 0):
            self.enqueue(priority=6, delay=delay, ttl=30, unique=None, dedup_id=None)
        self.receive(consumer, 1)
        for record in self.of(State.LEASED):
            assert record.holder is not None
            self.queue.release(self.db, record.holder, delay=40)
            self.lost.append(record.holder)
            self.give_back(record, 40)
        self.wait(31)
        self.sweep()

    # -- looking after -----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 9, 16, 31, 61, 301]))
    def wait(self, seconds: int) -> None:
        self.clock.ms += seconds * 1000

    @rule()
    def sweep(self) -> None:
        self.queue.admin.sweep(self.db)
        self.happen()
        # What rests after a lapse may be due at once; what has expired goes, unless it is leased.
        for record in [*self.of(State.READY), *self.of(State.DELAYED)]:
            if not self.alive(record):
                self.expire(record)

    @precondition(lambda self: bool(self.records))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.records))
        waits = record.state in (State.READY, State.DELAYED)
        asked = record.state is State.LEASED and not record.cancelled
        assert self.queue.cancel(self.db, record.id).taken == waits or asked
        if waits:
            self.end(record, "purged")
        elif record.state is State.LEASED:
            record.cancelled, record.unique = True, None

    @precondition(lambda self: bool(self.of(State.DEAD)))
    @rule(data=st.data(), purge=st.booleans())
    def tend_the_dead(self, data: st.DataObject, purge: bool) -> None:
        record = data.draw(st.sampled_from(self.of(State.DEAD)))
        if purge:
            assert self.queue.purge(self.db, [record.id], states="dead").taken == 1
            self.end(record, "purged")
            return
        free = not self.holding(record.unique) and self.newest(record) is None
        assert self.queue.retry(self.db, [record.id]).taken == free
        if not free:
            return
        record.attempts = 0
        self.arrive(record)

    @precondition(lambda self: not self.paused)
    @rule(
        data=st.data(),
        how=st.sampled_from(["release", "rest", "fail", "fail now", "lapse"]),
        value=st.sampled_from(VALUES[2:]),
    )
    def replace_and_return(self, data: st.DataObject, how: str, value: HeaderValue) -> None:
        """A newer message comes while one is leased."""
        terms: dict[str, Any] = {"priority": 6, "delay": 0, "unique": None, "dedup_id": None}
        self.enqueue(**terms, ttl=None, value=value)
        self.receive("one", 3)
        held = [record for record in self.of(State.LEASED) if record.value == value]
        self.enqueue(**terms, ttl=30, value=value)
        if how == "lapse":
            self.wait(61)
            self.sweep()
        elif held:
            self.settle(data, how)
            self.wait(16)

    def editable(self) -> list[Record]:
        """What waits, but for what is due: an edit makes all of that ready."""
        later = [record for record in self.of(State.DELAYED) if record.due > self.now]
        return self.of(State.READY) + later

    @precondition(lambda self: bool(self.editable()))
    @rule(data=st.data(), priority=st.sampled_from([3, 4, 6]), delay=st.sampled_from([None, 12]))
    def edit(self, data: st.DataObject, priority: int, delay: int | None) -> None:
        record = data.draw(st.sampled_from(self.editable()))
        if delay and any(r.due == self.now + delay * 1000 for r in self.of(State.DELAYED)):
            self.clock.ms += 1
        assert self.queue.edit(self.db, record.id, priority=priority, delay=delay)
        if LEVELS[priority] != record.level:
            record.level = LEVELS[priority]
            record.order = next(self.orders) if record.placed else 0.0
        if delay:
            record.state, record.due = State.DELAYED, self.now + delay * 1000

    @rule(refill=st.lists(st.sampled_from([3, 4, 6]), max_size=3))
    def purge(self, refill: list[int]) -> None:
        """Purges what is ready, alive or not, and fills up again, or there is little to do."""
        there = self.ready()
        assert self.queue.purge(self.db).taken == len(there)
        for record in there:
            self.end(record, "purged")
            DONE["purge"] += 1
        for priority in refill:
            self.enqueue(priority=priority, delay=0, ttl=None, unique=None, dedup_id=None)

    @precondition(lambda self: not self.paused)
    @rule()
    def pause(self) -> None:
        self.paused = True
        self.queue.admin.pause(self.db)
        there = self.ready()
        assert self.queue.receive(self.db, at_most_once=True) is None
        assert self.queue.receive_many(self.db, 3) == []
        self.follow_a_leader()
        DONE["pause"] += bool(there)

    @precondition(lambda self: self.paused)
    @rule()
    def resume(self) -> None:
        self.paused = False
        self.queue.admin.resume(self.db)
        DONE["resume"] += 1

    # -- what must hold ----------------------------------------------------------------------

    @invariant()
    def the_counters_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        wanted = Depth(
            ready=len(self.of(State.READY)),
            delayed=len(self.of(State.DELAYED)),
            leased=len(self.of(State.LEASED)),
            dead=len(self.of(State.DEAD)),
            ready_bytes=sum(len(r.payload) for r in self.of(State.READY)),
            **self.counts,
        )
        assert self.queue.depth(self.db) == wanted
        assert self.graveyard.depth(self.db).ready == self.forwarded

    @invariant()
    def the_order_agrees(self) -> None:
        if hasattr(self, "queue"):
            found = [message.id for message in self.queue.peek(self.db, 1000)]
            assert found == [record.id for record in self.ready()]

    def finish(self) -> None:
        for record in self.records:
            found = self.queue.get(self.db, record.id)
            assert found is not None
            assert (found.state, found.message.attempts) == (record.state, record.attempts)
            assert found.cancelled == record.cancelled
        result = self.queue.admin.verify(self.db)
        assert not result.deviations, result
        self.queue.admin.resume(self.db)
        self.queue.purge(self.db)
        for record in self.of(State.LEASED):
            assert record.holder is not None
            self.queue.ack(self.db, record.holder)
        for record in self.of(State.DELAYED):
            self.queue.cancel(self.db, record.id)
        self.queue.purge(self.db, states="dead")
        # What claims leave that were settled one by one goes when it falls due.
        self.clock.ms += 2_000 * int(LEASE)
        self.queue.admin.sweep(self.db)
        kinds = (
            Kind.MOVED,
            Kind.UNIQUE,
            Kind.MORTAL,
            Kind.UNTIL,
            Kind.EXPIRY,
            Kind.CHUNK,
            Kind.LATEST,
        )
        left = [
            kind.name
            for kind in kinds
            if self.db.get_range(
                self.queue._keys.kind(kind).start, self.queue._keys.kind(kind).stop, limit=1
            )
        ]
        assert left == [], "what is over leaves nothing behind"


DONE: Counter[str] = Counter()
"""What the runs have come to do, of what is easily left out."""

_DATABASES: list[fdb.Database] = []


def database() -> fdb.Database:
    """One store for all runs: they keep apart by their subspaces."""
    if not _DATABASES:
        path = DEFAULT.path
        if DEFAULT.engine is Engine.EMBEDDED:
            path = os.path.join(tempfile.mkdtemp(prefix="fdbqueue-model-"), "store.fdbq")
        _DATABASES.append(fdbqueue.open(path))
    return _DATABASES[0]


@pytest.mark.long
@pytest.mark.promise(1)
def test_the_life_of_messages_is_that_of_the_model() -> None:
    DONE.clear()
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=40,
            stateful_step_count=50,
            # Shrinking one of these takes minutes and tells little more.
            phases=(Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )
    often = (
        "dequeue",
        "purge",
        "pause",
        "resume",
        "replaced",
        "came too late",
        "replace",
        "debounce",
        "rest",
    )
    assert all(DONE[each] >= SELDOM for each in often), DONE
