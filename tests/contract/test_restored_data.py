"""Data whose versions are ahead of the database's: a copy that was brought to a younger cluster."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fdbqueue import Queue
from fdbqueue.consumers import eviction, registry, wakeups
from fdbqueue.errors import Held
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import Clock
from fdbqueue.testing import ManualClock
from tests.consumers import register
from tests.schemes import forced
from tests.taking import take

MONTHS = 90 * 24 * 3600
HOURS = 3 * 3600


@dataclass
class Elder(Clock):
    """The clock of a cluster that has been there for longer."""

    seconds: int

    def versions_ahead(self) -> int:
        return self.seconds * 1_000_000


@pytest.fixture(params=[HOURS, MONTHS])
def elder(request: pytest.FixtureRequest, db: fdb.Database, space: fdb.Subspace) -> Queue:
    """A queue as it is used on the cluster that it comes from."""
    return forced(Queue.create(db, "orders", root=space, clock=Elder(request.param)), "staged")


def young(space: fdb.Subspace, seconds: float = 0.0) -> Queue:
    """The queue on the cluster that it is brought to, so many seconds later."""
    return Queue("orders", root=space, clock=ManualClock(seconds))


def rows(db: fdb.Database, queue: Queue, kind: Kind) -> int:
    keys = queue._keys.kind(kind)
    return len(db.get_range(keys.start, keys.stop))


def test_a_leader_of_another_cluster_leads_nobody(
    db: fdb.Database, space: fdb.Subspace, elder: Queue
) -> None:
    # Given a line that was copied with its leader
    elder.line.request(db)
    elder.line.request(db)
    elder.enqueue(db, b"a")
    # When a consumer of the younger cluster asks, then it is served at once
    here = young(space)
    ticket = here.line.request(db)
    assert ticket.leads
    found = here.line.collect(db, ticket)
    assert [delivery.payload for delivery in found] == [b"a"]
    # And those in line are gone: nobody waits for them
    assert here.receive(db) is None
    assert rows(db, here, QueueKeys.led) == 0


def test_leases_of_another_cluster_lapse_by_the_wall_clock(
    db: fdb.Database, space: fdb.Subspace, elder: Queue
) -> None:
    elder.enqueue_many(db, [b"a", b"b", b"c"])
    assert len(elder.receive_many(db, 3, lease=30)) == 3

    assert young(space, 100).receive(db) is None, "only its version tells whose it is"
    later = young(space, 151)
    assert {lease.expired for lease in later.admin.leases(db)} == {True}
    found = [later.receive(db) for _ in range(3)]
    assert [delivery and delivery.payload for delivery in found] == [b"a", b"b", b"c"]
    assert later.admin.verify(db).ok


def test_a_sweep_ends_leases_of_another_cluster(
    db: fdb.Database, space: fdb.Subspace, elder: Queue
) -> None:
    elder.enqueue_many(db, [b""] * 250)
    assert len(elder.receive_many(db, 250, lease=30)) == 250
    later = young(space, 151)

    assert later.admin.sweep(db).promoted == 250


def test_consumers_of_another_cluster_count_as_dead(
    db: fdb.Database, space: fdb.Subspace, elder: Queue
) -> None:
    # Given a consumer that sleeps as the guard, and was copied
    consumer = register(db, elder, "billing", 9)
    wakeups.register(db, elder._scope(db.create_transaction()), consumer)
    here = young(space)

    def look(tr: fdb.Transaction) -> object:
        scope = here._scope(tr)
        return registry.superior(tr, scope, 0), eviction.evict_dead(tr, scope).consumers

    assert here._run(db, look) == (None, [(here.name, consumer.id)])
    assert here.admin.consumers(db) == []


def test_a_subscription_held_on_another_cluster_is_free(
    db: fdb.Database, space: fdb.Subspace, elder: Queue
) -> None:
    elder.enqueue(db, b"a")
    held = elder.subscriptions.open(db, "one", mode="browse", exclusive=True)
    assert len(held.browse(db)) == 1

    heir = young(space).subscriptions.open(db, "one", mode="browse", exclusive=True)
    heir.browse(db)
    with pytest.raises(Held):
        young(space).subscriptions.open(db, "one", mode="browse", exclusive=True).browse(db)


def test_dead_letters_of_another_cluster_are_redriven_and_purged(
    db: fdb.Database, space: fdb.Subspace, elder: Queue
) -> None:
    for payload in (b"a", b"b"):
        elder.enqueue(db, payload)
        found = take(db, elder)
        elder.reject(db, found, "no")
    here = young(space)
    first, second = here.dead.list(db)

    assert here.retry(db, match=lambda message: message.id == first.message.id).taken == 1
    assert here.purge(db, states="dead").taken == 1
    assert [message.payload for message in here.peek(db, 9)] == [b"a"]
    assert second.message.payload == b"b"
