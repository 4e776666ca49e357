"""Messages with several gates, in all interleavings of what passes one and what happens at the
next."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from fdbqueue import Delivery, NewMessage, Queue
from fdbqueue.errors import LeaseLost, QueueNotFound
from fdbqueue.queue.keys.limits import SharedLimit
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.contract.test_limit_interleavings import Start, _exists, no_errors
from tests.interleaving import Operation, explore
from tests.schemes import forced

pytestmark = pytest.mark.long

SLOW = pytest.mark.slow


class Given(NamedTuple):
    """A key of the first queue with one slot, and two limits that it shares with the second.

    held: of the first queue, the one of the key that has all gates and is leased. next: one of the
    key that waits for that. other: of the second queue, the one that has only the last gate and is
    leased, if it has two slots.
    """

    one: Queue
    two: Queue
    api: SharedLimit
    region: SharedLimit
    slots: int
    held: Delivery
    next: str
    other: list[Delivery]

    @property
    def limits(self) -> dict[str, str]:
        return {each.dimension: each.name for each in (self.api, self.region)}

    def again(self, queue: Queue) -> Queue:
        """A handle of its own: threads that share one would take turns."""
        return Queue(queue.name, queue._root)

    def ack(self) -> Operation:
        return lambda db: self.one.ack(db, self.held)

    def operation(self, name: str) -> Operation:
        one, two = self.again(self.one), self.again(self.two)
        match name:
            case "enqueue of the key":
                return lambda db: one.enqueue(db, b"new", key="k", limits=self.limits)
            case "enqueue elsewhere":
                return lambda db: two.enqueue(db, b"new", limits=self.limits)
            case "enqueue at the second gate":
                return lambda db: two.enqueue(db, b"new", limits=dict([self.last]))
            case "end at the second gate":
                return lambda db: two.ack(db, self.other[0])
            case "cancel":
                return lambda db: one.cancel(db, self.next)
            case "edit":
                return lambda db: one.edit(db, self.next, priority=9)
            case "lapse":
                late = Queue(two.name, two._root, clock=ManualClock(seconds=60))
                return late.admin.sweep
            case "lower":
                limit = one.limits[self.last]
                return lambda db: limit.set(db, concurrency=1)
            case "raise":
                limit = one.limits[self.last]
                return lambda db: limit.set(db, concurrency=3)
            case "pause":
                limit = one.limits[self.last]
                return limit.pause
            case "more of the key":
                key = one.keys["k"]
                return lambda db: key.set(db, concurrency=2)
            case "delete two":
                return two.delete
            case "delete one":
                return one.delete
        raise ValueError(name)

    @property
    def last(self) -> tuple[str, str]:
        return self.region.dimension, self.region.name


@pytest.fixture
def fresh(db: fdb.Database, space: fdb.Subspace) -> Callable[..., Given]:
    """Makes queues of their own for every interleaving."""
    numbers = itertools.count()

    def make(slots: int, busy: bool, wait: int = 0) -> Given:
        n = next(numbers)
        terms: dict[str, Any] = {"levels": 2, "lease": 10, "max_attempts": 1, "root": space}
        one, two = (
            forced(Queue.create(db, f"{name}{n}", **terms), "first") for name in ("one", "two")
        )
        api, region = one.limits["api", f"{n}"], one.limits["region", f"{n}"]
        api.set(db, concurrency=2)
        region.set(db, concurrency=slots)
        limits = {each.dimension: each.name for each in (api, region)}
        for queue in (one, two):  # Each notes the first time that it has such messages.
            queue.cancel(db, queue.enqueue(db, b"", key="k", limits=limits))
        ids = [one.enqueue(db, b"%d" % n, key="k", limits=limits) for n in range(2)]
        last = {region.dimension: region.name}
        two.enqueue_many(db, [NewMessage(b"x", limits=last)] * ((slots - 1) * busy + wait))
        (held,) = one.receive_many(db, 1)
        return Given(one, two, api, region, slots, held, ids[1], two.receive_many(db, 9))

    return make


def settled(db: fdb.Database, given: Given) -> None:
    """Nothing is astray or stuck, and in the end all come out, each once, no more than allowed."""
    queues = [queue for queue in (given.one, given.two) if _exists(db, queue)]
    for queue in queues:
        assert queue.admin.verify(db).deviations == ()
    if given.region.state(db).paused:
        given.region.resume(db)
    later = [Queue(each.name, each._root, clock=ManualClock(seconds=600)) for each in queues]
    for each in later:
        each.admin.sweep(db)
    while found := [(each, some) for each in later if (some := each.receive_many(db, 10))]:
        assert sum(len(some) for _, some in found) <= 3
        for each, some in found:
            each.ack(db, some)
            assert each.admin.verify(db).deviations == ()
    for queue in queues:
        depth = queue.depth(db)
        assert depth.enqueued == depth.done + depth.dead + depth.purged
        assert queue.admin.verify(db).deviations == ()
    for limit in (given.api, given.region):
        state = limit.state(db)
        assert (state.out, state.waiting) == ({}, 0)


def run(
    db: fdb.Database, fresh: Callable[..., Given], setting: Sequence[int], names: Sequence[str]
) -> int:
    def start() -> Start:
        slots, busy, wait = setting
        given = fresh(slots, bool(busy), wait)

        def check(results: list[Any]) -> None:
            no_errors(results, LeaseLost, QueueNotFound)
            state = given.region.state(db)
            most = max(slots, 3 if "raise" in names else 1)
            assert len(state.out) <= most
            if state.waiting and not state.paused and state.concurrency:
                assert len(state.out) >= state.concurrency, "a slot is free while a message waits"
            settled(db, given)

        return [given.ack(), *map(given.operation, names)], check

    return explore(db, start)


@pytest.mark.parametrize(
    "name",
    [
        "enqueue at the second gate",
        "end at the second gate",
        "cancel",
        "lower",
        "delete two",
        *(
            pytest.param(each, marks=SLOW)
            for each in (
                *("enqueue of the key", "enqueue elsewhere", "edit", "lapse", "raise"),
                *("pause", "more of the key", "delete one"),
            )
        ),
    ],
)
@pytest.mark.parametrize(
    "setting",
    [(2, 1, 1), pytest.param((2, 1, 0), marks=SLOW), pytest.param((1, 0, 1), marks=SLOW)],
    ids=["line", "no line", "one slot"],
)
def test_a_hand_over_at_the_first_gate_against_what_happens_at_the_second(
    db: fdb.Database, fresh: Callable[..., Given], setting: Sequence[int], name: str
) -> None:
    if name == "end at the second gate" and not setting[1]:
        pytest.skip("none is out there")
    assert run(db, fresh, setting, [name]) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("end at the second gate", "enqueue at the second gate"),
        ("end at the second gate", "cancel"),
        ("end at the second gate", "enqueue of the key"),
        ("delete two", "enqueue elsewhere"),
        ("raise", "enqueue at the second gate"),
        ("more of the key", "end at the second gate"),
        ("cancel", "enqueue of the key"),
    ],
)
@pytest.mark.parametrize("wait", [0, 1])
def test_a_hand_over_at_the_first_gate_against_two_others(
    db: fdb.Database, fresh: Callable[..., Given], names: Sequence[str], wait: int
) -> None:
    assert run(db, fresh, (2, 1, wait), names) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["end at the second gate", "cancel", "delete one", "raise"])
def test_what_waits_at_the_second_gate_goes_on_once(
    db: fdb.Database, fresh: Callable[..., Given], name: str
) -> None:
    def start() -> Start:
        # Given the next of the key at the second gate, where another waits before it
        given = fresh(3, True, 1)
        given.one.ack(db, given.held)
        two = given.again(given.two)

        def check(results: list[Any]) -> None:
            no_errors(results, LeaseLost, QueueNotFound)
            settled(db, given)

        late = lambda db: two.reject(db, given.other[1], "bad", drop=True)  # noqa: E731
        return [late, given.operation(name), given.operation("enqueue of the key")], check

    assert explore(db, start) >= 2
