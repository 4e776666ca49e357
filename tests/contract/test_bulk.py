"""Moving, copying and removing by selector: each message once, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fdbqueue import Bounds, Depth, NewMessage, Progress, Queue, Selector
from fdbqueue.errors import InvalidArgument, InvalidSelector, QueueFull, QueueNotFound
from fdbqueue.messages import selection_pages
from fdbqueue.store.binding import fdb
from tests.audit import sound
from tests.progress import Steps
from tests.taking import ready, take

Database = fdb.Database
Subspace = fdb.Subspace

EU, US = {"region": "eu"}, {"region": "us"}


@pytest.fixture
def other(db: Database, space: Subspace) -> Queue:
    return Queue.create(db, "other", root=space, levels=3)


@pytest.fixture
def filled(db: Database, queue: Queue) -> Queue:
    queue.enqueue_many(
        db,
        [NewMessage(b"%d" % n, priority=n % 10, headers=EU if n % 3 else US) for n in range(30)],
    )
    return queue


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_pages, "PAGE_ROWS", 2)


@pytest.mark.usefixtures("small_pages")
def test_what_matches_is_moved_and_the_rest_stays(
    db: Database, filled: Queue, other: Queue
) -> None:
    before = filled.peek(db, 99)
    progress = Steps()
    filled.move(db, other, match="region = 'us'", progress=progress)
    assert (progress[-1].taken, progress[-1].checked) == (10, 30)
    assert [p.taken for p in progress] == sorted(p.taken for p in progress)
    assert ready(db, filled) == [m.payload for m in before if m.headers != US]
    assert sorted(ready(db, other), key=int) == [b"%d" % n for n in range(0, 30, 3)]
    assert filled.depth(db).purged == 10
    assert sound(db, filled, other)


def test_priorities_are_mapped_to_the_levels_of_the_target(
    db: Database, space: Subspace, other: Queue
) -> None:
    many = Queue.create(db, "many", root=space, levels=100)
    many.enqueue_many(db, [NewMessage(b"a", 99), NewMessage(b"b", 4), NewMessage(b"c", 0)])
    many.move(db, other)
    assert [(m.payload, m.priority, m.level) for m in other.peek(db, 9)] == [
        (b"a", 9, 0),
        (b"b", 4, 1),
        (b"c", 0, 2),
    ]


def test_a_copy_leaves_everything_as_it_is(db: Database, filled: Queue, other: Queue) -> None:
    before = filled.peek(db, 99)
    assert filled.copy(db, "other", match=Selector("priority >= 8")).taken == 6
    assert filled.peek(db, 99) == before
    assert len(ready(db, other)) == 6
    assert sound(db, filled, other)


def test_what_matches_is_removed(db: Database, filled: Queue) -> None:
    assert filled.purge(db, match="region = 'eu' AND priority < 5").taken == 10
    assert filled.depth(db) == Depth(
        enqueued=30, ready=20, purged=10, ready_bytes=filled.depth(db).ready_bytes
    )
    assert sound(db, filled)


def test_large_payloads_move_whole(db: Database, queue: Queue, other: Queue) -> None:
    sizes = [1, 200_000, 4_000_000, 2_500_000, 90_001]
    queue.enqueue_many(db, [bytes(size) for size in sizes[:2]])
    for size in sizes[2:]:
        queue.enqueue(db, bytes(size))
    assert queue.move(db, other).taken == 5
    got = []
    while found := other.receive_many(db, 9):
        got += [len(d.payload) for d in found]
    assert got == sizes
    assert sound(db, queue, other)


def test_lines_of_ordering_keys_move_in_their_order(
    db: Database, queue: Queue, other: Queue
) -> None:
    queue.enqueue_many(
        db, [NewMessage(b"%d" % n, key="k", headers=EU if n else US) for n in range(4)]
    )
    queue.move(db, other, match="region = 'eu'")
    got = []
    while delivery := other.receive(db):
        got.append(delivery.payload)
        other.ack(db, delivery)
    assert got == [b"1", b"2", b"3"]
    assert ready(db, queue) == [b"0"]
    assert sound(db, queue, other)


def test_a_leased_message_is_left_alone(db: Database, queue: Queue, other: Queue) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    delivery = take(db, queue)
    queue.move(db, other)
    queue.ack(db, delivery)
    assert ready(db, other) == [b"b"]


@pytest.mark.usefixtures("small_pages")
def test_what_comes_in_meanwhile_does_not_keep_it_going(
    db: Database, filled: Queue, other: Queue
) -> None:
    filled.move(db, other, progress=lambda _: filled.enqueue(db, b"new", priority=4))
    assert len(ready(db, other)) == 30
    assert set(ready(db, filled)) == {b"new"}


@pytest.mark.usefixtures("small_pages")
def test_a_copy_that_was_interrupted_goes_on_behind(
    db: Database, filled: Queue, other: Queue
) -> None:
    first = filled.copy(db, other, progress=Steps(1))
    assert first.taken == 2
    last = filled.copy(db, other, resume=first.place)
    assert last.taken == 28
    assert sorted(ready(db, other), key=int) == [b"%d" % n for n in range(30)]


@pytest.mark.usefixtures("small_pages")
def test_it_goes_on_although_what_was_left_of_its_level_is_gone(
    db: Database, space: Subspace
) -> None:
    # Given a purge of a sorted queue that was interrupted in the first of two levels
    queue = Queue.create(db, "sorted", root=space, sort="n")
    for n in range(8):
        queue.enqueue(db, b"%d" % n, priority=9 if n < 4 else 1, headers={"n": n})
    first = queue.purge(db, progress=Steps(1))
    assert first.taken == 2
    # When others take the rest of that level, and it goes on
    queue.receive_many(db, 2, at_most_once=True)
    assert queue.purge(db, resume=first.place).taken == 4
    # Then nothing is left
    assert ready(db, queue) == []


@pytest.mark.usefixtures("small_pages")
def test_it_does_not_go_on_at_a_place_of_something_else(
    db: Database, filled: Queue, other: Queue
) -> None:
    place = filled.count(db, progress=Steps(1)).place
    other.enqueue(db, b"")
    for queue, states in ((other, "ready"), (filled, "dead")):
        with pytest.raises(InvalidArgument, match="resume"):
            queue.purge(db, states=states, resume=place)
    with pytest.raises(InvalidArgument, match="resume"):
        filled.purge(db, resume=b"somewhere")
    assert (len(ready(db, filled)), len(ready(db, other))) == (30, 1)


@pytest.mark.usefixtures("small_pages")
def test_a_full_target_stops_a_move_and_loses_nothing(
    db: Database, space: Subspace, filled: Queue
) -> None:
    narrow = Queue.create(db, "narrow", root=space, bounds=Bounds(messages=5))
    with pytest.raises(QueueFull):
        filled.move(db, narrow)
    assert len(ready(db, narrow)) == 5
    assert len(ready(db, filled)) == 25
    assert sound(db, filled, narrow)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("nowhere",), {}, QueueNotFound),
        (("orders",), {}, InvalidArgument),
        (("other",), {"match": "region ="}, InvalidSelector),
        (("other",), {"states": "leased"}, InvalidArgument),
        (("other", ["no id"]), {}, InvalidArgument),
        (("other", []), {"match": "TRUE"}, InvalidArgument),
    ],
)
def test_bad_input_moves_nothing(
    db: Database,
    filled: Queue,
    other: Queue,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    for action in (filled.move, filled.copy):
        with pytest.raises(error):
            action(db, *arguments, **options)
    assert filled.depth(db).ready == 30


# -- progress ---------------------------------------------------------------------------------

Work = Callable[..., Progress]
WORKS = ["copy", "count", "cancel", "move", "purge", "retry", "purge dead"]


def dead(db: Database, queue: Queue) -> Queue:
    for delivery in queue.receive_many(db, 99):
        queue.reject(db, delivery, "no")
    return queue


def works(db: Database, queue: Queue, other: Queue) -> dict[str, Work]:
    """What goes through many messages."""
    return {
        "copy": partial(queue.copy, db, other),
        "count": partial(queue.count, db),
        "cancel": partial(queue.cancel, db, match="TRUE"),
        "move": partial(queue.move, db, other),
        "purge": partial(queue.purge, db),
        "retry": partial(other.retry, db),
        "purge dead": partial(other.purge, db, states="dead"),
    }


@pytest.mark.parametrize("work", WORKS)
def test_it_is_done_and_tells_its_progress(
    db: Database, space: Subspace, filled: Queue, work: str
) -> None:
    other = Queue.create(db, "other", root=space)
    other.enqueue_many(db, [b"x"] * 30)
    call = works(db, filled, dead(db, other))[work]
    told = Steps()

    done = call(progress=told)

    assert done.taken == 30
    assert told[-1] == done
    if work not in ("copy", "count"):
        assert not call(), "nothing is left"


@pytest.mark.parametrize("work", WORKS)
def test_nothing_to_do_is_no_error(db: Database, space: Subspace, queue: Queue, work: str) -> None:
    other = Queue.create(db, "other", root=space)
    assert not works(db, queue, other)[work]()


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("work", WORKS)
def test_who_is_told_may_stop_it(db: Database, space: Subspace, filled: Queue, work: str) -> None:
    other = Queue.create(db, "other", root=space)
    other.enqueue_many(db, [b"x"] * 30)
    told = Steps(2)

    done = works(db, filled, dead(db, other))[work](progress=told)

    assert 2 < done.taken <= 4
    assert told[1:] == [done]


@pytest.mark.parametrize(
    "given", [{"states": 1}, {"states": [1]}, {"progress": "x"}, {"resume": "x"}]
)
def test_terms_of_a_verb_that_make_no_sense_change_nothing(
    db: fdb.Database, queue: Queue, given: dict[str, Any]
) -> None:
    queue.enqueue(db, b"a")
    with pytest.raises(InvalidArgument):
        queue.cancel(db, match="TRUE", **given)
    assert queue.depth(db).ready == 1
