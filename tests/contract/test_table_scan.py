"""Reading many messages in ranges: pages of one version, cut where the store says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fdbqueue import NewMessage, Queue
from fdbqueue.messages.streams import table_scan
from fdbqueue.messages.streams.table_scan import ScanPage
from fdbqueue.schema.envelope import Envelope
from fdbqueue.store.binding import fdb

TOO_OLD = 1007
PAYLOAD = 1_000


def fill(db: fdb.Database, queue: Queue, count: int = 30) -> list[str]:
    return [queue.enqueue(db, bytes(PAYLOAD)) for _ in range(count)]


def ids(queue: Queue) -> Callable[[fdb.Transaction, ScanPage], tuple[list[str | None], int]]:
    def read(tr: fdb.Transaction, page: ScanPage) -> tuple[list[str | None], int]:
        return page.places()[1], len(page)

    return read


def test_pages_show_one_version_whatever_happens_meanwhile(db: fdb.Database, queue: Queue) -> None:
    enqueued = fill(db, queue)
    pages = table_scan.pages(db, queue._keys, queue._keys.ready.rows, ids(queue), size=5 * PAYLOAD)
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

    def read(tr: fdb.Transaction, page: ScanPage) -> tuple[list[str | None], int]:
        if next(failing, False):
            raise fdb.FDBError(TOO_OLD)
        return look(tr, page)

    pages = table_scan.pages(db, queue._keys, queue._keys.ready.rows, read, size=5 * PAYLOAD)
    seen = next(pages)
    for message_id in (enqueued[0], enqueued[-1]):
        queue.cancel(db, message_id)
    later = fill(db, queue, 1)
    assert seen + [each for page in pages for each in page] == enqueued[:-1] + later


def test_a_reader_may_take_fewer_rows_than_it_is_given(db: fdb.Database, queue: Queue) -> None:
    enqueued = fill(db, queue, 7)

    def two(tr: fdb.Transaction, page: ScanPage) -> tuple[list[str | None], int]:
        return page.places()[1][:2], min(2, len(page))

    pages = list(table_scan.pages(db, queue._keys, queue._keys.ready.rows, two))
    assert pages == [enqueued[:2], enqueued[2:4], enqueued[4:6], enqueued[6:]]


def test_a_page_may_end_within_a_block(db: fdb.Database, queue: Queue) -> None:
    enqueued = queue.enqueue_many(db, [b"%d" % n for n in range(50)])
    enqueued += fill(db, queue, 3)
    enqueued += queue.enqueue_many(db, [b"%d" % n for n in range(50)])

    def seven(
        tr: fdb.Transaction, page: ScanPage
    ) -> tuple[list[tuple[int | None, str | None, bytes]], int]:
        levels, ids = page.places()
        count = min(7, len(page))
        return list(zip(levels, ids, page.keys, strict=True))[:count], count

    for size in (1, 10_000):
        pages = list(table_scan.pages(db, queue._keys, queue._keys.ready.rows, seven, size=size))
        found = [each for page in pages for each in page]
        assert all(len(page) <= 7 for page in pages)
        assert [message_id for _, message_id, _ in found] == enqueued
        for level, message_id, key in found:
            assert queue._keys.parse_ready(key).to_id() == message_id
            assert queue._keys.parse_ready(key).level == level


def test_nothing_is_read_of_an_empty_range(db: fdb.Database, queue: Queue) -> None:
    assert list(table_scan.pages(db, queue._keys, queue._keys.ready.rows, ids(queue))) == []
    assert table_scan.split(db, queue._keys, [queue._keys.ready.rows], 10_000) == []


def test_pieces_are_all_of_what_is_not_empty_and_do_not_overlap(
    db: fdb.Database, queue: Queue
) -> None:
    fill(db, queue, 100)
    level = queue.peek(db)[0].level
    ranges = [queue._keys.ready.under(each) for each in range(10)]
    pieces = table_scan.split(db, queue._keys, ranges, 20_000)
    assert pieces[0].start == ranges[level].start
    assert pieces[-1].stop == ranges[level].stop
    for one, other in itertools.pairwise(pieces):
        assert one.stop == other.start


def test_payloads_elsewhere_bound_a_page_too() -> None:
    bare = Envelope(b"", 0)
    large = replace(bare, chunk_bytes=900)
    envelopes = [large, bare, large, large]
    assert table_scan.fitting(envelopes, 2_000) == 3
    assert table_scan.fitting(envelopes, 100) == 2, "one at least, and what costs nothing"
    assert table_scan.fitting([large], 100) == 1
    assert table_scan.fitting([], 100) == 0


@pytest.mark.parametrize("taken", [0, 1, 3, 30])
def test_a_range_may_end_within_a_block_that_is_cut(
    db: fdb.Database, queue: Queue, taken: int
) -> None:
    # Given two parts of a block, and whoever takes some of its first messages cuts the rest
    enqueued = queue.enqueue_many(db, [b"%d" % n for n in range(50)])
    every = queue._keys.ready.rows
    middle = page_keys(db, queue, every)[20]
    if taken:
        queue.receive_many(db, taken)
    # When both are read, then no message is in both
    parts = [slice(every.start, middle), slice(middle, every.stop)]
    pages = [table_scan.pages(db, queue._keys, part, ids(queue)) for part in parts]
    first, second = ([each for page in found for each in page] for found in pages)
    assert first == enqueued[taken:20]
    assert second == enqueued[max(taken, 20) :]


def page_keys(db: fdb.Database, queue: Queue, every: slice) -> list[bytes]:
    pages = table_scan.pages(db, queue._keys, every, lambda tr, page: (page.keys, len(page)))
    return [key for page in pages for key in page]


@pytest.mark.parametrize("size", [1, 700, 1_000_000])
def test_leases_of_rows_of_all_kinds_are_each_in_one_part(
    db: fdb.Database, queue: Queue, small_blocks: None, size: int
) -> None:
    # Given leases of plans and of receivers, of blocks and of messages that stand alone
    given = [NewMessage(bytes(60), priority=n % 3, key=f"{n % 5}") for n in range(20)]
    given += [NewMessage(bytes(60), priority=n % 3) for n in range(60)]
    enqueued = queue.enqueue_many(db, given)
    taken = queue.receive_many(db, 10)
    for n in range(4):
        run = queue.streams.plans.planner(f"stream {n}")
        run.next(db, run.begin(db), messages=17)
    queue.ack(db, taken[::2])
    leased = {each.delivery.id for each in queue.admin.leases(db)}
    assert len(leased) == queue.depth(db).leased > 60

    # When they are read part by part and page by page
    found = []
    every = queue._keys.lease.rows
    for part in table_scan.split(db, queue._keys, [every], size):
        for page in table_scan.pages(db, queue._keys, part, held(queue), size=size):
            found += page

    # Then each message is there once, with its consumer
    assert Counter(message_id for message_id, _ in found) == Counter(leased)
    assert {consumer for _, consumer in found} == {"", *(f"stream {n}" for n in range(4))}
    assert leased <= set(enqueued)


def held(
    queue: Queue,
) -> Callable[[fdb.Transaction, ScanPage], tuple[list[tuple[str | None, str]], int]]:
    """Messages and who holds them, of a page at most five."""

    def read(tr: fdb.Transaction, page: ScanPage) -> tuple[list[tuple[str | None, str]], int]:
        named = [
            Envelope.unpack(value).id or place
            for value, place in zip(page.values, page.places()[1], strict=True)
        ]
        return [
            (message_id, lease.consumer if lease else "?")
            for message_id, lease in zip(named, page.leases, strict=True)
        ][:5], min(5, len(page))

    return read
