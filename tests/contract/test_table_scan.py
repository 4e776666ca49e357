"""Reading many messages in ranges: pages of one version, cut where the store says."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from fdbqueue import Queue
from fdbqueue.messages.streams import table_scan
from fdbqueue.messages.streams.table_scan import Page
from fdbqueue.store.binding import fdb

TOO_OLD = 1007
PAYLOAD = 1_000


def fill(db: fdb.Database, queue: Queue, count: int = 30) -> list[str]:
    return [queue.enqueue(db, bytes(PAYLOAD)) for _ in range(count)]


def ids(queue: Queue) -> Callable[[fdb.Transaction, Page], tuple[list[str], int]]:
    def read(tr: fdb.Transaction, page: Page) -> tuple[list[str], int]:
        return page.places()[1], len(page)

    return read


def test_pages_show_one_version_whatever_happens_meanwhile(db: fdb.Database, queue: Queue) -> None:
    enqueued = fill(db, queue)
    pages = table_scan.pages(
        db, queue._keys, queue._keys.ready_range(), ids(queue), size=5 * PAYLOAD
    )
    seen = next(pages)
    assert 1 < len(seen) < 10
    for message_id in enqueued[-10:]:
        queue.cancel(db, message_id)
    fill(db, queue)
    rest = list(pages)
    assert len(rest) > 2
    assert seen + [each for page in rest for each in page] == enqueued


def test_what_outlasts_a_transaction_goes_on_at_a_later_version_behind_what_was_read(
    db: fdb.Database, queue: Queue
) -> None:
    enqueued = fill(db, queue)
    failing = iter([False, True])
    look = ids(queue)

    def read(tr: fdb.Transaction, page: Page) -> tuple[list[str], int]:
        if next(failing, False):
            raise fdb.FDBError(TOO_OLD)
        return look(tr, page)

    pages = table_scan.pages(db, queue._keys, queue._keys.ready_range(), read, size=5 * PAYLOAD)
    seen = next(pages)
    for message_id in (enqueued[0], enqueued[-1]):
        queue.cancel(db, message_id)
    later = fill(db, queue, 1)
    assert seen + [each for page in pages for each in page] == enqueued[:-1] + later


def test_a_reader_may_take_fewer_rows_than_it_is_given(db: fdb.Database, queue: Queue) -> None:
    enqueued = fill(db, queue, 7)

    def two(tr: fdb.Transaction, page: Page) -> tuple[list[str], int]:
        return page.places()[1][:2], min(2, len(page))

    pages = list(table_scan.pages(db, queue._keys, queue._keys.ready_range(), two))
    assert pages == [enqueued[:2], enqueued[2:4], enqueued[4:6], enqueued[6:]]


def test_a_page_may_end_within_a_block(db: fdb.Database, queue: Queue) -> None:
    enqueued = queue.enqueue_many(db, [b"%d" % n for n in range(50)])
    enqueued += fill(db, queue, 3)
    enqueued += queue.enqueue_many(db, [b"%d" % n for n in range(50)])

    def seven(tr: fdb.Transaction, page: Page) -> tuple[list[tuple[int, str, bytes]], int]:
        levels, ids = page.places()
        count = min(7, len(page))
        return list(zip(levels, ids, page.keys, strict=True))[:count], count

    for size in (1, 10_000):
        pages = list(table_scan.pages(db, queue._keys, queue._keys.ready_range(), seven, size=size))
        found = [each for page in pages for each in page]
        assert all(len(page) <= 7 for page in pages)
        assert [message_id for _, message_id, _ in found] == enqueued
        for level, message_id, key in found:
            assert queue._keys.parse_ready(key).to_id() == message_id
            assert queue._keys.parse_ready(key).level == level


def test_nothing_is_read_of_an_empty_range(db: fdb.Database, queue: Queue) -> None:
    assert list(table_scan.pages(db, queue._keys, queue._keys.ready_range(), ids(queue))) == []
    assert table_scan.split(db, queue._keys, [queue._keys.ready_range()], 10_000) == []


def test_pieces_are_all_of_what_is_not_empty_and_do_not_overlap(
    db: fdb.Database, queue: Queue
) -> None:
    fill(db, queue, 100)
    level = queue.peek(db)[0].level
    ranges = [queue._keys.ready_level(each) for each in range(10)]
    pieces = table_scan.split(db, queue._keys, ranges, 20_000)
    assert pieces[0].start == ranges[level].start
    assert pieces[-1].stop == ranges[level].stop
    for one, other in itertools.pairwise(pieces):
        assert one.stop == other.start


def test_payloads_elsewhere_bound_a_page_too() -> None:
    fields = [{36: 900}, {}, {36: 900}, {36: 900}]
    assert table_scan.fitting(fields, 2_000) == 3
    assert table_scan.fitting(fields, 100) == 2, "one at least, and what costs nothing"
    assert table_scan.fitting([{36: 900}], 100) == 1
    assert table_scan.fitting([], 100) == 0
