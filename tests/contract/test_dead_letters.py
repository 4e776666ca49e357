from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from fdbqueue import Bounds, Depth, KeyLimits, Message, NewMessage, Progress, Queue, State
from fdbqueue.errors import InvalidArgument, InvalidSelector, QueueFull, QueueNotFound
from fdbqueue.messages import selection_pages
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.values.model import Death
from tests.patience import DEADLINE, eventually
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


def test_letters_that_are_redriven_together_share_a_row_and_keep_their_ids(
    db: Database, queue: Queue
) -> None:
    ids = queue.enqueue_many(db, [b"%d" % n for n in range(20)])
    queue.reject(db, queue.receive_many(db, 20), "broken")
    # When they are redriven
    assert queue.retry(db).taken == 20
    # Then they are one row, and each is found by its id
    ready = queue._keys.ready.rows
    assert len(db.get_range(ready.start, ready.stop)) == 1
    assert [message.id for message in queue.peek(db, 20)] == ids
    for n in (0, 7, 19):
        state = queue.get(db, ids[n])
        assert state is not None
        assert (state.state, state.message.payload) == (State.READY, b"%d" % n)
    # When one is cancelled, some are acknowledged with others of the queue, and some return
    assert queue.cancel(db, ids[3])
    new = queue.enqueue_many(db, [b"new%d" % n for n in range(10)])
    held = queue.receive_many(db, 25)
    assert [each.id for each in held] == [*ids[:3], *ids[4:], *new[:6]]
    leased = queue.get(db, ids[10])
    assert leased is not None
    assert leased.state is State.LEASED
    queue.release(db, held[5:7])
    queue.ack(db, [*held[:5], *held[7:]])
    queue.ack(db, queue.receive_many(db, 10))
    # Then nothing is left of them
    assert queue.admin.verify(db).ok
    assert queue.depth(db) == Depth(enqueued=30, done=29, purged=1)
    moved = queue._keys.moved.rows
    assert db.get_range(moved.start, moved.stop) == []


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


def test_letters_of_one_ordering_key_do_not_wait_for_each_other_in_another_queue(
    db: Database, space: Subspace, sending: Queue
) -> None:
    graveyard = Queue.create(db, "graveyard", root=space)
    sending.enqueue_many(db, [NewMessage(b"%d" % n, key="one") for n in range(3)])
    for _ in range(3):
        delivery = take(db, sending)
        sending.reject(db, delivery, "no")
    assert [letter.payload for letter in graveyard.peek(db, 9)] == [b"0", b"1", b"2"]
    # And in order of their key again where they are moved to
    graveyard.move(db, sending)
    assert [message.payload for message in sending.peek(db, 9)] == [b"0"]
    assert sending.admin.verify(db).ok
    assert graveyard.admin.verify(db).ok


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


def test_a_dead_letter_leaves_its_unique_key_to_whoever_has_it_now(
    db: Database, queue: Queue
) -> None:
    queue.enqueue(db, b"first", unique="k")
    (held,) = queue.receive_many(db, 1)
    queue.reject(db, held, "no")
    second = queue.enqueue(db, b"second", unique="k")
    assert queue.purge(db, states="dead").taken == 1
    assert queue.enqueue(db, b"third", unique="k") == second
    assert queue.admin.verify(db).ok


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


def test_who_waits_in_the_other_queue_gets_what_ids_moved(
    db: Database, queue: Queue, space: Subspace
) -> None:
    other = Queue.create(db, "other", root=space)
    (message_id,) = kill(db, queue, b"0")
    found: list[Any] = []
    consumer = Thread(target=lambda: found.append(other.receive(db, wait=DEADLINE)))
    consumer.start()
    eventually(lambda: other.admin.consumers(db))
    assert queue.move(db, other, [message_id], states="dead").taken == 1
    consumer.join(DEADLINE)
    assert [each.payload for each in found] == [b"0"]


def test_large_dead_letters_are_moved_by_id_some_at_a_time(
    db: Database, queue: Queue, space: Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection_pages, "PAGE_BYTES", 100_000)
    monkeypatch.setattr(selection_pages, "PAGE_IDS", 4)
    Queue.create(db, "other", root=space)
    large = [bytes([n]) * 60_000 for n in range(3)]
    ids = kill(db, queue, *large, *[b"small"] * 6)
    assert queue.move(db, "other", ids, states="dead").taken == 9
    other = Queue.open(db, "other", root=space)
    assert [m.payload for m in other.peek(db, 9)] == [*large, *[b"small"] * 6]
    assert queue.dead.list(db) == []


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


@pytest.mark.parametrize("way", ["redrive", "purge", "move"])
@pytest.mark.parametrize("gate", [{"key": "a"}, {"limits": {"account": "a"}}, {"key": "rated"}])
def test_what_expires_while_it_waits_for_a_slot_is_a_dead_letter_like_any(
    db: Database, space: fdb.Subspace, gate: dict[str, Any], way: str
) -> None:
    clock = ManualClock()
    queue = Queue.create(
        db, "mail", root=space, clock=clock, keys=KeyLimits(concurrency=1), expired="dead"
    )
    other = Queue.create(db, "other", root=space, clock=clock)
    queue.limits["account", "a"].set(db, concurrency=1)
    queue.keys["rated"].set(db, rate="1/day", concurrency=None)
    queue.enqueue(db, b"out", **gate)
    waiting = queue.enqueue(db, b"waits", ttl=5, **gate)
    clock.seconds += 6
    queue.admin.sweep(db)
    assert queue.admin.verify(db).ok
    (letter,) = queue.dead.list(db)
    assert letter.message.id == waiting
    state = queue.get(db, waiting)
    assert state is not None
    assert state.state is State.DEAD
    match way:
        case "redrive":
            assert queue.retry(db, [waiting]).taken == 1
        case "purge":
            assert queue.purge(db, [waiting], states="dead").taken == 1
        case "move":
            assert queue.move(db, other, [waiting], states="dead").taken == 1
    assert queue.dead.list(db) == []
    assert queue.admin.verify(db).ok
    assert other.admin.verify(db).ok
