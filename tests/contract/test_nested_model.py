"""Messages with several gates, a key and limits, beside a model of these."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Delivery, NewMessage, Queue, verify
from fdbqueue.schema.keys import Kind, within
from fdbqueue.store.binding import fdb
from tests.still_clock import StillClock

QUEUES = ("one", "two")
WINDOWS = {"one": None, "two": 1}
KEYS = ("k", "l")
LIMITS = (("api", "a"), ("api", "b"), ("region", "c"))
PACED = LIMITS[-1]
"""The last gate has the rate, so that what its timer lets out is ready."""
RATES = {None: None, "6/min": 10_000, "1/min": 60_000}

Gate = tuple[str, str]
"""A key, by its queue, or a limit."""

WHICH = st.sampled_from(QUEUES)
NUMBERS = st.sampled_from([None, 1, 2, 3])
GATES = st.tuples(
    st.sampled_from([None, *KEYS]), st.sampled_from([None, "a", "b"]), st.sampled_from([None, "c"])
)
"""The key and the names of the limits of a message."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), WHICH, st.lists(GATES, min_size=1, max_size=5)),
        st.tuples(st.just("receive"), WHICH),
        st.tuples(
            st.sampled_from(["ack", "drop", "reject", "release", "put off"]), st.integers(0, 9)
        ),
        st.tuples(st.sampled_from(["cancel", "edit"]), st.integers(0, 99)),
        st.tuples(st.just("pass"), st.one_of(st.integers(1, 25), st.sampled_from([61, 601]))),
        st.tuples(st.sampled_from(["redrive", "purge", "delete"]), WHICH),
        st.tuples(st.just("limit"), st.sampled_from(LIMITS), NUMBERS),
        st.tuples(st.just("key"), WHICH, st.sampled_from(KEYS), NUMBERS),
        st.tuples(st.just("rate"), st.sampled_from([*RATES])),
        st.tuples(st.sampled_from(["pause", "resume", "drop limit"]), st.sampled_from(LIMITS)),
    ),
    max_size=50,
)


class Model:
    """What is out, and what waits at which gate. A message is its number; ready ones have their
    places."""

    def __init__(self) -> None:
        self.now = 0
        self.rate: int | None = None
        self.due: tuple[int, int] = 0, 0
        self.most: dict[Gate, int | None] = dict.fromkeys(LIMITS, 2)
        self.paused: set[Gate] = set()
        self.waiting: defaultdict[Gate, list[int]] = defaultdict(list)
        self.slots: defaultdict[Gate, set[int]] = defaultdict(set)
        self.window: defaultdict[Gate, set[int]] = defaultdict(set)
        self.gates: dict[int, list[Gate]] = {}
        self.queue: dict[int, str] = {}
        self.place: dict[int, tuple[int, int]] = {}
        self.level: dict[int, int] = {}
        self.ready: set[int] = set()
        self.dead: list[int] = []
        self.places = 0

    def in_time(self, gate: Gate) -> bool:
        """Whether the rate lets the next message come; the rate counts from then on."""
        if gate != PACED or self.rate is None:
            return True
        due, found = self.due
        if found != self.rate:
            due = min(due, self.now + self.rate)
        if due <= self.now:
            return True
        self.due = due, self.rate
        return False

    def free(self, gate: Gate) -> bool:
        most = 0 if gate in self.paused else self.most.get(gate, 2)
        if most is not None and len(self.slots[gate]) >= most:
            return False
        if WINDOWS.get(gate[0]) is not None and self.window[gate]:
            return False
        return self.in_time(gate)

    def take(self, gate: Gate, number: int) -> None:
        if self.most.get(gate, 2) is not None:
            self.slots[gate].add(number)
        if WINDOWS.get(gate[0]) is not None:
            self.window[gate].add(number)
        if gate == PACED and self.rate is not None:
            due, found = self.due
            if found != self.rate:
                due = min(due, self.now + self.rate)
            self.due = max(due, self.now) + self.rate, self.rate

    def arrive(self, number: int, gates: Iterable[Gate]) -> None:
        """Let a message pass gates, up to the first that has no slot for it."""
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

    def received(self, number: int) -> None:
        self.ready.remove(number)
        for gate in self.gates[number]:
            if number in self.window[gate]:
                self.window[gate].remove(number)
                self.fill(gate)

    def end(self, *numbers: int) -> None:
        left: dict[Gate, None] = {}
        for number in numbers:
            for gate in self.gates[number]:
                left[gate] = None
                self.slots[gate].discard(number)
                self.window[gate].discard(number)
                if number in self.waiting[gate]:
                    self.waiting[gate].remove(number)
                    break
            self.ready.discard(number)
        self.fill(*left)

    def of(self, queue: str, numbers: Iterable[int]) -> list[int]:
        return [n for n in numbers if self.queue[n] == queue]

    def lines(self) -> list[int]:
        """Those that wait, in the order of their gates."""
        key_order = lambda gate: (gate in LIMITS, gate)  # noqa: E731
        return [n for gate in sorted(self.waiting, key=key_order) for n in self.waiting[gate]]

    def deleted(self, queue: str) -> None:
        gone = set(self.of(queue, self.queue))
        wait = [gate for gate in LIMITS if gone & {*self.waiting[gate]}]
        for gate in [*self.waiting, *self.slots]:
            self.waiting[gate] = [n for n in self.waiting[gate] if n not in gone]
            self.slots[gate] -= gone
            self.window[gate] -= gone
        self.ready -= gone
        self.dead = [n for n in self.dead if n not in gone]
        self.fill(*wait, *(gate for gate in LIMITS if gate not in wait))


def named(key: str | None, api: str | None, region: str | None) -> dict[str, Any]:
    pairs = (("region", region), ("api", api))
    limits = {dimension: name for dimension, name in pairs if name is not None}
    return {"key": key, "limits": limits or None}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(0, 2**32))
def test_messages_pass_their_gates_as_in_the_model(
    db: fdb.Database, space: fdb.Subspace, steps: list[Any], seed: int
) -> None:
    del db[space.range()]
    random.seed(seed)  # of the free slots, which one is taken
    clock, model = StillClock(), Model()
    terms: dict[str, Any] = {"max_attempts": None, "backoff": None}
    terms |= {"lease": 30.5, "root": space, "clock": clock, "key_concurrency": 2, "levels": 2}

    def create(name: str) -> Queue:
        return Queue.create(db, name, key_window=WINDOWS[name], **terms)

    queues = {name: create(name) for name in QUEUES}
    shared = {limit: queues["one"].limits[limit] for limit in LIMITS}
    for each in shared.values():
        each.set(db, concurrency=2)
    ids: dict[int, str] = {}
    held: dict[int, Delivery] = {}
    off: set[int] = set()
    ends: dict[int, int] = {}
    for step in steps:
        match step:
            case ("enqueue", name, given_gates):
                new = range(len(ids), len(ids) + len(given_gates))
                messages = [
                    NewMessage(b"%d" % n, **named(*some))
                    for n, some in zip(new, given_gates, strict=True)
                ]
                ids.update(zip(new, queues[name].enqueue_many(db, messages), strict=True))
                for n, (key, api, region) in zip(new, given_gates, strict=True):
                    gates = [(name, key), ("api", api), ("region", region)]
                    model.gates[n] = [(of, one) for of, one in gates if one is not None]
                    model.queue[n], model.level[n] = name, 0
                    model.arrive(n, model.gates[n])
            case ("receive", name):
                delivery = queues[name].receive(db)
                ready = model.of(name, model.ready)
                wanted = min(ready, key=model.place.__getitem__, default=None)
                assert (delivery and int(delivery.payload)) == wanted
                if delivery is not None and wanted is not None:
                    model.received(wanted)
                    held[wanted] = delivery
                    ends[wanted] = model.now + 30_500
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
            case (("cancel" | "edit") as action, nth):
                candidates = sorted({*model.ready, *model.lines(), *off})
                waiting = sorted(model.lines())
                if action == "edit" and waiting:
                    n = waiting[nth % len(waiting)]
                    model.level[n] = nth % 2
                    queues[model.queue[n]].edit(db, ids[n], priority=9 if nth % 2 == 0 else 0)
                elif action == "cancel" and candidates:
                    n = candidates[nth % len(candidates)]
                    assert queues[model.queue[n]].cancel(db, ids[n])
                    off.discard(n)
                    model.end(n)
            case ("pass", seconds):
                clock.seconds += seconds
                model.now += seconds * 1_000
                for queue in queues.values():
                    queue.sweep(db)
                model.fill(PACED)
                for over in (n for n in [*held, *off] if ends[n] <= model.now):
                    model.ready.add(over)
                    held.pop(over, None)
                    off.discard(over)
            case ("redrive", name):
                dead = model.of(name, model.dead)
                assert queues[name].dead.redrive(db) == len(dead)
                for n in dead:
                    model.dead.remove(n)
                    model.arrive(n, model.gates[n])
            case ("purge", name):
                queues[name].purge(db)
                model.end(*model.of(name, model.lines()))
                ready = model.of(name, model.ready)
                model.end(*sorted(ready, key=model.place.__getitem__))
            case ("delete", name):
                queues[name].delete(db)
                for n in model.of(name, ids):
                    held.pop(n, None)
                    off.discard(n)
                for key in KEYS:
                    model.most.pop((name, key), None)
                model.deleted(name)
                queues[name] = create(name)
            case ("limit", limit, number):
                shared[limit].set(db, concurrency=number)
                model.most[limit] = number
                model.fill(limit)
            case ("key", name, key, number):
                queues[name].keys[key].set(db, concurrency=number)
                model.most[name, key] = number
                model.fill((name, key))
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
                model.most[limit] = None
                model.rate = None if limit == PACED else model.rate
                model.fill(limit)
            case ("rate", rate):
                shared[PACED].set(db, rate=rate)
                model.rate = RATES[rate]
                model.fill(PACED)
        for limit, one in shared.items():
            state = one.state(db)
            out = {(model.queue[n], ids[n]) for n in model.slots[limit]}
            assert set(state.out.values()) == out
            waits = [(model.queue[n], ids[n]) for n in model.waiting[limit]]
            assert (state.waiting, state.next) == (len(waits), waits[:10])
        for name, queue in queues.items():
            for key in KEYS:
                known = queue.keys[key].state(db)
                assert {*known.out.values()} == {ids[n] for n in model.slots[name, key]}
                assert known.waiting == len(model.waiting[name, key])
                assert known.in_window == len(model.window[name, key])
    for queue in queues.values():
        assert verify(db, queue).deviations == ()
    # When everything ends, nothing is left
    for each in shared.values():
        each.delete(db)
    clock.seconds += 601
    for queue in queues.values():
        # Only a queue that has had messages with limits looks at the timers of these
        queue.enqueue(db, b"", limits={"api": "other"})
        for key in KEYS:
            queue.keys[key].reset(db)
    for _ in range(2):  # What ends in one lets out what waits in the other
        for queue in queues.values():
            while found := queue.receive(db):
                queue.ack(db, found)
            queue.sweep(db)
    for queue in queues.values():
        assert verify(db, queue).deviations == ()
        for kind in (Kind.WAITING, Kind.SLOT, Kind.WINDOW, Kind.BACKLOG):
            every = queue._keys.kind(kind)
            assert db.get_range(every.start, every.stop) == [], kind
    root = queues["one"]._root_keys.limits
    for of in (root.waiting, root.slot, root.backlog, root.limits, root.rate, root.timer):
        every = within(of.prefix)
        assert db.get_range(every.start, every.stop) == []
