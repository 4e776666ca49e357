from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import Bounds, Depth, Message, NewMessage, Progress, Queue
from fdbqueue.errors import InvalidArgument, InvalidSelector, QueueFull, QueueNotFound
from fdbqueue.messages import selection_pages
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import Death
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace


def kill(db: Database, queue: Queue, *payloads: bytes, reason: str = "no") -> list[str]:
    """Enqueue messages, numbered in a header, and reject them; returns their ids."""
    ids = [queue.enqueue(db, p, headers={"n": n}) for n, p in enumerate(payloads)]
    queue.reject(db, queue.receive_many(db, len(payloads)), reason)
    return ids


def test_dead_letters_are_listed_in_pages(db: Database, queue: Queue) -> None:
    ids = kill(db, queue, b"a") + kill(db, queue, b"b") + kill(db, queue, b"c")
    first = queue.dead.list(db, 2)
    assert [letter.id for letter in first] == ids[:2]
    assert [letter.id for letter in queue.dead.list(db, after=ids[1])] == ids[2:]
    assert queue.dead.list(db, after=ids[2]) == []
    assert queue.dead.show(db, ids[0]) == first[0]
    assert queue.dead.show(db, queue.enqueue(db, b"alive")) is None


@pytest.mark.parametrize("singly", [False, True])
def test_letters_that_died_together_are_redriven_in_their_order(
    db: Database, space: Subspace, clock: ManualClock, singly: bool
) -> None:
    queue = Queue.create(db, "turns", root=space, clock=clock, expired="dead")
    payloads = [b"%d" % n for n in range(8)]
    if singly:
        for each in payloads:
            queue.enqueue(db, each)

        @fdb.transactional
        def reject(tr: fdb.Transaction) -> None:
            for delivery in queue.receive_many(tr, 8):
                queue.reject(tr, delivery, "no")

        reject(db)
    else:
        queue.enqueue_many(db, [NewMessage(each, ttl=60, key="k") for each in payloads])
    clock.seconds += 61
    queue.admin.sweep(db)
    assert [each.message.payload for each in queue.dead.list(db)] == payloads
    assert queue.retry(db).taken == 8
    found = []
    while delivery := queue.receive(db):
        queue.ack(db, delivery)
        found.append(delivery.payload)
    assert found == payloads


def test_redriven_letters_start_anew_behind_all_others(db: Database, queue: Queue) -> None:
    ids = kill(db, queue, b"a", b"b")
    queue.enqueue(db, b"c")
    assert queue.retry(db).taken == 2
    assert queue.peek(db)[0].payload == b"c"
    found = queue.receive_many(db, 9)
    assert {d.id for d in found[1:]} == set(ids)
    assert {d.attempt for d in found} == {1}
    queue.ack(db, found)
    assert queue.depth(db) == Depth(enqueued=3, done=3)


def test_a_selector_a_function_or_ids_say_which(db: Database, queue: Queue) -> None:
    ids = kill(db, queue, b"0", b"1", b"2", b"3", b"4")
    assert queue.retry(db, match="n = 1").taken == 1
    assert queue.retry(db, match=lambda message: message.headers["n"] == 3).taken == 1
    assert queue.retry(db, [ids[0], ids[0], ids[1]]).taken == 1
    assert sorted(m.payload for m in queue.peek(db, 9)) == [b"0", b"1", b"3"]
    assert queue.purge(db, ids[:3], states="dead").taken == 1
    assert queue.purge(db, match="n > 3", states="dead").taken == 1
    assert queue.dead.list(db) == []
    assert queue.purge(db, states="dead").taken == 0
    assert queue.depth(db) == Depth(enqueued=5, ready=3, purged=2, ready_bytes=3)


def test_letters_are_moved_counted_copied_and_removed_by_what_they_died_of(
    db: Database, space: Subspace, queue: Queue
) -> None:
    other = Queue.create(db, "other", root=space)
    kill(db, queue, b"0", b"1", reason="timeout")
    declined = kill(db, queue, b"2", b"3", reason="declined")
    queue.enqueue(db, b"alive")

    def died_of(reason: str) -> Callable[[Message], bool]:
        return lambda message: message.death is not None and message.death.reason == reason

    assert queue.count(db, match=died_of("declined"), states="dead").taken == 2
    assert queue.count(db, match=died_of("declined"), states="ready").taken == 0
    ids = {declined[0]}
    assert queue.move(db, other, match=lambda m: m.id in ids, states="dead").taken == 1
    assert queue.move(db, other, match=died_of("timeout"), states="dead").taken == 2
    assert [letter.id for letter in queue.dead.list(db)] == declined[1:]
    moved = other.peek(db, 9)
    assert sorted(m.payload for m in moved) == [b"0", b"1", b"2"]
    assert sorted(m.death.reason for m in moved if m.death) == ["declined", "timeout", "timeout"]
    assert queue.purge(db, match=died_of("declined"), states="dead").taken == 1
    assert queue.depth(db) == Depth(enqueued=5, ready=1, purged=4, ready_bytes=5)


def test_many_letters_are_redriven_in_bounded_transactions(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection_pages, "PAGE_ROWS", 4)
    kill(db, queue, *(b"%d" % n for n in range(10)))
    progress = []

    def told(so_far: Progress) -> None:
        progress.append(so_far.taken)
        queue.reject(db, queue.receive(db), "again")  # type: ignore[arg-type]

    queue.retry(db, progress=told)
    assert progress == [4, 8, 10], "those that die meanwhile are left"
    assert queue.depth(db) == Depth(enqueued=10, ready=7, dead=3, ready_bytes=7)


def test_a_wrong_selector_changes_nothing(db: Database, queue: Queue) -> None:
    kill(db, queue, b"a")
    with pytest.raises(InvalidSelector):
        queue.retry(db, match="n >")
    bad: Any
    for bad in (0, -1, "9", 10**9):
        with pytest.raises(InvalidArgument):
            queue.dead.list(db, bad)
    assert queue.depth(db).dead == 1


def test_redriving_into_a_deleted_queue_is_an_error(db: Database, queue: Queue) -> None:
    ids = kill(db, queue, b"a")
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        queue.retry(db)
    with pytest.raises(QueueNotFound):
        queue.retry(db, ids)


# -- another queue ----------------------------------------------------------------------------


@pytest.fixture
def sending(db: Database, space: Subspace) -> Queue:
    """A queue whose dead letters go to the queue "graveyard"."""
    return Queue.create(db, "sending", root=space, dead_letter_queue="graveyard")


def test_dead_letters_go_to_another_queue_and_remember_how_they_died(
    db: Database, space: Subspace, sending: Queue
) -> None:
    graveyard = Queue.create(db, "graveyard", root=space, levels=1)
    (message_id,) = kill(db, sending, b"a", reason="bad")
    assert sending.depth(db) == Depth(enqueued=1, purged=1)
    found = take(db, graveyard)
    death = found.message.death
    assert death == Death("bad", death.died_at_ms if death else 0, 1, "sending", message_id)
    assert (found.message.last_error, found.message.headers, found.attempt) == ("bad", {"n": 0}, 1)
    graveyard.ack(db, found)


@pytest.mark.parametrize(
    ("which", "redriven"),
    [(None, [b"a", b"b", b"c"]), ("n = 1", [b"b"]), ("JMSMessageID = '{id}'", [b"c"])],
)
def test_what_went_to_another_queue_is_redriven_by_a_move(
    db: Database, space: Subspace, sending: Queue, which: str | None, redriven: list[bytes]
) -> None:
    graveyard = Queue.create(db, "graveyard", root=space)
    kill(db, sending, b"a", b"b", b"c")
    last = graveyard.peek(db, 3)[-1]
    graveyard.move(db, sending, match=which and which.format(id=last.id))
    found = sending.receive_many(db, 9)
    assert [(d.payload, d.attempt) for d in found] == [(payload, 1) for payload in redriven]
    assert graveyard.depth(db).ready == 3 - len(redriven)
    sending.delete(db)
    with pytest.raises(QueueNotFound):
        graveyard.move(db, sending)
    assert graveyard.depth(db).ready == 3 - len(redriven)


def test_without_that_other_queue_they_stay(db: Database, space: Subspace, sending: Queue) -> None:
    kill(db, sending, b"a")
    assert sending.depth(db) == Depth(enqueued=1, dead=1)
    graveyard = Queue.create(db, "graveyard", root=space)
    kill(db, sending, b"b")
    assert graveyard.depth(db).ready == 1
    graveyard.delete(db)
    kill(db, sending, b"c")
    assert [letter.message.payload for letter in sending.dead.list(db)] == [b"a", b"c"]


def test_a_large_payload_moves_with_its_message(
    db: Database, space: Subspace, sending: Queue
) -> None:
    payload = bytes(range(256)) * 1000
    graveyard = Queue.create(db, "graveyard", root=space)
    small = Queue.create(
        db, "small", root=space, dead_letter_queue="graveyard", max_payload=len(payload)
    )
    kill(db, sending, payload)
    found = take(db, graveyard)
    assert found.payload == payload
    graveyard.set_options(db, max_payload=10)
    (message_id,) = kill(db, small, payload)
    (letter,) = small.dead.list(db)
    assert letter.message.payload == payload, "it does not fit there, so it stays"
    state = small.get(db, message_id)
    assert state is not None
    assert state.message.payload == payload
    assert small.purge(db, states="dead").taken == 1
    for queue in (sending, graveyard, small):
        result = queue.admin.verify(db)
        assert not result.deviations, result


def test_ids_say_which_are_moved(db: Database, queue: Queue, space: Subspace) -> None:
    other = Queue.create(db, "other", root=space)
    ids = kill(db, queue, b"0", b"1", b"2", b"3")
    alive = queue.enqueue(db, b"alive")
    wanted = [ids[2], ids[2], alive, ids[0], f"{ids[0][:-1]}{'1' if ids[0][-1] == '0' else '0'}"]
    assert queue.move(db, "other", wanted, states="dead").taken == 2
    assert queue.move(db, other, wanted, states="dead").taken == 0
    assert queue.move(db, other, [], states="dead").taken == 0
    assert {letter.id for letter in queue.dead.list(db)} == {ids[1], ids[3]}
    moved = other.peek(db, 9)
    assert [m.payload for m in moved] == [b"2", b"0"]
    assert {(m.death.reason, m.death.id) for m in moved if m.death} == {
        ("no", ids[0]),
        ("no", ids[2]),
    }
    assert [m.payload for m in queue.peek(db, 9)] == [b"alive"]
    assert queue.admin.verify(db).ok
    assert other.admin.verify(db).ok


def test_what_cannot_be_moved_by_id_stays(db: Database, queue: Queue, space: Subspace) -> None:
    ids = kill(db, queue, b"0", b"1")
    Queue.create(db, "full", root=space, bounds=Bounds(messages=1))
    with pytest.raises(QueueFull):
        queue.move(db, "full", ids, states="dead")
    with pytest.raises(QueueNotFound):
        queue.move(db, "nowhere", ids, states="dead")
    with pytest.raises(InvalidArgument, match="another queue"):
        queue.move(db, queue, ids, states="dead")
    with pytest.raises(InvalidArgument):
        queue.move(db, "full", ["no id"], states="dead")
    assert {letter.id for letter in queue.dead.list(db)} == {*ids}


BY_ID: dict[str, Callable[[Database, Queue, Queue, list[str]], Progress]] = {
    "redrive": lambda db, queue, _, ids: queue.retry(db, ids),
    "purge": lambda db, queue, _, ids: queue.purge(db, ids, states="dead"),
    "move": lambda db, queue, other, ids: queue.move(db, other, ids, states="dead"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("change", BY_ID.values(), ids=BY_ID)
def test_ids_lead_to_their_dead_letters_and_no_others_are_read(
    db: Database,
    queue: Queue,
    space: Subspace,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Database, Queue, Queue, list[str]], Progress],
) -> None:
    other = Queue.create(db, "other", root=space)
    before = kill(db, queue, *[b"other"] * 1_000)
    ids = kill(db, queue, b"0", b"1")
    kill(db, queue, *[b"other"] * 1_000)
    read: list[bytes] = []
    capi: Any = fdb.impl._FDBBase.capi
    prefix = queue._keys.dead.prefix

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            read.extend(a for a in args if isinstance(a, bytes) and a.startswith(prefix))
            return function(*args)

        return call

    for name in ("get", "get_key", "get_range"):
        function = getattr(capi, f"fdb_transaction_{name}")
        monkeypatch.setattr(capi, f"fdb_transaction_{name}", noted(function))
    queue.dead.list(db, 1)
    assert len(read) == 2, "a range has a begin and an end"
    read.clear()
    assert change(db, queue, other, ids).taken == 2
    assert len({*read}) == 2, "one row for each id"
    monkeypatch.undo()
    assert queue.depth(db).dead == 2_000
    assert queue.dead.show(db, before[0]) is not None
