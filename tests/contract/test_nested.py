"""Messages with several gates, a key and limits: they wait at one while they hold those before."""

from __future__ import annotations

from typing import Any

import pytest

from fdbqueue import KeyLimits, NewMessage, Queue
from fdbqueue.errors import InvalidArgument
from fdbqueue.queue.keys.shared_limits import SharedLimit
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.audit import sound
from tests.contract.test_limits import counts, damage, left
from tests.taking import payloads

Database = fdb.Database
API, REGION = {"api": "stripe"}, {"region": "eu"}
BOTH = {**REGION, **API}


@pytest.fixture
def api(db: Database, queues: tuple[Queue, Queue]) -> SharedLimit:
    """The first limit, with one slot."""
    limit = queues[0].limits["api", "stripe"]
    limit.set(db, concurrency=1)
    return limit


@pytest.fixture
def region(db: Database, queues: tuple[Queue, Queue]) -> SharedLimit:
    """The second limit, with one slot."""
    limit = queues[0].limits["region", "eu"]
    limit.set(db, concurrency=1)
    return limit


def some(*names: str, **terms: Any) -> list[NewMessage]:
    return [NewMessage(name.encode(), **terms) for name in names]


def drained(db: Database, *queues: Queue) -> list[bytes]:
    """What comes out of queues, one after the other, while they are looked at in turn."""
    got = []
    while found := [(queue, each) for queue in queues for each in queue.receive_many(db, 10)]:
        got += [each.payload for _, each in found]
        for queue, each in found:
            queue.ack(db, each)
    sound(db, *queues)
    assert left(db, *queues) == 0
    return got


def test_a_message_that_expires_at_a_later_gate_lets_the_next_of_its_key_go_on(
    db: Database,
    queues: tuple[Queue, Queue],
    api: SharedLimit,
    clock: ManualClock,
) -> None:
    one, two = queues
    two.enqueue(db, b"", limits=API)
    one.enqueue(db, b"0", key="k", limits=API, ttl=5)
    one.enqueue(db, b"1", key="k")
    clock.seconds += 6
    assert one.admin.sweep(db).expired == 1
    assert payloads(one.receive_many(db, 9)) == [b"1"]
    assert counts(db, api) == (1, 0)
    sound(db, *queues)


def test_a_waiting_message_keeps_what_it_holds_when_it_is_edited_or_replaced(
    db: Database, queues: tuple[Queue, Queue], api: SharedLimit, region: SharedLimit
) -> None:
    one, two = queues
    one.set_options(db, keys=KeyLimits(concurrency=3, window=1))
    two.enqueue(db, b"region", limits=REGION)
    terms: dict[str, Any] = {"key": "k", "limits": BOTH, "unique": "u"}
    first = one.enqueue(db, b"old", **terms)
    one.enqueue(db, b"next", key="k")
    assert one.edit(db, first, priority=9)
    assert one.enqueue(db, b"new", on_conflict="replace", **terms) == first
    state = one.keys["k"].state(db)
    assert (len(state.out), state.in_window, state.waiting) == (1, 1, 1)
    assert (counts(db, api), counts(db, region)) == ((1, 0), (1, 1))
    sound(db, *queues)
    assert drained(db, two, one) == [b"region", b"new", b"next"]


@pytest.mark.parametrize("count", [0, 6])
def test_too_many_limits_are_refused(db: Database, queues: tuple[Queue, Queue], count: int) -> None:
    with pytest.raises(InvalidArgument, match="limits"):
        queues[0].enqueue(db, b"", limits={f"{n}": "x" for n in range(count)})


@pytest.mark.parametrize(
    "name",
    ["a slot is free below the root", "a message is not in line", "the backlog is not known"],
)
def test_verify_finds_and_repairs_what_is_wrong(
    db: Database, queues: tuple[Queue, Queue], api: SharedLimit, region: SharedLimit, name: str
) -> None:
    one, two = queues
    region.pause(db)
    one.enqueue_many(db, some("0", "1", key="k", limits=BOTH))
    one.enqueue_many(db, some("2", "3", limits=BOTH))
    sound(db, *queues)
    damage(db, name, one, two)
    assert one.admin.verify(db).deviations
    one.admin.repair(db)
    sound(db, *queues)
    region.resume(db)
    assert sorted(drained(db, one)) == [b"0", b"1", b"2", b"3"]


def test_verify_frees_what_a_message_does_not_hold_at_a_later_gate(
    db: Database, queues: tuple[Queue, Queue], api: SharedLimit, region: SharedLimit
) -> None:
    one, _ = queues
    region.set(db, concurrency=2)
    gate = ("region", "eu")
    message_id = one.enqueue(db, b"0", key="k", limits=BOTH)
    (n,) = region.state(db).out
    db[one._keys.slot(gate, 1 - n)] = message_id.encode()
    found = {each.kind for each in one.admin.verify(db).deviations}
    assert found == {"slot astray"}
    one.admin.repair(db)
    assert len(region.state(db).out) == 1
    assert drained(db, one) == [b"0"]
