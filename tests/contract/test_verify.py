"""Verification: each kind of deviation is planted and must be found, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fdbqueue import NewMessage, Queue
from fdbqueue.errors import QueueNotFound
from fdbqueue.messages import lookup, run
from fdbqueue.messages.checks import verification
from fdbqueue.queue.admin.verification import Deviation
from fdbqueue.schema import catalogue
from fdbqueue.schema.codec import pack_counters, pack_index, pack_time
from fdbqueue.schema.consumers import ConsumerRecord, Listed, Request
from fdbqueue.schema.envelope import Envelope
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import TIDYING, QueueKeys, What
from fdbqueue.schema.leases import Lease, pack_expiry, pack_until
from fdbqueue.schema.records import Backlog
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import Moment
from fdbqueue.values.limits import Allowed
from fdbqueue.values.model import Depth, Position
from tests.taking import take
from tests.unit.test_format import QUEUE, VECTORS

Database = fdb.Database


@pytest.fixture
def busy(db: Database, queue: Queue) -> Queue:
    """A queue with messages in several states."""
    queue.enqueue_many(db, [b"a", b"b", bytes(200_000), b"c"])
    queue.enqueue(db, b"urgent", priority=9)
    queue.enqueue(db, bytes(100_000), priority=0)
    queue.enqueue(db, b"later", delay=1_000)
    queue.enqueue_many(db, [NewMessage(b"first", key="a"), NewMessage(b"second", key="a")])
    queue.receive(db, at_most_once=True)
    assert queue.receive(db) is not None
    assert queue.admin.verify(db).ok
    return queue


def rows(db: Database, queue: Queue, kind: Kind) -> list[fdb.KeyValue]:
    every = queue._keys.kind(kind)
    return db.get_range(every.start, every.stop)


def first_lease(db: Database, queue: Queue) -> tuple[bytes, Position, int]:
    row = rows(db, queue, QueueKeys.lease)[0]
    lease = Lease.unpack(row.value)
    token = lease.claim + row.key[len(queue._keys.lease.prefix) :]
    return token, lease.position, lease.expiry_version


Plant = Callable[[Database, Queue, QueueKeys], None]


def unreadable(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[rows(db, queue, QueueKeys.ready)[0].key] = b"\x01nonsense"


def unreadable_lease(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[rows(db, queue, QueueKeys.lease)[0].key] = b""


def no_expiry(db: Database, queue: Queue, keys: QueueKeys) -> None:
    token, _, version = first_lease(db, queue)
    del db[keys.expiry(version, token[:16])]


def other_expiry(db: Database, queue: Queue, keys: QueueKeys) -> None:
    token, _, version = first_lease(db, queue)
    db[keys.expiry(version, token[:16])] = pack_expiry(5, [token[16:]])


def no_lease(db: Database, queue: Queue, keys: QueueKeys) -> None:
    token = keys.token(bytes(16), keys.ready_key(Position(0, 17, bytes(8))))
    db[keys.expiry(10**15, bytes(16))] = pack_expiry(5, [token[16:]])


def forgotten_end(db: Database, queue: Queue, keys: QueueKeys) -> None:
    place = keys.ready_key(Position(0, 17, bytes(8)))[keys.place_begin :]
    db[keys.until(bytes(16))] = pack_until({place: Moment(7, 5)})


def unreadable_end(db: Database, queue: Queue, keys: QueueKeys) -> None:
    token, _, _ = first_lease(db, queue)
    db[keys.until(token[:16])] = b"\x01\x91\x93\x01\x02\xc4\x01\x00"


def unreadable_expiry(db: Database, queue: Queue, keys: QueueKeys) -> None:
    version = queue._scope(db.create_transaction()).version(db.create_transaction())
    db[keys.expiry(version, bytes(16))] = pack_expiry(5, [b"\x99"])


def twice(db: Database, queue: Queue, keys: QueueKeys) -> None:
    _, position, _ = first_lease(db, queue)
    db[keys.ready_key(position)] = rows(db, queue, QueueKeys.ready)[0].value
    size = 1 if position.level == 5 else 0
    db.add(keys.count(position.level), counters(enqueued=1, ready=1, ready_bytes=size))


def leased_twice(db: Database, queue: Queue, keys: QueueKeys) -> None:
    row = rows(db, queue, QueueKeys.lease)[0]
    token, position, _ = first_lease(db, queue)
    other = keys.token(token[:16], keys.ready_key(Position(position.level, 1, bytes(8))))
    db[run.token_key(keys, other)] = row.value
    expiry = rows(db, queue, QueueKeys.expiry)[0]
    db[expiry.key] = expiry.value + other[16:]
    db.add(keys.count(position.level), counters(enqueued=1, leased=1))


def cancelled_and_ready(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"x", unique="mine")
    row = next(it for it in rows(db, queue, QueueKeys.ready) if b"mine" in it.value)
    envelope = replace(Envelope.unpack(row.value), cancelled=True)
    db[row.key] = envelope.pack()


def cancellation_not_noted(db: Database, queue: Queue, keys: QueueKeys) -> None:
    cancel_all(db, queue)
    stored = catalogue.Meta.unpack(db[keys.meta])
    tr = db.create_transaction()
    tr[keys.meta] = replace(stored, noted=stored.noted - {"cancels"}).pack()
    catalogue.resubscribe(tr, keys)  # Handles read it again.
    tr.commit().wait()


def cancellation_not_looked_for(db: Database, queue: Queue, keys: QueueKeys) -> None:
    cancel_all(db, queue)
    for row in rows(db, queue, QueueKeys.lease):
        db[row.key] = replace(Lease.unpack(row.value), plain=True).pack()


def cancel_all(db: Database, queue: Queue) -> None:
    for row in rows(db, queue, QueueKeys.lease):
        message_id = Lease.unpack(row.value).position.to_id()
        assert queue.cancel(db, message_id)


def low_tail(db: Database, queue: Queue, keys: QueueKeys) -> None:
    _, position, _ = first_lease(db, queue)
    db[keys.tail(position.level)] = pack_index(position.index - 1)


def lost_chunk(db: Database, queue: Queue, keys: QueueKeys) -> None:
    del db[rows(db, queue, QueueKeys.chunk)[1].key]


def orphaned_chunks(db: Database, queue: Queue, keys: QueueKeys) -> None:
    for n in range(3):
        db[keys.chunk(bytes(12), n)] = b"x"


def wrong_counter(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db.add(keys.count(5), counters(ready=3, done=-3))


def wrong_bytes(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db.add(keys.count(9), counters(ready_bytes=-7))


def wrong_sum(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db.add(keys.count(9), counters(enqueued=1))


def lost_counter(db: Database, queue: Queue, keys: QueueKeys) -> None:
    del db[keys.count(9)]


def slot_of_nobody(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue_many(db, [NewMessage(b"1", key="k"), NewMessage(b"2", key="k")])
    db[keys.slot("k", 0)] = b"gone"
    row = next(
        it for it in rows(db, queue, QueueKeys.ready) if Envelope.unpack(it.value).key == "k"
    )
    del db[row.key]
    db.add(keys.count(5), counters(enqueued=-1, ready=-1, ready_bytes=-1))


def free_slot(db: Database, queue: Queue, keys: QueueKeys) -> None:
    slot_of_nobody(db, queue, keys)
    del db[keys.slot("k", 0)]


def place_of_nobody(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.keys["k"].set(db, concurrency=None, window=1)
    queue.enqueue_many(db, [NewMessage(b"1", key="k"), NewMessage(b"2", key="k")])
    row = next(
        it for it in rows(db, queue, QueueKeys.ready) if Envelope.unpack(it.value).key == "k"
    )
    del db[row.key]
    db.add(keys.count(5), counters(enqueued=-1, ready=-1, ready_bytes=-1))


def lost_place(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.keys["k"].set(db, window=1)
    queue.enqueue(db, b"1", key="k")
    del db[keys.window("k", 0)]


def unrecorded_backlog(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue_many(db, [NewMessage(b"1", key="k"), NewMessage(b"2", key="k")])
    del db[keys.backlog("k")]


def empty_backlog(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"1", key="k")
    db[keys.backlog("k")] = Backlog(5, Allowed(1, None)).pack()


def miscounted_backlog(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue_many(db, [NewMessage(b"1", key="k"), NewMessage(b"2", key="k")])
    db[keys.backlog_count("k", 0)] = pack_counters((7,))


def count_without_backlog(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.backlog_count("k", 0)] = pack_counters((7,))


def other_holder(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"1", key="k")
    db[keys.slot("k", 0)] = b"another"


def held_twice(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"1", key="k")
    del db[keys.slot("k", 0)]
    queue.enqueue(db, b"2", key="k")


def astray_pointer(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.moved("05-000000000001-0000000000000000")] = b"x"


def wrong_pointer(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"dies", priority=7)
    delivery = take(db, queue)
    queue.reject(db, delivery, "no")
    db[keys.moved(delivery.id)] = lookup.pointer(keys, Position(2, 1, bytes(8)))


def lost_pointer(db: Database, queue: Queue, keys: QueueKeys) -> None:
    wrong_pointer(db, queue, keys)
    del db[rows(db, queue, QueueKeys.moved)[0].key]


def unreadable_dedup(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"x", dedup_id="once")
    db[rows(db, queue, QueueKeys.dedup)[0].key] = b"\x01nonsense"


def astray_unique(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.unique("mine")] = b"05-000000000001-0000000000000000"


def missing_unique(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"1", unique="mine")
    del db[keys.unique("mine")]


def astray_end(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.tidying(5, What.EXPIRED, "05-000000000001-0000000000000000")] = b""
    db[keys.earliest(TIDYING)] = pack_time(5)


def missing_end(db: Database, queue: Queue, keys: QueueKeys) -> None:
    queue.enqueue(db, b"1", ttl=1000)
    every = keys.entry.under(TIDYING)
    db.clear_range(every.start, every.stop)


def dead_consumer(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.consumer(b"session", b"gone")] = ConsumerRecord("gone", 2, 1).pack()


def silent_waiter(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.consumer(b"", b"gone")] = ConsumerRecord("", 0, 1, 1, 1).pack()


def dead_waiter(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.state("", 2, 0, b"gone")] = Listed(b"session", 7).pack()
    db[keys.sleeper("", 0, 7, b"gone")] = b""


def sleeper_astray(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.sleeper("", 0, 7, b"gone")] = b""


def dead_request(db: Database, queue: Queue, keys: QueueKeys) -> None:
    db[keys.line.request(1, b"gone" * 4)] = Request(1, waits=True, alive_until=1).pack()


def counters(**deltas: int) -> bytes:
    return pack_counters(tuple(deltas.get(name, 0) for name in Depth.__struct_fields__))


PLANTS: list[tuple[Plant, set[str], bool]] = [
    (unreadable, {"unreadable"}, False),
    (unreadable_lease, {"unreadable"}, False),
    (no_expiry, {"lease without expiry"}, True),
    (other_expiry, {"lease without expiry"}, True),
    (no_lease, {"expiry without lease"}, True),
    (forgotten_end, {"end without expiry"}, True),
    (unreadable_end, {"unreadable"}, False),
    (unreadable_expiry, {"unreadable"}, False),
    (twice, {"ready and leased"}, False),
    (leased_twice, {"leased twice"}, False),
    (cancelled_and_ready, {"cancelled and not leased"}, False),
    (cancellation_not_noted, {"cancellation untold"}, True),
    (cancellation_not_looked_for, {"cancellation untold"}, True),
    (low_tail, {"tail too low"}, True),
    (lost_chunk, {"chunks missing"}, False),
    (orphaned_chunks, {"chunks orphaned"}, True),
    (wrong_counter, {"counter"}, True),
    (wrong_bytes, {"counter"}, True),
    (wrong_sum, {"counter"}, True),
    (lost_counter, {"counter"}, True),
    (slot_of_nobody, {"slot astray"}, True),
    (free_slot, {"backlog stuck"}, True),
    (place_of_nobody, {"window astray"}, True),
    (lost_place, {"window astray"}, True),
    (other_holder, {"slot astray"}, True),
    (held_twice, {"slot held twice"}, False),
    (unrecorded_backlog, {"backlog astray"}, True),
    (empty_backlog, {"backlog astray"}, True),
    (miscounted_backlog, {"backlog miscounted"}, True),
    (count_without_backlog, {"backlog miscounted"}, True),
    (astray_pointer, {"pointer astray"}, True),
    (wrong_pointer, {"pointer astray"}, True),
    (lost_pointer, {"pointer astray"}, True),
    (unreadable_dedup, {"unreadable"}, False),
    (astray_unique, {"unique key astray"}, True),
    (missing_unique, {"unique key missing"}, True),
    (astray_end, {"end astray"}, True),
    (missing_end, {"end missing"}, True),
    (dead_consumer, {"consumer dead"}, True),
    (silent_waiter, {"consumer dead"}, True),
    (dead_waiter, {"consumer dead"}, True),
    (sleeper_astray, {"sleeper astray"}, True),
    (dead_request, {"request of the dead"}, True),
]


NAMES = [plant.__name__ for plant, _, _ in PLANTS]


@pytest.mark.parametrize(("plant", "kinds", "mends"), PLANTS, ids=NAMES)
def test_a_deviation_is_found_and_mended_if_it_can_be(
    db: Database, busy: Queue, plant: Plant, kinds: set[str], mends: bool
) -> None:
    plant(db, busy, busy._keys)
    found = busy.admin.verify(db)
    assert {deviation.kind for deviation in found.deviations} == kinds
    assert not found.ok
    assert not any(deviation.repaired for deviation in found.deviations)
    assert busy.admin.verify(db).deviations == found.deviations, "looking changes nothing"

    mended = busy.admin.repair(db)
    assert {deviation.kind for deviation in mended.deviations} == kinds
    assert {deviation.repaired for deviation in mended.deviations} == {mends}
    assert mended.ok is mends
    assert busy.admin.verify(db).ok is mends


def of_a_record(key: bytes) -> bool:
    """Whether what stands at a key is a record, by the table of keys."""
    number, *found = fdb.tuple.unpack(key, len(QUEUE.prefix))
    rows = [each for each in QueueKeys.table() if each.number == number and each.has(tuple(found))]
    return any(hasattr(row.value, "unpack") for row in rows)


HISTORY = ("EVENT", "EVENT, of two messages")
"""Which may be longer than everything else, and is not looked at."""
RECORDS = [name for name, vector in VECTORS.items() if of_a_record(vector.key)]


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in HISTORY])
def test_a_record_that_cannot_be_read_is_found_wherever_it_is(
    db: Database, queue: Queue, name: str
) -> None:
    db[queue._keys.prefix + VECTORS[name].key[len(QUEUE.prefix) :]] = b"\x63nonsense"
    kinds = {each.kind for each in queue.admin.verify(db).deviations}
    assert kinds & {"unreadable", "pace unreadable"}


def test_a_sound_queue_has_no_deviations(db: Database, busy: Queue) -> None:
    found = busy.admin.verify(db)
    assert (found.ok, found.deviations, found.unchecked, found.messages) == (True, (), (), 8)


def test_a_queue_of_many_pages_is_looked_at_whole(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "PAGE_ROWS", 7)
    monkeypatch.setattr(verification, "PAGE_BYTES", 100_000)
    queue.enqueue_many(db, [b"%d" % n for n in range(50)])
    queue.enqueue_many(db, [bytes(99_000)] * 3 + [bytes(40_000)] * 5)
    for _ in range(23):
        queue.receive(db)
    found = queue.admin.verify(db)
    assert (found.deviations, found.messages) == ((), 58)
    for kind in (QueueKeys.expiry, QueueKeys.chunk):
        for row in rows(db, queue, kind):
            del db[row.key]
    found = queue.admin.verify(db)
    assert len(found.deviations) == 23 + 3


def test_what_cannot_be_read_at_one_version_is_named(
    db: Database, busy: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "WHOLE_SECONDS", 0)
    found = busy.admin.verify(db)
    assert found.deviations == ()
    assert not found.ok
    assert "owners of chunks, names, pointers and turns" in found.unchecked
    assert "counters of the ready messages of level 5" in found.unchecked


def test_a_queue_that_does_not_exist_cannot_be_verified(db: Database, busy: Queue) -> None:
    busy.delete(db)
    with pytest.raises(QueueNotFound):
        busy.admin.verify(db)


def test_a_deviation_can_be_read(db: Database, busy: Queue) -> None:
    wrong_sum(db, busy, busy._keys)
    assert [str(one) for one in busy.admin.repair(db).deviations] == [
        "counter: level 9: enqueued: is 2, but 1 are (repaired)"
    ]
    assert Deviation("a", "b", "c") == Deviation("a", "b", "c", False)
