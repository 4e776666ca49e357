"""Plans of blocks against all that may happen to the same messages meanwhile, in every order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fdbqueue import Queue
from fdbqueue.errors import BatchLost, LeaseLost, MessagePlanned
from fdbqueue.messages.streams import planning
from fdbqueue.queue.streams.planner import Mark, Planner
from fdbqueue.store.binding import fdb
from tests.interleaving import Operation, explore
from tests.schemes import forced

pytestmark = pytest.mark.long

Database = fdb.Database
Start = tuple[Sequence[Operation], Callable[[list[Any]], None]]
GIVEN = [b"%d" % n for n in range(8)]


@pytest.fixture
def fresh(db: Database, space: fdb.Subspace) -> Callable[..., Queue]:
    """Makes queues that nothing has happened in."""
    numbers = itertools.count()

    def make() -> Queue:
        return forced(Queue.create(db, f"q{next(numbers)}", root=space, levels=2), "first")

    return make


def batch(db: Database, run: Planner, end: Mark) -> list[bytes]:
    """What a batch has, in the order of its pieces."""
    pieces = run.pieces(db, end._replace(batch=end.batch - 1), end, 3)
    pages = [page for piece in pieces for page in run.read(db, piece)]
    return [each.envelope.payload for page in pages for each in page]


def waiting(db: Database, queue: Queue) -> list[bytes]:
    return [each.payload for each in queue.peek(db, 100)]


def clean(db: Database, queue: Queue) -> None:
    result = queue.admin.verify(db)
    assert not result.deviations, result


def test_a_plan_of_a_part_of_a_block_against_a_taker_and_a_cancellation(
    db: Database, fresh: Callable[..., Queue]
) -> None:
    def start() -> Start:
        # Given a block
        queue = fresh()
        ids = queue.enqueue_many(db, GIVEN)
        run = queue.streams.plans.planner("stream")
        begin = run.begin(db)

        def check(results: list[Any]) -> None:
            # Then each message is planned, taken, cancelled or left: once, and in order
            end, some, _ = results
            planned, left = batch(db, run, end), waiting(db, queue)
            taken = [each.payload for each in some]
            gone = [] if b"4" in (*planned, *taken) else [b"4"]
            assert sorted([*planned, *taken, *left, *gone]) == GIVEN
            assert all(each == sorted(each) for each in (planned, taken, left))
            assert len(planned) == 3
            assert len(taken) == 3
            assert [queue.get(db, each) is None for each in ids].count(True) == len(gone)
            clean(db, queue)

        # When a stream plans three, a consumer takes three, and one of the middle is cancelled
        return [
            lambda db: run.next(db, begin, messages=3),
            lambda db: Queue(queue.name, queue._root).receive_many(db, 3),
            lambda db: queue.cancel(db, ids[4]),
        ], check

    assert explore(db, start) >= 6


def test_two_streams_and_a_browser_on_one_block(db: Database, fresh: Callable[..., Queue]) -> None:
    def start() -> Start:
        queue = fresh()
        queue.enqueue_many(db, GIVEN)
        browser = queue.subscriptions.open(db, "browser", mode="browse")
        browser.browse(db, 2)
        runs = [
            Queue(queue.name, queue._root).streams.plans.planner(name) for name in ("one", "two")
        ]
        begins = [run.begin(db) for run in runs]

        def check(results: list[Any]) -> None:
            # Then both have messages of their own, and the browser sees none twice
            *ends, seen = results
            one, two = (batch(db, run, end) for run, end in zip(runs, ends, strict=True))
            assert sorted([*one, *two, *waiting(db, queue)]) == GIVEN
            assert len(one) == len(two) == 3
            found = [each.payload for each in [*seen, *browser.browse(db)]]
            assert found == sorted(set(found))
            assert set(found) >= {b"6", b"7"}
            for run, end in zip(runs, ends, strict=True):
                run.acknowledge(db, end)
            assert queue.depth(db).done == 6
            clean(db, queue)

        return [
            lambda db: runs[0].next(db, begins[0], messages=3),
            lambda db: runs[1].next(db, begins[1], messages=3),
            lambda db: browser.browse(db, 3),
        ], check

    assert explore(db, start) >= 6


@pytest.mark.parametrize("claim", [pytest.param(3, marks=pytest.mark.slow), 8])
def test_giving_a_plan_back_against_its_acknowledgement(
    db: Database, fresh: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch, claim: int
) -> None:
    monkeypatch.setattr(planning, "CLAIM_MESSAGES", claim)
    monkeypatch.setattr("fdbqueue.queue.streams.planner.MIN_FILL", claim)

    def start() -> Start:
        # Given a batch of a block, in one claim or several
        queue = fresh()
        queue.enqueue_many(db, GIVEN)
        run = queue.streams.plans.planner("stream")
        end = run.next(db, run.begin(db))
        held = queue.admin.leases(db)[3].delivery

        def check(results: list[Any]) -> None:
            # Then all of it is done or all of it is back, and by its token none was settled
            acknowledged, given, settled = results
            if isinstance(acknowledged, BatchLost):
                assert given == 8
                assert waiting(db, queue) == GIVEN
            else:
                assert given == 0
                assert queue.depth(db).done == 8
            assert isinstance(settled, MessagePlanned | LeaseLost)
            clean(db, queue)

        # When it is acknowledged, given back, and one of its messages is to be settled
        return [
            lambda db: run.acknowledge(db, end),
            lambda db: queue.streams.plans.release(db, "stream"),
            lambda db: queue.ack(db, held),
        ], check

    assert explore(db, start) >= 6


def test_a_part_is_read_whole_or_not_at_all_while_its_batch_is_given_back(
    db: Database, fresh: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdbqueue.queue.streams.planner.PAGE", 2)

    def start() -> Start:
        queue = fresh()
        queue.enqueue_many(db, GIVEN)
        run = queue.streams.plans.planner("stream")
        begin = run.begin(db)
        end = run.next(db, begin, messages=6)
        # The second part begins and ends within the row.
        piece = run.pieces(db, begin, end, 2)[1]

        def check(results: list[Any]) -> None:
            read, _ = results
            assert isinstance(read, BatchLost) or read == GIVEN[3:6]
            assert waiting(db, queue) == GIVEN
            clean(db, queue)

        def read(db: Any) -> list[bytes]:
            return [each.envelope.payload for page in run.read(db, piece) for each in page]

        return [read, lambda db: queue.streams.plans.release(db, "stream")], check

    assert explore(db, start) >= 4
