"""Claims against a model: each message of a claim is settled, extended and lost by itself, and a
batch is settled whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Batch, Delivery, NewMessage, Queue, Snooze
from fdbqueue.errors import LeaseLost
from fdbqueue.messages.delivery import lease, lease_expiry, lease_rows
from fdbqueue.schema.keys import Kind
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.schemes import forced

LEASE = 60


@dataclass
class Held:
    """A message that is held: the number of its place, its delivery, and when its lease ends."""

    delivery: Delivery
    until: float


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("enqueue", "receive", "receive", "batch", "batch", "settle", "settle"),
                *("ack", "ack", "extend", "extend", "release", "wait"),
            )
        ),
        st.integers(1, 12),
        st.integers(0, 2**16 - 1),
        st.booleans(),
    ),
    max_size=30,
)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("scheme", ["first", "staged"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_each_message_of_a_claim_has_a_life_of_its_own(
    db: fdb.Database,
    fresh: Callable[[str], tuple[Queue, ManualClock]],
    scheme: str,
    steps: list[tuple[str, int, int, bool]],
) -> None:
    queue, clock = fresh(scheme)
    ready: set[str] = set()
    held: dict[str, Held] = {}
    gone: list[Delivery] = []
    batches: list[Batch[Any]] = []
    done = 0
    order: dict[str, int] = {}
    for step, number, chosen, own in steps:
        # Up to sixteen of those that are held, in their order
        some = [
            each
            for n, each in enumerate(sorted(held, key=order.__getitem__))
            if chosen >> (n % 16) & 1
        ]
        given = [held[each].delivery for each in some]
        match step:
            case "enqueue":
                drafts = [NewMessage(b"x", priority=9 * (chosen >> n & 1)) for n in range(number)]
                ids = queue.enqueue_many(db, drafts)
                ready |= {*ids}
                order = {each: n for n, each in enumerate(sorted({*order, *ids}))}
            case "receive" | "batch":
                for each in [each for each, one in held.items() if one.until <= clock.seconds]:
                    gone.append(held.pop(each).delivery)
                    ready.add(each)
                queue.admin.sweep(db)
                if step == "batch":
                    batches.append(queue.receive_batch(db, number))
                    found = [*batches[-1]]
                else:
                    found = queue.receive_many(db, number)
                got = [one.id for one in found]
                assert got == sorted(ready, key=order.__getitem__)[: len(got)]
                assert got or not ready
                ready -= {*got}
                held |= {one.id: Held(one, clock.seconds + LEASE) for one in found}
            case "settle" if batches:
                batch = batches.pop(chosen % len(batches))
                lost = {
                    each.id
                    for each in batch
                    if each.id not in held or held[each.id].delivery.token != each.token
                }
                verdicts = {each.id: Snooze(0) for each in batch[1:number:2]} if own else {}
                if lost:
                    with pytest.raises(LeaseLost) as raised:
                        queue.settle(db, batch, verdicts)
                    assert {*raised.value.lost} == lost
                else:
                    queue.settle(db, batch, verdicts)
                    gone += [held.pop(each.id).delivery for each in batch]
                    ready |= verdicts.keys()
                    done += len(batch) - len(verdicts)
            case "ack":
                tr = db.create_transaction() if own else None
                queue.ack(tr or db, given)
                if tr is not None:
                    tr.commit().wait()
                done += len(some)
                gone += [held.pop(each).delivery for each in some]
            case "release":
                queue.release(db, given, delay=0)
                gone += [held.pop(each).delivery for each in some]
                ready |= {*some}
            case "extend":
                seconds = 15 * number
                for one in queue.extend(db, given, seconds):
                    # Its holder may not learn of it
                    known = one if own else held[one.id].delivery
                    held[one.id] = Held(known, clock.seconds + seconds)
            case "wait":
                clock.seconds += 10 * number
        if gone:
            with pytest.raises(LeaseLost):
                queue.ack(db, [*given, gone[chosen % len(gone)]] if step == "wait" else gone)
        over = [each for each, one in held.items() if one.until <= clock.seconds]
        depth = queue.depth(db)
        assert (depth.ready, depth.leased, depth.done) == (len(ready), len(held), done)
        listed = {one.delivery.id: one.expired for one in queue.admin.leases(db)}
        assert listed == {each: each in over for each in held}
        result = queue.admin.verify(db)
        assert not result.deviations, result
    # When all is over, each is done once and nothing is left
    clock.seconds += 1_000
    queue.admin.sweep(db)
    while found := queue.receive_many(db, 10):
        queue.ack(db, found)
        done += len(found)
    assert done == len(order)
    for kind in (Kind.LEASE, Kind.UNTIL, Kind.EXPIRY):
        every = queue._keys.kind(kind)
        assert not db.get_range(every.start, every.stop), kind.name


@pytest.fixture
def fresh(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[Queue, ManualClock]]:
    """Makes a queue for each run; few messages are many."""
    monkeypatch.setattr(lease_rows, "MIN_SPAN", 3)
    monkeypatch.setattr(lease, "MAX_TOGETHER", 6)
    monkeypatch.setattr(lease_expiry, "MAX_PLACES", 7)
    monkeypatch.setattr(lease_expiry, "MAX_EXPIRED", 2)
    numbers = iter(range(10_000))

    def make(scheme: str) -> tuple[Queue, ManualClock]:
        clock = ManualClock()
        name = f"q{next(numbers)}"
        queue = forced(
            Queue.create(db, name, root=space, lease=LEASE, clock=clock, backoff=None), scheme
        )
        return queue, clock

    return make
