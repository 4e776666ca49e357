"""What cannot be read is shown, skipped and deleted, and holds up nothing else."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import fdbqueue
from fdbqueue import NewMessage, Queue
from fdbqueue.errors import CorruptData
from fdbqueue.schema import catalogue
from fdbqueue.schema.codec import pack
from fdbqueue.schema.envelope import UNREADABLE
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.schemes import forced
from tests.taking import take

pytestmark = pytest.mark.queue()

OTHER = b"\x63" + b"an envelope of another version"
GARBAGE = b"\x01\xc1"
ASTRAY = ("pointer astray", "slot astray")
"""What is left of a message of which not even the id can be read."""
OTHERS = [OTHER, b"buy milk", b"\x01", b"\x01nonsense", b"\x01" + b"\x91" * 50_000]
UNKNOWN_FIELD = pack({1: b"x", 2: 4, 3: 0, 99: "what is this"})


def first_row(db: fdb.Database, queue: Queue, kind: Kind) -> fdb.KeyValue:
    keys = queue._keys.kind(kind)
    return db.get_range(keys.start, keys.stop, limit=1)[0]


def spoil(db: fdb.Database, queue: Queue, kind: Kind, value: bytes) -> None:
    """Replace the first value of a kind."""
    db[first_row(db, queue, kind).key] = value


# -- envelopes --------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [OTHER, GARBAGE, UNKNOWN_FIELD, b""])
@pytest.mark.parametrize("scheme", ["first", "staged"])
def test_a_message_that_cannot_be_read_is_skipped_to_the_dead_letters(
    db: fdb.Database, queue: Queue, scheme: str, stored: bytes
) -> None:
    # Given one at the head of the queue
    forced(queue, scheme)
    bad, good = queue.enqueue_many(db, [b"bad", b"good"])
    spoil(db, queue, QueueKeys.ready, stored)
    # Then a look at the queue shows it
    shown, other = queue.peek(db, 2)
    assert (shown.id, shown.payload, shown.content_type) == (bad, stored, UNREADABLE)
    assert "an envelope" in str(shown.last_error)
    assert other.payload == b"good"
    assert [message.id for message in queue.browse(db)] == [bad, good]
    assert [each.id for each in queue.messages(db)] == [bad, good]
    assert not queue.edit(db, bad, priority=9)
    # And the next who receives gets the one behind it
    found = take(db, queue)
    assert found.payload == b"good"
    queue.ack(db, found)
    assert queue.receive(db) is None
    # And it is a dead letter, as it was, which a redrive leaves and a purge removes
    (letter,) = queue.dead.list(db)
    assert (letter.message.id, letter.message.payload) == (bad, stored)
    assert "an envelope" in letter.death.reason
    assert queue.retry(db).taken == 0
    assert queue.purge(db, states="dead").taken == 1
    assert queue.depth(db).ready == queue.depth(db).dead == 0


def test_what_is_skipped_comes_back_whole_once_it_can_be_read(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue(db, b"a", headers={"region": "eu"})
    readable = first_row(db, queue, QueueKeys.ready).value
    spoil(db, queue, QueueKeys.ready, b"\x63" + readable[1:])
    assert queue.receive(db) is None
    grave = first_row(db, queue, QueueKeys.dead)
    db[grave.key] = grave.value.replace(b"\x63" + readable[1:], readable)

    assert queue.retry(db).taken == 1
    (message,) = queue.peek(db)
    assert (message.payload, message.headers) == (b"a", {"region": "eu"})


def test_more_of_them_than_one_look_takes_stop_nobody(db: fdb.Database, queue: Queue) -> None:
    for _ in range(3):
        queue._run(db, lambda tr: [queue.enqueue(tr, b"bad") for _ in range(500)])
    queue.enqueue(db, b"good")
    rows = queue._keys.ready.rows

    def ruin(tr: fdb.Transaction) -> None:
        for kv in tr.get_range(rows.start, rows.stop, limit=1_500):
            tr[kv.key] = OTHER

    queue._run(db, ruin)
    found = take(db, queue)
    assert found.payload == b"good"
    assert queue.depth(db).dead == 1_500


def test_a_purge_and_a_sweep_go_through_what_cannot_be_read(db: fdb.Database, queue: Queue) -> None:
    for _ in range(2):
        queue.enqueue_many(db, [b"bad", b"good"])
        spoil(db, queue, QueueKeys.ready, OTHER)
        queue.admin.sweep(db)
        assert queue.depth(db).dead == 1
        queue.purge(db, states="dead")
        queue.enqueue_many(
            db,
            [b"bad"],
        )
        spoil(db, queue, QueueKeys.ready, OTHER)
        assert queue.purge(db).taken == 2
    assert queue.depth(db).ready == 0


def test_a_subscription_and_a_plan_pass_what_cannot_be_read(db: fdb.Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"bad", b"good", b"better"])
    spoil(db, queue, QueueKeys.ready, OTHER)
    every = queue.subscriptions.open(db, "all", selector="priority < 9")
    found = every.receive(db, at_most_once=True)
    assert found is not None
    assert found.payload == b"good"
    assert queue.depth(db).dead == 1
    spoil(db, queue, QueueKeys.ready, OTHER)
    assert queue.receive(db) is None
    assert queue.depth(db).dead == 2


@pytest.mark.parametrize("stored", [OTHER, GARBAGE])
def test_a_delayed_message_that_cannot_be_read_stops_nobody(
    db: fdb.Database, queue: Queue, clock: ManualClock, stored: bytes
) -> None:
    queue.enqueue(db, b"bad", delay=10)
    queue.enqueue(db, b"good")
    spoil(db, queue, QueueKeys.delayed, stored)
    clock.seconds += 11

    found = take(db, queue)
    assert found.payload == b"good"
    assert [letter.message.content_type for letter in queue.dead.list(db)] == [UNREADABLE]


@pytest.mark.parametrize("stored", [OTHER, GARBAGE])
@pytest.mark.parametrize("last", [False, True])
def test_a_message_that_waits_for_its_key_and_cannot_be_read_stops_nobody(
    db: fdb.Database, queue: Queue, stored: bytes, last: bool
) -> None:
    # Given one that waits behind the message that is in hands
    queue.enqueue_many(db, [NewMessage(b"held", key="k"), NewMessage(b"bad", key="k")])
    if not last:
        queue.enqueue(db, b"good", key="k")
    held = take(db, queue)
    spoil(db, queue, QueueKeys.waiting, stored)
    assert UNREADABLE in {each.message.content_type for each in queue.messages(db, "waiting")}
    # When that ends, those behind it come
    queue.ack(db, held)
    found = None if last else queue.receive(db)
    if found is not None:
        assert found.payload == b"good"
        queue.ack(db, found)
    # And it is a dead letter, and the key goes on as any other
    assert queue.receive(db) is None
    assert [letter.message.content_type for letter in queue.dead.list(db)] == [UNREADABLE]
    queue.enqueue(db, b"next", key="k")
    assert queue.receive(db) is not None
    assert queue.keys["k"].state(db).waiting == 0


@pytest.mark.parametrize("stored", [OTHER, GARBAGE])
@pytest.mark.parametrize(("kind", "delay"), [(QueueKeys.waiting, 0), (QueueKeys.delayed, 10)])
def test_what_waits_and_cannot_be_read_can_be_purged(
    db: fdb.Database, queue: Queue, stored: bytes, kind: Kind, delay: float
) -> None:
    queue.enqueue(db, b"ahead", key="k")
    queue.enqueue(db, b"bad", key="k", delay=delay)
    spoil(db, queue, kind, stored)
    assert queue.purge(db, states=["ready", "waiting", "scheduled"]).taken == 2
    assert queue.keys["k"].state(db).waiting == 0
    assert {each.kind for each in queue.admin.verify(db).deviations} <= {"counter", *ASTRAY}


@pytest.mark.parametrize("stored", [OTHER, GARBAGE])
def test_a_dead_letter_that_cannot_be_read_is_shown_and_purged(
    db: fdb.Database, queue: Queue, stored: bytes
) -> None:
    queue.enqueue(db, b"bad")
    found = take(db, queue)
    queue.reject(db, found, reason="no")
    spoil(db, queue, QueueKeys.dead, stored)
    (letter,) = queue.dead.list(db)
    assert (letter.message.content_type, letter.message.payload) == (UNREADABLE, stored)
    assert queue.retry(db).taken == 0
    assert queue.purge(db, states="dead").taken == 1
    assert queue.dead.list(db) == []


@pytest.mark.parametrize("stored", [OTHER, GARBAGE])
def test_a_lease_that_cannot_be_read_stops_nobody(
    db: fdb.Database, queue: Queue, clock: ManualClock, stored: bytes
) -> None:
    queue.enqueue_many(db, [b"bad", b"good"])
    assert queue.receive(db, lease=5) is not None
    spoil(db, queue, QueueKeys.lease, stored)
    clock.seconds += 6

    found = take(db, queue)
    assert found.payload == b"good"
    assert [lease.delivery.id for lease in queue.admin.leases(db)] == [found.id]
    assert "unreadable" in {deviation.kind for deviation in queue.admin.verify(db).deviations}


@pytest.mark.parametrize(
    "elements", [("a",), (4, "a"), (4, 1), (4, 1, b"a", b"b"), (4, 2**64, b"a")]
)
def test_a_key_of_somebody_else_among_the_ready_messages_is_named_and_nothing_hangs(
    db: fdb.Database, queue: Queue, elements: tuple[object, ...]
) -> None:
    queue.enqueue(db, b"good")
    db[fdb.tuple.pack(elements, queue._keys.ready.prefix)] = b"foreign"
    for act in (queue.receive, queue.peek, queue.admin.sweep):
        with pytest.raises(CorruptData, match="a key"):
            act(db)
    assert "unreadable" in {each.kind for each in queue.admin.verify(db).deviations}


# -- side records -----------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [OTHER, b"\xff", b"05-00"])
@pytest.mark.parametrize(
    "kind",
    [QueueKeys.slot, QueueKeys.unique, QueueKeys.schedule, QueueKeys.backlog, QueueKeys.dedup],
)
def test_a_side_record_that_cannot_be_read_is_named_and_ends_no_verification(
    db: fdb.Database, queue: Queue, kind: Kind, stored: bytes
) -> None:
    # Given messages of one key, of which all but the first wait, and a schedule
    terms = NewMessage(b"a", key="k", unique="u", dedup_id="d")
    queue.enqueue_many(db, [terms, NewMessage(b"b", key="k"), NewMessage(b"c", key="k")])
    queue.schedules.set(db, "tick", every=60, payload=b"x")
    # When a record beside them is spoilt
    spoil(db, queue, kind, stored)
    # Then verify tells, and all that can be repaired is
    assert not queue.admin.verify(db).ok
    queue.admin.repair(db)
    # And messages come and go
    found = take(db, queue)
    queue.ack(db, found)
    assert queue.receive(db) is not None
    assert queue.purge(db).taken == 1


@pytest.mark.parametrize("stored", [b"\xff" * 8, b"\x01" * 9])
@pytest.mark.parametrize("sort", [None, "n"])
def test_a_tail_that_cannot_be_read_is_named(
    db: fdb.Database, space: Any, sort: str | None, stored: bytes
) -> None:
    queue: Queue[bytes] = Queue.create(db, "tailed", root=space, sort=sort)
    for _ in range(2):
        queue.enqueue(db, b"a", headers={"n": 1})
        assert queue.receive(db) is not None
    spoil(db, queue, QueueKeys.tail, stored)
    with pytest.raises(CorruptData, match="the tail of a level"):
        queue.enqueue(db, b"b", headers={"n": 1})
    assert "unreadable" in {each.kind for each in queue.admin.verify(db).deviations}


def test_limits_that_cannot_be_read_are_named_and_replaced(db: fdb.Database, queue: Queue) -> None:
    limits = queue.keys["k"], queue.limits["api", "stripe"]
    for each in limits:
        each.set(db, concurrency=2)
    shared = queue._scope(db.create_transaction()).root.limits.limits.rows
    for every in (queue._keys.limits.rows, shared):
        db[db.get_range(every.start, every.stop, limit=1)[0].key] = OTHER
    queue.enqueue(db, b"a", limits={"api": "open"})
    found = [each for each in queue.admin.verify(db).deviations if each.kind == "unreadable"]
    assert {each.subject for each in found} == {"k", "api/stripe"}
    for each in limits:
        each.set(db, concurrency=3)
    assert queue.admin.verify(db).ok


@pytest.mark.parametrize("kind", ["slot", "waiting"])
def test_a_place_at_a_limit_that_cannot_be_read_is_corrected_from_its_queue(
    db: fdb.Database, queue: Queue, kind: str
) -> None:
    queue.limits["api", "stripe"].set(db, concurrency=1)
    queue.enqueue_many(db, [NewMessage(b"%d" % n, limits={"api": "stripe"}) for n in range(2)])
    every = getattr(queue._scope(db.create_transaction()).root.limits, kind).rows
    db[db.get_range(every.start, every.stop, limit=1)[0].key] = OTHER
    assert not queue.admin.verify(db).ok
    queue.admin.repair(db)
    assert queue.admin.verify(db).ok
    for n in range(2):
        found = take(db, queue)
        assert found.payload == b"%d" % n
        queue.ack(db, found)


# -- queues -----------------------------------------------------------------------------------


def afresh(queue: Queue) -> Queue:
    """A handle that has nothing in its cache."""
    fresh: Queue = pickle.loads(pickle.dumps(queue))
    return fresh


@pytest.mark.parametrize("stored", OTHERS)
def test_a_queue_that_cannot_be_read_hides_no_other_and_can_be_deleted(
    db: fdb.Database, space: fdb.Subspace, queue: Queue, stored: bytes
) -> None:
    other = Queue.create(db, "other", root=space)
    other.enqueue(db, b"x")
    queue.enqueue_many(db, [b"a", b"b"])
    db[queue._keys.meta] = stored

    assert fdbqueue.list_queues(db, root=space) == ["orders", "other"]
    found = fdbqueue.survey(db, ["orders", "other"], root=space)
    assert (found["other"].depth.ready, found["other"].unreadable) == (1, None)
    assert found["orders"].depth.ready == 2
    assert "queue 'orders'" in str(found["orders"].unreadable)
    with pytest.raises(CorruptData):
        afresh(queue).receive(db)
    queue.delete(db)
    assert fdbqueue.list_queues(db, root=space) == ["other"]


def test_levels_that_cannot_be_read_are_no_queue(db: fdb.Database, queue: Queue) -> None:
    stored = catalogue.Meta.unpack(db[queue._keys.meta])
    stored.options["levels"] = "many"
    db[queue._keys.meta] = stored.pack()

    with pytest.raises(CorruptData, match="levels"):
        afresh(queue).enqueue(db, b"a")


@pytest.mark.parametrize("stored", OTHERS)
def test_a_subscription_that_cannot_be_read_disables_itself_alone(
    db: fdb.Database, queue: Queue, stored: bytes
) -> None:
    queue.subscriptions.open(db, "audit", mode="browse")
    queue.subscriptions.open(db, "eu", selector="region = 'eu'")
    spoil(db, queue, QueueKeys.subscription, stored)

    here = afresh(queue)
    here.enqueue(db, b"a", headers={"region": "eu"})
    assert [found.name for found in here.subscriptions.list(db)] == ["eu"]
    found = here.subscriptions.open(db, "eu").receive(db)
    assert found is not None
