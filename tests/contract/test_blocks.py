"""Messages that are enqueued together share a row, and nobody but the store can tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fdbqueue import NewMessage, Queue
from fdbqueue.messages import run
from fdbqueue.messages.streams import table_scan
from fdbqueue.messages.streams.planning import BatchLimits
from fdbqueue.schema import once
from fdbqueue.schema.envelope import UNREADABLE, Envelope
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.subscriptions import external_cursors
from tests.audit import sound
from tests.taking import ready, take

Database = fdb.Database
HUNDRED = [b"%d" % n for n in range(100)]


def rows(db: Database, queue: Queue, kind: Kind = QueueKeys.ready) -> list[fdb.KeyValue]:
    every = queue._keys.kind(kind)
    return list(db.get_range(every.start, every.stop))


# -- what shares a row ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(1, 10, 1), (7, 10, 7), (8, 10, 1), (1_000, 10, 1), (1_001, 10, 2), (100, 1_000, 2)],
)
def test_a_block_holds_a_thousand_messages_or_90_kb(
    db: Database, queue: Queue, count: int, size: int, expected: int
) -> None:
    ids = queue.enqueue_many(db, [bytes(size)] * count)
    stored = rows(db, queue)
    assert len(stored) == expected
    assert all(len(kv.value) <= run.MAX_BYTES + 10 for kv in stored)
    assert ids == sorted(set(ids)) == [message.id for message in queue.browse(db)]
    assert queue.depth(db).ready == count
    sound(db, queue)


def test_what_stores_more_than_an_envelope_stands_alone_and_in_its_place(
    db: Database, queue: Queue
) -> None:
    plain = [NewMessage(b"%d" % n, headers={"n": n}) for n in range(8)]
    special = [
        NewMessage(b"unique", unique="u"),
        NewMessage(b"mortal", ttl=60),
        NewMessage(b"large" * 40_000),
        NewMessage(b"ordered", key="k"),
    ]
    given = [*plain, special[0], *plain, *special[1:], *plain]
    queue.enqueue_many(db, given)
    assert ready(db, queue) == [each.payload for each in given]
    assert len(rows(db, queue)) == 3 + len(special)
    sound(db, queue)


def test_a_block_takes_one_index_and_the_next_message_comes_behind_it(
    db: Database, queue: Queue
) -> None:
    ids = queue.enqueue_many(db, HUNDRED)
    last = queue.enqueue(db, b"last")
    assert {each.split("-")[1] for each in ids} == {"000000000001"}
    assert last.split("-")[1] == "000000000002"
    assert ready(db, queue) == [*HUNDRED, b"last"]


# -- taking them ------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 10, 30, 99])
def test_the_first_taker_cuts_a_block_into_parts_of_its_size(
    db: Database, queue: Queue, most: int
) -> None:
    queue.enqueue_many(db, HUNDRED)
    taken = queue.receive_many(db, most)
    left = rows(db, queue)
    assert [each.payload for each in taken] == HUNDRED[:most]
    assert len(left) == -(-(100 - most) // most)
    later = queue.receive_many(db, most)
    assert later or most == 100
    assert len(rows(db, queue)) == len(left) - 1, "what was cut is not written again"
    assert ready(db, queue) == HUNDRED[most + len(later) :]
    sound(db, queue)
    queue.release(db, [*later, *taken])
    assert ready(db, queue) == HUNDRED
    sound(db, queue)


def test_a_block_that_is_taken_whole_is_one_row_less(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, HUNDRED)
    queue.enqueue_many(db, HUNDRED)
    held = queue.receive_many(db, 100)
    assert [each.payload for each in held] == HUNDRED
    assert len(rows(db, queue)) == 1
    queue.ack(db, held)
    assert queue.depth(db).done == 100
    sound(db, queue)


# -- one of them ------------------------------------------------------------------------------


def cancel(db: Database, queue: Queue, message_id: str) -> None:
    assert queue.cancel(db, message_id)


def edit(db: Database, queue: Queue, message_id: str) -> None:
    assert queue.edit(db, message_id, priority=9)
    assert ready(db, queue)[0] == b"5"
    assert queue.cancel(db, message_id)


def put_off(db: Database, queue: Queue, message_id: str) -> None:
    assert queue.edit(db, message_id, delay=3600)
    assert queue.depth(db).scheduled == 1
    assert queue.cancel(db, message_id)


def select(db: Database, queue: Queue, message_id: str) -> None:
    taker = queue.subscriptions.open(db, "taker", selector="n = 5")
    held = taker.receive_many(db, 9)
    assert [each.id for each in held] == [message_id]
    queue.ack(db, held)


def move(db: Database, queue: Queue, message_id: str) -> None:
    other = Queue.create(db, "other", root=queue._root)
    assert queue.move(db, other, match="n = 5").taken == 1
    assert ready(db, other) == [b"5"]


@pytest.mark.parametrize("act", [cancel, edit, put_off, select, move])
@pytest.mark.parametrize("cut", [0, 1, 5])
def test_one_of_them_leaves_and_the_others_stay_in_order(
    db: Database, queue: Queue, act: Callable[[Database, Queue, str], None], cut: int
) -> None:
    ids = queue.enqueue_many(db, [NewMessage(b"%d" % n, headers={"n": n}) for n in range(12)])
    if cut:
        queue.release(db, queue.receive_many(db, cut), delay=0)
    act(db, queue, ids[5])
    expected = [b"%d" % n for n in range(12) if n != 5]
    assert ready(db, queue) == expected
    assert queue.get(db, ids[5]) is None
    sound(db, queue)
    held = queue.receive_many(db, 20)
    while len(held) < 11:
        more = queue.receive_many(db, 20)
        assert more
        held += more
    assert [each.payload for each in held] == expected
    queue.ack(db, held)
    sound(db, queue)


# -- those who only look ----------------------------------------------------------------------


def test_a_browser_stops_among_them_and_goes_on(db: Database, queue: Queue) -> None:
    ids = queue.enqueue_many(db, HUNDRED)
    browser = queue.subscriptions.open(db, "audit", mode="browse")
    seen = [each.id for each in browser.browse(db, 30)]
    held = queue.receive_many(db, 40)
    assert held
    seen += [each.id for each in browser.browse(db, 5)]
    # They are taken and come back: those that it has seen do not come again
    queue.release(db, held)
    while found := browser.browse(db, 13):
        seen += [each.id for each in found]
    assert len(seen) == len(set(seen))
    assert set(ids[:30]) | set(ids[40:]) <= set(seen)
    sound(db, queue)


def advance(
    tr: fdb.Transaction, queue: Queue, places: dict[int, bytes], most: int
) -> external_cursors.PassedMessages:
    return external_cursors.advance(
        tr, queue._scope(tr), external_cursors.PassedMessages(places), BatchLimits(messages=most)
    )


def test_a_place_kept_elsewhere_may_lie_among_them(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, HUNDRED)
    keys, places, seen = queue._keys, dict[int, bytes](), list[bytes]()
    for most in (1, 30, 30, 30, 30):
        passed = once.run(db, keys.once, advance, queue, places, most)
        for level, place in passed.places.items():
            begin = keys.ready_from(level, places.get(level, b"\x00")).start
            within = slice(begin, keys.ready_from(level, place).start)
            for part in table_scan.split(db, keys, [within], 500):
                pages = table_scan.pages(
                    db, keys, part, lambda tr, page: (page.values, len(page)), size=9
                )
                seen += [Envelope.unpack(value).payload for page in pages for value in page]
        places = passed.places
    assert seen == HUNDRED


# -- in one transaction -----------------------------------------------------------------------


def test_a_transaction_sees_its_own_cuts(db: Database, queue: Queue) -> None:
    @fdb.transactional
    def all_of_it(tr: fdb.Transaction) -> list[bytes]:
        ids = queue.enqueue_many(tr, HUNDRED)
        taken = [*queue.receive_many(tr, 3), *queue.receive_many(tr, 2)]
        queue.cancel(tr, ids[50])
        queue.cancel(tr, ids[51])
        queue.release(tr, taken[:1])
        queue.ack(tr, taken[1:])
        return [each.payload for each in queue.receive_many(tr, 2)]

    assert all_of_it(db) == [b"0", b"5"]
    left = [b"%d" % n for n in range(6, 100) if n not in (50, 51)]
    assert ready(db, queue) == left
    sound(db, queue)


# -- what cannot be read ----------------------------------------------------------------------


@pytest.mark.parametrize("stored", [b"B", b"B\xc1", b"B\x91\x01", b"B\x90", b"C\x90"])
def test_a_block_that_cannot_be_read_stops_nobody(
    db: Database, queue: Queue, stored: bytes
) -> None:
    queue.enqueue_many(db, HUNDRED)
    queue.enqueue(db, b"good")
    db[rows(db, queue)[0].key] = stored
    found = take(db, queue)
    assert found.payload == b"good"
    (letter,) = queue.dead.list(db)
    assert (letter.message.content_type, letter.message.payload) == (UNREADABLE, stored)


def test_one_that_cannot_be_read_stops_none_of_its_block(db: Database, queue: Queue) -> None:
    queue.enqueue_many(db, HUNDRED)
    (row,) = run.rows(queue._keys, rows(db, queue))
    db[row.key] = run.pack_row([b"\x63?", *row.values[1:]])
    assert len(ready(db, queue)) == 100
    found = queue.receive_many(db, 10)
    assert [each.payload for each in found] == HUNDRED[1 : 1 + len(found)]
    assert queue.depth(db).dead == 1
    queue.release(db, found, delay=0)
    assert ready(db, queue) == HUNDRED[1:]
