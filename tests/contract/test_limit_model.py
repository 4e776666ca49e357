"""Limits that queues share beside a model of them, through all that may happen to a message."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Delivery, NewMessage, Queue, verify
from fdbqueue.schema.keys import Kind, within
from fdbqueue.store.binding import fdb
from tests.still_clock import StillClock

QUEUES = ("one", "two")
LIMITS = ("a", "b")
NUMBERS = st.sampled_from([None, 1, 2, 3, 5])
INTERVALS = {"6/min": 10_000, "12/min": 5_000, "1/min": 60_000}
"""Rates, with the time from one message to the next, in milliseconds."""
RATES = st.sampled_from([(None, 1), ("6/min", 1), ("6/min", 3), ("12/min", 1), ("1/min", 2)])
WHICH = st.sampled_from(QUEUES)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("enqueue"), WHICH, st.lists(st.sampled_from(LIMITS), min_size=1, max_size=4)
        ),
        st.tuples(st.just("receive"), WHICH),
        st.tuples(
            st.sampled_from(["ack", "drop", "reject", "release", "put off"]), st.integers(0, 9)
        ),
        st.tuples(st.just("ack many"), WHICH, st.integers(1, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 99)),
        st.tuples(st.just("pass"), st.one_of(st.integers(1, 25), st.sampled_from([61, 601]))),
        st.tuples(st.sampled_from(["redrive", "purge", "delete"]), WHICH),
        st.tuples(st.just("limit"), st.sampled_from(LIMITS), NUMBERS),
        st.tuples(st.just("rate"), st.sampled_from(LIMITS), RATES),
        st.tuples(st.sampled_from(["pause", "resume", "drop limit"]), st.sampled_from(LIMITS)),
    ),
    max_size=40,
)


class Model:
    """What is out, and what waits. A message is its number; ready ones have their places."""

    def __init__(self) -> None:
        self.now = 0
        self.rates: dict[str, tuple[int, int] | None] = dict.fromkeys(LIMITS)
        self.due: dict[str, tuple[int, object]] = {}
        self.limits: dict[str, int | None] = dict.fromkeys(LIMITS, 2)
        self.paused: set[str] = set()
        self.waiting: dict[str, list[int]] = {limit: [] for limit in LIMITS}
        self.slots: dict[str, set[int]] = {limit: set() for limit in LIMITS}
        self.limit: dict[int, str] = {}
        self.queue: dict[int, str] = {}
        self.place: dict[int, int] = {}
        self.ready: set[int] = set()
        self.dead: list[int] = []
        self.places = 0

    def expected(self, limit: str, interval: int, burst: int) -> int:
        """The theoretical arrival time of the next message."""
        due, found = self.due.get(limit, (0, None))
        if found != (interval, burst):
            due = min(due, self.now + burst * interval)
        return max(due, self.now)

    def in_time(self, limit: str) -> bool:
        """Whether the rate lets the next message come; the rate counts from then on."""
        rate = self.rates[limit]
        if rate is None:
            return True
        due = self.expected(limit, *rate)
        if due - (rate[1] - 1) * rate[0] <= self.now:
            return True
        self.due[limit] = due, rate
        return False

    def free(self, limit: str) -> bool:
        return self.permits(limit) and self.in_time(limit)

    def permits(self, limit: str) -> bool:
        most = 0 if limit in self.paused else self.limits[limit]
        return most is None or len(self.slots[limit]) < most

    def enqueue(self, number: int) -> None:
        limit = self.limit[number]
        if self.waiting[limit] or not self.free(limit):
            self.waiting[limit].append(number)
        else:
            self.let_out(number)

    def let_out(self, number: int) -> None:
        limit = self.limit[number]
        rate = self.rates[limit]
        if rate is not None:
            self.due[limit] = self.expected(limit, *rate) + rate[0], rate
        if self.limits[limit] is not None:
            self.slots[limit].add(number)
        self.places += 1
        self.place[number] = self.places
        self.ready.add(number)

    def fill(self, limit: str) -> None:
        while self.waiting[limit] and self.free(limit):
            self.let_out(self.waiting[limit].pop(0))

    def of(self, queue: str, numbers: Any) -> list[int]:
        return [n for n in numbers if self.queue[n] == queue]

    def lines(self) -> list[int]:
        return [n for line in self.waiting.values() for n in line]

    def end(self, *numbers: int) -> None:
        for number in numbers:
            limit = self.limit[number]
            self.slots[limit].discard(number)
            self.ready.discard(number)
            if number in self.waiting[limit]:
                self.waiting[limit].remove(number)
        for limit in dict.fromkeys(self.limit[number] for number in numbers):
            # Somebody looks at the rate first, so that it counts from then on.
            if self.waiting[limit] and self.in_time(limit):
                self.fill(limit)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(0, 2**32))
def test_limits_do_what_their_model_does(
    db: fdb.Database, space: fdb.Subspace, steps: list[Any], seed: int
) -> None:
    del db[space.range()]
    random.seed(seed)  # of the free slots, which one is taken
    clock, model = StillClock(), Model()
    terms: dict[str, Any] = {"max_attempts": None, "backoff": None}
    terms |= {"lease": 30.5, "root": space, "clock": clock}
    queues = {name: Queue.create(db, name, **terms) for name in QUEUES}
    shared = {limit: queues["one"].limits["api", limit] for limit in LIMITS}
    for each in shared.values():
        each.set(db, concurrency=2)
    ids: dict[int, str] = {}
    held: dict[int, Delivery] = {}
    off: set[int] = set()
    ends: dict[int, int] = {}
    for step in steps:
        match step:
            case ("enqueue", name, limits):
                new = range(len(ids), len(ids) + len(limits))
                messages = [
                    NewMessage(b"%d" % n, limits={"api": limit})
                    for n, limit in zip(new, limits, strict=True)
                ]
                ids.update(zip(new, queues[name].enqueue_many(db, messages), strict=True))
                for n, limit in zip(new, limits, strict=True):
                    model.limit[n], model.queue[n] = limit, name
                    model.enqueue(n)
            case ("receive", name):
                delivery = queues[name].receive(db)
                ready = model.of(name, model.ready)
                wanted = min(ready, key=model.place.__getitem__, default=None)
                assert (delivery and int(delivery.payload)) == wanted
                if delivery is not None and wanted is not None:
                    model.ready.remove(wanted)
                    held[wanted] = delivery
                    ends[wanted] = model.now + 30_500
            case ("ack many", name, count):
                some = model.of(name, held)[:count]
                if some:
                    queues[name].ack_many(db, [held.pop(n) for n in some])
                    model.end(*some)
            case (("ack" | "drop" | "reject" | "release" | "put off") as action, nth) if held:
                n = list(held)[nth % len(held)]
                delivery, queue = held.pop(n), queues[model.queue[n]]
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
                candidates = sorted({*model.ready, *model.lines(), *off})
                if candidates:
                    n = candidates[nth % len(candidates)]
                    assert queues[model.queue[n]].cancel(db, ids[n])
                    off.discard(n)
                    model.end(n)
            case ("pass", seconds):
                clock.seconds += seconds
                model.now += seconds * 1_000
                for queue in queues.values():
                    queue.sweep(db)
                for limit in LIMITS:
                    model.fill(limit)
                for over in (n for n in [*held, *off] if ends[n] <= model.now):
                    model.ready.add(over)
                    held.pop(over, None)
                    off.discard(over)
            case ("redrive", name):
                dead = model.of(name, model.dead)
                assert queues[name].dead.redrive(db) == len(dead)
                for n in dead:
                    model.dead.remove(n)
                    model.enqueue(n)
            case ("purge", name):
                queues[name].purge(db)
                lines = set(model.of(name, model.lines()))
                for limit, line in model.waiting.items():
                    model.waiting[limit] = [n for n in line if n not in lines]
                # What comes out of the other queue stays
                model.end(*lines, *model.of(name, model.ready))
            case ("delete", name):
                queues[name].delete(db)
                gone = {n for n, queue in model.queue.items() if queue == name and n in ids}
                for limit, line in model.waiting.items():
                    model.waiting[limit] = [n for n in line if n not in gone]
                for n in gone:
                    held.pop(n, None)
                    off.discard(n)
                model.dead = [n for n in model.dead if n not in gone]
                model.end(*gone)
                queues[name] = Queue.create(db, name, **terms)
            case ("limit", limit, number):
                shared[limit].set(db, concurrency=number)
                model.limits[limit] = number
                model.fill(limit)
            case ("pause", limit):
                shared[limit].pause(db)
                model.paused.add(limit)
            case ("resume", limit):
                shared[limit].resume(db)
                model.paused.discard(limit)
                model.fill(limit)
            case ("drop limit", limit):
                shared[limit].delete(db)
                model.paused.discard(limit)
                model.limits[limit] = model.rates[limit] = None
                model.fill(limit)
            case ("rate", limit, (rate, burst)):
                shared[limit].set(db, rate=rate and f"{rate}, burst {burst}")
                model.rates[limit] = None if rate is None else (INTERVALS[rate], burst)
                model.fill(limit)
        for limit in LIMITS:
            state = shared[limit].state(db)
            out = {(model.queue[n], ids[n]) for n in model.slots[limit]}
            assert set(state.out.values()) == out
            waits = [(model.queue[n], ids[n]) for n in model.waiting[limit]]
            assert (state.waiting, state.next) == (len(waits), waits[:10])
            assert (state.since_ms is None) == (not waits)
    for queue in queues.values():
        assert verify(db, queue).deviations == ()
    # When everything ends, nothing is left
    for each in shared.values():
        each.delete(db)
    clock.seconds += 601
    for queue in queues.values():
        # Only a queue that has had messages with limits looks at the timers of these
        queue.enqueue(db, b"", limits={"api": "other"})
        while found := queue.receive(db):
            queue.ack(db, found)
        queue.sweep(db)
        assert verify(db, queue).deviations == ()
        for kind in (Kind.WAITING, Kind.SLOT):
            every = queue._keys.kind(kind)
            assert db.get_range(every.start, every.stop) == [], kind
    root = queues["one"]._root_keys.limits
    for of in (root.waiting, root.slot, root.backlog, root.limits, root.rate, root.timer):
        every = within(of.prefix)
        assert db.get_range(every.start, every.stop) == []
