"""What tools/chaos makes of real deliveries."""

from __future__ import annotations

import random

import pytest
from chaosrun import replacing
from chaosrun.actors import row
from chaosrun.history import Operation
from chaosrun.place import REPLACED, Place
from chaosrun.view import View

from fdbqueue import NewMessage, Queue
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock


@pytest.mark.parametrize("contention", ["first", "staged", "auto", "relaxed"])
def test_every_delivery_after_an_expired_lease_has_a_higher_number(
    db: fdb.Database, space: fdb.Subspace, contention: str
) -> None:
    # Given messages whose leases expire, first those of batches and then one by one
    clock = ManualClock()
    queue = Queue.create(
        db, "q", root=space, contention=contention, lease=60, backoff=None, clock=clock
    )
    region = {"region": "eu"}
    queue.enqueue_many(db, [NewMessage(each, headers=region) for each in (b"1", b"2")])
    rows = []
    for _ in range(4):
        while found := queue.receive_many(db, 2):
            rows += [row(one) for one in found]
        clock.seconds += 61
        queue.sweep(db)
    # When they are read as a history
    view = View([Operation("x.0", 1, "receive", "q", 0, 0, ended=1, result=rows)])
    # Then each delivery of a message has a higher number than the one before
    numbers = [[one.nth for one in taken] for taken in view.taken.values()]
    assert [len(each) for each in numbers] == [4, 4]
    assert all(each == sorted(set(each)) for each in numbers)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(db: fdb.Database, space: fdb.Subspace, clock: ManualClock) -> Place:
    made = Place.__new__(Place)
    made.db, made.space = db, space
    root = space.subspace(("queues",))
    made.replaced = Queue.create(
        db, REPLACED, root=root, lease=60, backoff=None, max_attempts=None, clock=clock
    )
    return made


def test_what_replaces_what_waits_is_heard(place: Place, clock: ManualClock) -> None:
    chance = random.Random(1)
    for n in range(90):
        replacing.say(place, chance)
        clock.seconds += 0.1
        if n % 3 == 0:
            replacing.hear(place, chance)
    clock.seconds += 61
    assert list(replacing.wrong(place)) == []
    depth = place.replaced.depth(place.db)
    assert 0 < depth.done < 90
    assert depth.purged > 0


@pytest.mark.parametrize("name", ["lost", "twice", "not replaced"])
def test_what_goes_wrong_with_replacements_is_found(
    place: Place, clock: ManualClock, name: str
) -> None:
    db, queue, chance = place.db, place.replaced, random.Random(1)
    replacing.say(place, chance)
    clock.seconds += 1
    (tag,) = (each.payload.decode() for each in queue.peek(db))
    match name:
        case "lost":
            queue.purge(db)
            wanted = f"{tag} was said last, and never heard"
        case "twice":
            replacing.drain(place)
            db.add(place.space.pack((REPLACED, "heard", tag)), (1).to_bytes(8, "little"))
            wanted = f"{tag} was heard 2 times"
        case _:
            db[place.space.pack((REPLACED, "said", tag.split(":")[0]))] = b"2"
            while queue.depth(db).ready:
                replacing.hear(place, chance)
            wanted = f"{tag} was taken, though it had been replaced"
    clock.seconds += 61
    assert wanted in list(replacing.wrong(place))
