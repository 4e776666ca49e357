"""Keys with slots beside a model of them, through everything that may happen to a message."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Delivery, NewMessage, Queue, verify
from fdbqueue.errors import InvalidOptions
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import fdb
from tests.still_clock import StillClock

KEYS = ("a", "b")
LIMITS = st.sampled_from([None, 1, 2, 3, 5])
INTERVALS = {None: 0, "6/min": 10_000, "12/min": 5_000, "1/min": 60_000}
"""Rates, with the time from one message to the next, in milliseconds."""
RATES = st.sampled_from([(None, 1), ("6/min", 1), ("6/min", 3), ("12/min", 1), ("1/min", 2)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)),
        st.tuples(st.just("receive")),
        st.tuples(
            st.sampled_from(["ack", "drop", "reject", "release", "put off"]), st.integers(0, 9)
        ),
        st.tuples(st.just("ack many"), st.integers(1, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 99)),
        st.tuples(st.just("pass"), st.one_of(st.integers(1, 25), st.sampled_from([61, 601]))),
        st.tuples(st.sampled_from(["redrive", "purge"])),
        st.tuples(st.just("limit"), st.sampled_from(KEYS), LIMITS),
        st.tuples(st.sampled_from(["pause", "resume", "reset"]), st.sampled_from(KEYS)),
        st.tuples(st.just("window"), st.sampled_from(KEYS), LIMITS),
        st.tuples(st.just("weight"), st.sampled_from(KEYS), st.integers(1, 3)),
        st.tuples(st.just("default"), LIMITS, LIMITS, st.integers(1, 3)),
        st.tuples(st.just("rate"), st.sampled_from(KEYS), RATES),
        st.tuples(st.just("default rate"), RATES),
    ),
    max_size=40,
)


class Model:
    """What is out, and what waits. A message is its number; ready ones have their places.

    now: the time in milliseconds. due: when the next message of a key is expected, and the rate
    and burst with which that was found. came: when messages became ready since the last change.
    """

    def __init__(self) -> None:
        self.default: dict[str, Any] = {"concurrency": 2, "window": None, "weight": 1}
        self.default |= {"rate": None}
        self.now = 0
        self.due: dict[str, tuple[int, object]] = {}
        self.came: dict[str, list[int]] = {key: [] for key in KEYS}
        self.own: dict[str, dict[str, Any]] = {key: {} for key in KEYS}
        self.waiting: dict[str, list[int]] = {key: [] for key in KEYS}
        self.slots: dict[str, set[int]] = {key: set() for key in KEYS}
        self.windows: dict[str, set[int]] = {key: set() for key in KEYS}
        self.key: dict[int, str] = {}
        self.place: dict[int, int] = {}
        self.ready: set[int] = set()
        self.dead: list[int] = []
        self.places = 0

    def limits(self, key: str) -> tuple[int | None, int | None]:
        own = {**self.default, **self.own[key]}
        places = own["window"] and own["window"] * own["weight"]
        return (0 if own.get("paused") else own["concurrency"]), places

    def may(self, key: str, name: str, value: int | None) -> bool:
        """Whether a key may have a weight, or lose its window."""
        own = {**self.own[key], name: value}
        return own.get("weight", 1) == 1 or {**self.default, **own}["window"] is not None

    def rate(self, key: str) -> tuple[int, int] | None:
        """The interval of a key, and how many messages may come at once."""
        own = {**self.default, **self.own[key]}
        return own["rate"] and (INTERVALS[own["rate"][0]], own["rate"][1])

    def expected(self, key: str, interval: int, burst: int) -> int:
        """The theoretical arrival time of the next message."""
        due, found = self.due.get(key, (0, None))
        if found != (interval, burst):
            due = min(due, self.now + burst * interval)
        return max(due, self.now)

    def in_time(self, key: str) -> bool:
        """Whether the rate of a key lets the next message come; the rate counts from then on."""
        rate = self.rate(key)
        if rate is None:
            return True
        interval, burst = rate
        due = self.expected(key, *rate)
        if due - (burst - 1) * interval <= self.now:
            return True
        self.due[key] = due, rate
        return False

    def free(self, key: str) -> bool:
        return self.permits(key) and self.in_time(key)

    def permits(self, key: str) -> bool:
        held = self.slots[key], self.windows[key]
        each = zip(held, self.limits(key), strict=True)
        return all(limit is None or len(some) < limit for some, limit in each)

    def enqueue(self, key: str, number: int) -> None:
        self.key[number] = key
        if self.waiting[key] or not self.free(key):
            self.waiting[key].append(number)
        else:
            self.let_out(key, number)

    def let_out(self, key: str, number: int) -> None:
        rate = self.rate(key)
        if rate is not None:
            self.due[key] = self.expected(key, *rate) + rate[0], rate
            self.came[key].append(self.now)
            for n, begin in enumerate(self.came[key]):
                most = rate[1] + (self.now - begin) // rate[0]
                assert len(self.came[key]) - n <= most, "more than the burst and the rate allow"
        for held, limit in zip((self.slots, self.windows), self.limits(key), strict=True):
            if limit is not None:
                held[key].add(number)
        self.places += 1
        self.place[number] = self.places
        self.ready.add(number)

    def paced(self, key: str) -> None:
        """A rate may have changed: what came before does not count for it."""
        self.came[key].clear()
        self.fill(key)

    def tick(self, seconds: int) -> None:
        """Time goes on, and timers fall due one after another, but nobody looks until then."""
        self.now += seconds * 1_000
        for key in KEYS:
            self.fill(key)

    def fill(self, key: str) -> None:
        while self.waiting[key] and self.free(key):
            self.let_out(key, self.waiting[key].pop(0))

    def take(self, number: int) -> None:
        self.ready.remove(number)
        key = self.key[number]
        if number in self.windows[key]:
            self.windows[key].remove(number)
            self.freed(key)

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.slots[self.key[number]].discard(number)
            self.windows[self.key[number]].discard(number)
            self.ready.discard(number)
            if number in self.waiting[self.key[number]]:
                self.waiting[self.key[number]].remove(number)
        for key in dict.fromkeys(self.key[number] for number in numbers):
            self.freed(key)

    def freed(self, key: str) -> None:
        """Somebody looks at the rate first, so that it counts from then on."""
        if self.waiting[key] and self.in_time(key):
            self.fill(key)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(0, 2**32))
def test_keys_do_what_their_model_does(
    db: fdb.Database, space: fdb.Subspace, steps: list[Any], seed: int
) -> None:
    del db[space.range()]
    random.seed(seed)  # of the free slots, which one is taken
    clock, model = StillClock(), Model()
    terms: dict[str, Any] = {"max_attempts": None, "backoff": None}
    terms["lease"] = 30.5
    queue = Queue.create(db, "jobs", root=space, key_concurrency=2, clock=clock, **terms)
    ids: dict[int, str] = {}
    held: dict[int, Delivery] = {}
    off: set[int] = set()
    ends: dict[int, int] = {}
    for step in steps:
        match step:
            case ("enqueue", keys):
                new = range(len(ids), len(ids) + len(keys))
                messages = [
                    NewMessage(b"%d" % n, key=key) for n, key in zip(new, keys, strict=True)
                ]
                ids.update(zip(new, queue.enqueue_many(db, messages), strict=True))
                for n, key in zip(new, keys, strict=True):
                    model.enqueue(key, n)
            case ("receive",):
                delivery = queue.receive(db)
                wanted = min(model.ready, key=model.place.__getitem__, default=None)
                assert (delivery and int(delivery.payload)) == wanted
                if delivery is not None and wanted is not None:
                    model.take(wanted)
                    held[wanted] = delivery
                    ends[wanted] = model.now + 30_500
            case ("ack many", count):
                some = list(held)[:count]
                if some:
                    queue.ack_many(db, [held.pop(n) for n in some])
                    model.end(*some)
            case (("ack" | "drop" | "reject" | "release" | "put off") as action, nth) if held:
                n = list(held)[nth % len(held)]
                delivery = held.pop(n)
                match action:
                    case "ack":
                        queue.ack(db, delivery)
                        model.end(n)
                    case "drop" | "reject":
                        queue.reject(db, delivery, "bad", drop=action == "drop")
                        model.end(n)
                        model.dead += [n] if action == "reject" else []
                    case "release":
                        queue.release(db, delivery, delay=0)
                        model.ready.add(n)
                    case "put off":
                        queue.release(db, delivery, delay=600.5)
                        off.add(n)
                        ends[n] = model.now + 600_500
            case ("cancel", nth):
                waits = {n for line in model.waiting.values() for n in line}
                candidates = sorted(model.ready | waits | off)
                if candidates:
                    n = candidates[nth % len(candidates)]
                    assert queue.cancel(db, ids[n])
                    off.discard(n)
                    model.end(n)
            case ("pass", seconds):
                clock.seconds += seconds
                queue.sweep(db)
                model.tick(seconds)
                for over in (n for n in [*held, *off] if ends[n] <= model.now):
                    model.ready.add(over)
                    held.pop(over, None)
                    off.discard(over)
            case ("redrive",):
                assert queue.dead.redrive(db) == len(model.dead)
                for n in model.dead:
                    model.enqueue(model.key[n], n)
                model.dead.clear()
            case ("purge",):
                queue.purge(db)
                gone = model.ready | {n for line in model.waiting.values() for n in line}
                model.waiting = {key: [] for key in KEYS}
                model.end(*gone)
            case ("limit", key, limit):
                queue.keys[key].set(db, concurrency=limit)
                model.own[key]["concurrency"] = limit
                model.fill(key)
            case ("window", key, limit):
                if model.may(key, "window", limit):
                    queue.keys[key].set(db, window=limit)
                    model.own[key]["window"] = limit
                    model.fill(key)
                else:
                    with pytest.raises(InvalidOptions):
                        queue.keys[key].set(db, window=limit)
            case ("weight", key, weight):
                if model.may(key, "weight", weight):
                    queue.keys[key].set(db, weight=weight)
                    model.own[key]["weight"] = weight
                    model.fill(key)
                else:
                    with pytest.raises(InvalidOptions):
                        queue.keys[key].set(db, weight=weight)
            case ("pause", key):
                queue.keys[key].pause(db)
                model.own[key]["paused"] = True
            case ("resume", key):
                queue.keys[key].resume(db)
                model.own[key].pop("paused", None)
                model.fill(key)
            case ("reset", key):
                queue.keys[key].reset(db)
                model.own[key].clear()
                model.paced(key)
            case ("rate", key, (rate, burst)):
                queue.keys[key].set(db, rate=rate and f"{rate}, burst {burst}")
                model.own[key] |= {"rate": rate and (rate, burst)}
                model.paced(key)
            case ("default rate", (rate, burst)):
                queue.set_options(db, key_rate=rate and f"{rate}, burst {burst}")
                model.default |= {"rate": rate and (rate, burst)}
                for key in KEYS:
                    model.paced(key)
            case ("default", limit, window, weight):
                weight = 1 if window is None else weight
                terms = {"concurrency": limit, "window": window, "weight": weight}
                queue.set_options(db, **{f"key_{name}": value for name, value in terms.items()})
                model.default |= terms
                for key in KEYS:
                    model.fill(key)
        for key in KEYS:
            state = queue.keys[key].state(db)
            assert set(state.out.values()) == {ids[n] for n in model.slots[key]}
            assert state.waiting == len(model.waiting[key])
            assert (state.since_ms is None) == (not model.waiting[key])
    assert verify(db, queue).deviations == ()
    # When everything ends, nothing is left
    queue.set_options(db, key_rate=None)
    for key in KEYS:
        queue.keys[key].reset(db)
    clock.seconds += 601
    while found := queue.receive(db):
        queue.ack(db, found)
    queue.sweep(db)
    assert verify(db, queue).deviations == ()
    stored = Kind.WAITING, Kind.SLOT, Kind.WINDOW, Kind.BACKLOG, Kind.LIMITS, Kind.RATE, Kind.TIMER
    for kind in stored:
        every = queue._keys.kind(kind)
        assert db.get_range(every.start, every.stop) == [], kind
