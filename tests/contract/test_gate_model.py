"""Keys and limits beside a model of them, through everything that may happen to a message."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Delivery, KeyLimits, NewMessage, Queue
from fdbqueue.errors import InvalidOptions
from fdbqueue.queue.keys.keys import Key
from fdbqueue.queue.keys.limits import SharedLimit
from fdbqueue.schema.keys import Kind, within
from fdbqueue.store.binding import fdb
from tests.still_clock import StillClock

QUEUES = ("one", "two")
KEYS = [(name, key) for name in QUEUES for key in ("k", "l")]
LIMITS = [("api", "a"), ("api", "b"), ("region", "c")]
INTERVALS = {"6/min": 10_000, "12/min": 5_000, "1/min": 60_000}
"""Rates, with the time from one message to the next, in milliseconds."""
FREE = {"concurrency": None, "window": None, "weight": 1, "rate": None}

Gate = tuple[str, str]
"""A key, by its queue, or a limit."""

WHICH = st.sampled_from(QUEUES)
NUMBERS = st.sampled_from([None, 1, 2, 3, 5])
RATES = st.sampled_from(
    [None, ("6/min", 1), ("6/min", 3), ("12/min", 1), ("1/min", 2), ("1/min", 1)]
)


def settings_of(gate: st.SearchStrategy[Gate]) -> list[st.SearchStrategy[Any]]:
    """Steps that change how many messages a gate lets out."""
    return [
        st.tuples(st.just("concurrency"), gate, NUMBERS),
        st.tuples(st.sampled_from(["pause", "resume", "forget"]), gate),
    ]


def steps(
    gates: st.SearchStrategy[list[Gate]], changes: Iterable[st.SearchStrategy[Any]]
) -> st.SearchStrategy[list[Any]]:
    """What happens to messages with such gates, and to the gates."""
    ends = ["ack", "drop", "reject", "release", "put off"]
    return st.lists(
        st.one_of(
            st.tuples(st.just("enqueue"), WHICH, st.lists(gates, min_size=1, max_size=5)),
            st.tuples(st.just("receive"), WHICH),
            st.tuples(st.sampled_from(ends), st.integers(0, 9)),
            st.tuples(st.just("ack many"), WHICH, st.integers(1, 4)),
            st.tuples(st.sampled_from(["cancel", "edit"]), st.integers(0, 99)),
            st.tuples(st.just("pass"), st.one_of(st.integers(1, 25), st.sampled_from([61, 601]))),
            st.tuples(st.sampled_from(["redrive", "purge", "delete"]), WHICH),
            *changes,
        ),
        max_size=45,
    )


def chosen(*of: list[Gate]) -> st.SearchStrategy[list[Gate]]:
    """At most one gate of each list; a message of either queue has its own queue's keys."""
    each = [st.sampled_from([None, *some]) for some in of]
    return st.tuples(*each).map(lambda some: [gate for gate in some if gate is not None])


ANY_KEY, ANY_LIMIT = st.sampled_from(KEYS), st.sampled_from(LIMITS[:2])
ONE_KEY, ONE_LIMIT = ([[gate] for gate in some] for some in (KEYS[:2], LIMITS[:2]))
CASES = {
    "keys": steps(
        st.sampled_from(ONE_KEY),
        [
            *settings_of(ANY_KEY),
            st.tuples(st.just("window"), ANY_KEY, NUMBERS),
            st.tuples(st.just("weight"), ANY_KEY, st.integers(1, 3)),
            st.tuples(st.just("default"), WHICH, NUMBERS, NUMBERS, st.integers(1, 3)),
            st.tuples(st.just("rate"), ANY_KEY, RATES),
            st.tuples(st.just("default rate"), WHICH, RATES),
        ],
    ),
    "limits": steps(
        st.sampled_from(ONE_LIMIT),
        [*settings_of(ANY_LIMIT), st.tuples(st.just("rate"), ANY_LIMIT, RATES)],
    ),
    # The last gate has the rate, so that what its timer lets out is ready.
    "several gates": steps(
        chosen(KEYS[:2], LIMITS[:2], LIMITS[2:]),
        [
            *settings_of(st.sampled_from(LIMITS)),
            st.tuples(st.just("concurrency"), ANY_KEY, NUMBERS),
            st.tuples(st.just("rate"), st.just(LIMITS[2]), RATES),
        ],
    ),
}


class Model:
    """What is out, and what waits at which gate. A message is its number; ready ones have their
    places. Times are in milliseconds.

    default: the limits of the keys of a queue. own: those of a gate that differ. due: when the next
    message of a gate is expected, and the rate with which that was found.
    """

    def __init__(self, windows: dict[str, int | None]) -> None:
        self.now = 0
        self.default: dict[str, dict[str, Any]] = {
            name: {**FREE, "concurrency": 2, "window": window} for name, window in windows.items()
        }
        self.own: defaultdict[Gate, dict[str, Any]] = defaultdict(dict)
        self.due: dict[Gate, tuple[int, object]] = {}
        self.paused: set[Gate] = set()
        self.waiting: defaultdict[Gate, list[int]] = defaultdict(list)
        self.slots: defaultdict[Gate, set[int]] = defaultdict(set)
        self.windows: defaultdict[Gate, set[int]] = defaultdict(set)
        self.gates: dict[int, list[Gate]] = {}
        self.gates_used: set[Gate] = set()
        self.queue: dict[int, str] = {}
        self.level: dict[int, int] = {}
        self.place: dict[int, tuple[int, int]] = {}
        self.ready: set[int] = set()
        self.dead: list[int] = []
        self.places = 0

    def terms(self, gate: Gate) -> dict[str, Any]:
        return {**self.default.get(gate[0], FREE), **self.own[gate]}

    def limits(self, gate: Gate) -> tuple[int | None, int | None]:
        """How many slots there are, and how many places in the window."""
        terms = self.terms(gate)
        places = terms["window"] and terms["window"] * terms["weight"]
        return (0 if gate in self.paused else terms["concurrency"]), places

    def may(self, key: Gate, name: str, value: int | None) -> bool:
        """Whether a key may have a weight, or lose its window."""
        own = {**self.own[key], name: value}
        return own.get("weight", 1) == 1 or {**self.terms(key), **own}["window"] is not None

    def expected(self, gate: Gate) -> tuple[int, int, int]:
        """The theoretical arrival time of the next message, the interval, and the burst."""
        rate, burst = self.terms(gate)["rate"]
        interval = INTERVALS[rate]
        due, found = self.due.get(gate, (0, None))
        if found != (rate, burst):
            due = min(due, self.now + burst * interval)
        return max(due, self.now), interval, burst

    def in_time(self, gate: Gate) -> bool:
        """Whether the rate lets the next message come; the rate counts from then on."""
        if self.terms(gate)["rate"] is None:
            return True
        due, interval, burst = self.expected(gate)
        if due - (burst - 1) * interval <= self.now:
            return True
        self.due[gate] = due, self.terms(gate)["rate"]
        return False

    def free(self, gate: Gate) -> bool:
        held = self.slots[gate], self.windows[gate]
        each = zip(held, self.limits(gate), strict=True)
        permits = all(limit is None or len(some) < limit for some, limit in each)
        return permits and self.in_time(gate)

    def take(self, gate: Gate, number: int) -> None:
        rate = self.terms(gate)["rate"]
        if rate is not None:
            due, interval, _ = self.expected(gate)
            self.due[gate] = due + interval, rate
        for held, limit in zip((self.slots, self.windows), self.limits(gate), strict=True):
            if limit is not None:
                held[gate].add(number)

    def arrive(self, number: int, gates: Iterable[Gate]) -> None:
        """Let a message pass gates, up to the first that does not let it out."""
        for gate in gates:
            if self.waiting[gate] or not self.free(gate):
                self.waiting[gate].append(number)
                return
            self.take(gate, number)
        self.places += 1
        self.place[number] = self.level[number], self.places
        self.ready.add(number)

    def fill(self, *gates: Gate) -> None:
        passed = []
        for gate in gates:
            while self.waiting[gate] and self.free(gate):
                number = self.waiting[gate].pop(0)
                self.take(gate, number)
                passed.append((number, gate))
        for number, gate in passed:
            self.arrive(number, self.gates[number][self.gates[number].index(gate) + 1 :])

    def freed(self, *gates: Gate) -> None:
        """Somebody looks at the rate first, so that it counts from then on."""
        self.fill(*(gate for gate in gates if self.waiting[gate] and self.in_time(gate)))

    def received(self, number: int) -> None:
        self.ready.remove(number)
        for gate in self.gates[number]:
            if number in self.windows[gate]:
                self.windows[gate].remove(number)
                self.freed(gate)

    def end(self, *numbers: int) -> None:
        left: dict[Gate, None] = {}
        for number in numbers:
            for gate in self.gates[number]:
                left[gate] = None
                self.slots[gate].discard(number)
                self.windows[gate].discard(number)
                if number in self.waiting[gate]:
                    self.waiting[gate].remove(number)
                    break
            self.ready.discard(number)
        self.freed(*left)

    def of(self, queue: str, numbers: Iterable[int]) -> list[int]:
        return [n for n in numbers if self.queue[n] == queue]

    def lines(self) -> list[int]:
        """Those that wait, in the order of their gates."""
        order = sorted(self.waiting, key=lambda gate: (gate in LIMITS, gate))
        return [n for gate in order for n in self.waiting[gate]]

    def deleted(self, queue: str) -> None:
        gone = set(self.of(queue, self.queue))
        wait = [gate for gate in LIMITS if gone & {*self.waiting[gate]}]
        for gate in [*self.waiting, *self.slots]:
            self.waiting[gate] = [n for n in self.waiting[gate] if n not in gone]
            self.slots[gate] -= gone
            self.windows[gate] -= gone
        self.ready -= gone
        self.dead = [n for n in self.dead if n not in gone]
        for gate in [*self.own]:
            if gate[0] == queue:
                self.own.pop(gate)
                self.due.pop(gate, None)
                self.paused.discard(gate)
        self.fill(*wait, *(gate for gate in LIMITS if gate not in wait))


class Run:
    """Queues beside their model."""

    def __init__(self, db: fdb.Database, space: fdb.Subspace) -> None:
        windows = {"one": None, "two": 1}
        self.db, self.clock, self.model = db, StillClock(), Model(windows)
        self.terms: dict[str, Any] = {"max_attempts": None, "backoff": None, "levels": 2}
        self.terms |= {
            "lease": 30.5,
            "root": space,
            "clock": self.clock,
        }
        self.queues = {name: self.create(name) for name in QUEUES}
        for limit in LIMITS:
            self.gate(limit).set(db, concurrency=2)
            self.model.own[limit]["concurrency"] = 2
        self.ids: dict[int, str] = {}
        self.held: dict[int, Delivery] = {}
        self.off: set[int] = set()
        self.ends: dict[int, int] = {}

    def create(self, name: str) -> Queue:
        window = self.model.default[name]["window"]
        return Queue.create(
            self.db, name, keys=KeyLimits(concurrency=2, window=window), **self.terms
        )

    def gate(self, gate: Gate) -> Any:
        first, second = gate
        one: Key | SharedLimit
        one = self.queues[first].keys[second] if gate in KEYS else self.queues["one"].limits[gate]
        return one

    def do(self, step: Any) -> None:
        db, model, queues, held = self.db, self.model, self.queues, self.held
        match step:
            case ("enqueue", name, given_gates):
                new = range(len(self.ids), len(self.ids) + len(given_gates))
                gates = [
                    [(name if g in KEYS else g[0], g[1]) for g in some] for some in given_gates
                ]
                messages = [
                    NewMessage(
                        b"%d" % n,
                        key=next((key for of, key in some if of == name), None),
                        limits={of: limit for of, limit in some if of != name} or None,
                    )
                    for n, some in zip(new, gates, strict=True)
                ]
                self.ids.update(zip(new, queues[name].enqueue_many(db, messages), strict=True))
                for n, some in zip(new, gates, strict=True):
                    model.gates[n], model.queue[n], model.level[n] = some, name, 1
                    model.gates_used |= {*some}
                    model.arrive(n, some)
            case ("receive", name):
                delivery = queues[name].receive(db)
                ready = model.of(name, model.ready)
                wanted = min(ready, key=model.place.__getitem__, default=None)
                assert (delivery and int(delivery.payload)) == wanted
                if delivery is not None and wanted is not None:
                    model.received(wanted)
                    held[wanted] = delivery
                    self.ends[wanted] = model.now + 30_500
            case ("ack many", name, count):
                first = model.of(name, held)[:count]
                if first:
                    queues[name].ack(db, [held.pop(n) for n in first])
                    model.end(*first)
            case (("ack" | "drop" | "reject" | "release" | "put off") as action, nth) if held:
                n = list(held)[nth % len(held)]
                self.settle(action, n, held.pop(n))
            case (("cancel" | "edit") as action, nth):
                candidates = sorted({*model.ready, *model.lines(), *self.off})
                waiting = sorted(model.lines())
                if action == "edit" and waiting:
                    n = waiting[nth % len(waiting)]
                    model.level[n] = nth % 2
                    priority = 9 if nth % 2 == 0 else 0
                    queues[model.queue[n]].edit(db, self.ids[n], priority=priority)
                elif action == "cancel" and candidates:
                    n = candidates[nth % len(candidates)]
                    assert queues[model.queue[n]].cancel(db, self.ids[n])
                    self.off.discard(n)
                    model.end(n)
            case ("pass", seconds):
                self.clock.seconds += seconds
                model.now += seconds * 1_000
                for queue in queues.values():
                    queue.admin.sweep(db)
                for gate in [*KEYS, *LIMITS]:
                    if model.terms(gate)["rate"] is not None:
                        model.fill(gate)
                for over in (n for n in [*held, *self.off] if self.ends[n] <= model.now):
                    model.ready.add(over)
                    held.pop(over, None)
                    self.off.discard(over)
            case ("redrive", name):
                dead = model.of(name, model.dead)
                assert queues[name].retry(db).taken == len(dead)
                for n in dead:
                    model.dead.remove(n)
                    model.arrive(n, model.gates[n])
            case ("purge", name):
                queues[name].purge(db)
                model.end(*model.of(name, model.lines()))
                model.end(*sorted(model.of(name, model.ready), key=model.place.__getitem__))
            case ("delete", name):
                queues[name].delete(db)
                for n in model.of(name, self.ids):
                    held.pop(n, None)
                    self.off.discard(n)
                model.deleted(name)
                queues[name] = self.create(name)
                terms: dict[str, Any] = model.default[name]
                terms = terms | {"rate": terms["rate"] and text(terms["rate"])}
                queues[name].set_options(db, keys=KeyLimits(**terms))
            case _:
                self.change(step)

    def settle(self, action: str, n: int, delivery: Delivery) -> None:
        db, model, queue = self.db, self.model, self.queues[self.model.queue[n]]
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
                self.off.add(n)
                self.ends[n] = model.now + 600_500

    def change(self, step: Any) -> None:
        """Change the limits of a gate, or of all keys of a queue."""
        db, model = self.db, self.model
        match step:
            case (("concurrency" | "window" | "weight") as name, gate, value):
                one = self.gate(gate)
                if gate in KEYS and name != "concurrency" and not model.may(gate, name, value):
                    with pytest.raises(InvalidOptions):
                        one.set(db, **{name: value})
                    return
                one.set(db, **{name: value})
                model.own[gate][name] = value
                model.fill(gate)
            case ("pause", gate):
                self.gate(gate).pause(db)
                model.paused.add(gate)
            case ("resume", gate):
                self.gate(gate).resume(db)
                model.paused.discard(gate)
                model.fill(gate)
            case ("forget", gate):
                one = self.gate(gate)
                one.reset(db) if gate in KEYS else one.delete(db)
                model.own.pop(gate, None)
                model.paused.discard(gate)
                model.fill(gate)
            case ("rate", gate, rate):
                self.gate(gate).set(db, rate=rate and text(rate))
                model.own[gate]["rate"] = rate
                model.fill(gate)
            case ("default rate", name, rate):
                self.queues[name].set_options(db, keys=KeyLimits(rate=rate and text(rate)))
                model.default[name]["rate"] = rate
                model.fill(*(key for key in KEYS if key[0] == name))
            case ("default", name, limit, window, weight):
                weight = 1 if window is None else weight
                terms = {"concurrency": limit, "window": window, "weight": weight}
                self.queues[name].set_options(db, keys=KeyLimits(**terms))
                model.default[name] |= terms
                model.fill(*(key for key in KEYS if key[0] == name))

    def check(self) -> None:
        """The queues are as their model is."""
        model, ids = self.model, self.ids
        for gate in model.gates_used:
            state = self.gate(gate).state(self.db)
            waits, slots = model.waiting[gate], model.slots[gate]
            assert state.waiting == len(waits)
            assert (state.since_ms is None) == (not waits)
            if gate in KEYS:
                assert {*state.out.values()} == {ids[n] for n in slots}
                assert state.in_window == len(model.windows[gate])
            else:
                assert {*state.out.values()} == {(model.queue[n], ids[n]) for n in slots}
                assert state.next == [(model.queue[n], ids[n]) for n in waits[:10]]

    def close(self) -> None:
        """Let everything end; then nothing is left."""
        db = self.db
        for queue in self.queues.values():
            assert queue.admin.verify(db).deviations == ()
        for limit in LIMITS:
            self.gate(limit).delete(db)
        self.clock.seconds += 601
        for queue in self.queues.values():
            # Only a queue that has had messages with limits looks at the timers of these
            queue.enqueue(db, b"", limits={"api": "other"})
            queue.set_options(db, keys=KeyLimits(rate=None))
        for key in KEYS:
            self.gate(key).reset(db)
        for _ in range(2):  # What ends in one lets out what waits in the other
            for queue in self.queues.values():
                while found := queue.receive(db):
                    queue.ack(db, found)
                queue.admin.sweep(db)
        kinds = (Kind.WAITING, Kind.SLOT, Kind.WINDOW, Kind.BACKLOG)
        for queue in self.queues.values():
            assert queue.admin.verify(db).deviations == ()
            for kind in (*kinds, Kind.LIMITS, Kind.RATE, Kind.TIMER):
                every = queue._keys.kind(kind)
                assert db.get_range(every.start, every.stop) == [], kind
        root = self.queues["one"]._root_keys.limits
        for of in (root.waiting, root.slot, root.backlog, root.limits, root.rate, root.timer):
            every = within(of.prefix)
            assert db.get_range(every.start, every.stop) == []


def text(rate: tuple[str, int]) -> str:
    return f"{rate[0]}, burst {rate[1]}"


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.integers(0, 2**32))
def test_keys_and_limits_do_what_their_model_does(
    db: fdb.Database, space: fdb.Subspace, case: str, data: st.DataObject, seed: int
) -> None:
    del db[space.range()]
    random.seed(seed)  # of the free slots, which one is taken
    run = Run(db, space)
    for step in data.draw(CASES[case]):
        run.do(step)
        run.check()
    run.close()
