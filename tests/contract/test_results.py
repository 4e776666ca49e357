"""Results are kept with the acknowledgement, for a time, and found by the ids of their messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fdbqueue import Depth, Message, NewMessage, Queue, Reject
from fdbqueue.consumers import watching
from fdbqueue.errors import (
    InvalidArgument,
    InvalidPayload,
    LeaseLost,
    NoResult,
    PayloadTooLarge,
    QueueNotFound,
    ResultPending,
)
from fdbqueue.queue.continuations import results
from fdbqueue.queue.continuations.results import MAX_BYTES
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock, drain
from tests.patience import DEADLINE
from tests.taking import take

Database = fdb.Database
KEPT = 3600


@pytest.fixture
def sums(db: Database, space: fdb.Subspace, clock: ManualClock) -> Queue[Any]:
    return Queue.create(
        db, "sums", root=space, lease=60, backoff=None, max_attempts=2,
        clock=clock,
    )  # fmt: skip


def plain(message: Message) -> object:
    return {"of": message.payload.decode()}


def transactional(tr: fdb.Transaction, message: Message) -> object:
    return {"of": message.payload.decode()}


def test_an_acknowledgement_may_have_a_result(db: Database, sums: Queue[Any]) -> None:
    ids = sums.enqueue_many(db, [NewMessage(n, keep_result=KEPT) for n in range(3)])
    first, second, third = sums.receive_many(db, 3)
    sums.ack(db, first, result=[1, 2])

    @fdb.transactional
    def both(tr: fdb.Transaction) -> None:
        sums.ack(tr, second, result={"a": None})

    both(db)
    sums.ack(db, third)
    assert [sums.result(db, each) for each in ids] == [[1, 2], {"a": None}, None]


def test_a_transaction_that_is_given_up_keeps_no_result(db: Database, sums: Queue[Any]) -> None:
    message_id = sums.enqueue(db, 1, keep_result=KEPT)
    found = take(db, sums)
    sums.ack(db.create_transaction(), found, result=1)
    with pytest.raises(ResultPending, match="it is leased"):
        sums.result(db, message_id)


def test_who_lost_the_lease_gives_no_result(db: Database, sums: Queue[Any]) -> None:
    message_id = sums.enqueue(db, 1, keep_result=KEPT)
    late = take(db, sums)
    sums.release(db, late)
    mine = take(db, sums)
    sums.ack(db, mine, result="mine")
    with pytest.raises(LeaseLost):
        sums.ack(db, late, result="late")
    assert sums.result(db, message_id) == "mine"


def test_a_message_that_asks_for_none_has_no_result(db: Database, sums: Queue[Any]) -> None:
    message_id = sums.enqueue(db, 1)
    found = take(db, sums)
    with pytest.raises(NoResult):
        sums.result(db, message_id)
    sums.ack(db, found, result="x" * (MAX_BYTES + 1))
    with pytest.raises(NoResult):
        sums.result(db, message_id, wait=DEADLINE)


def test_a_result_has_at_most_ten_kilobytes(db: Database, sums: Queue[Any]) -> None:
    most, beyond = "x" * (MAX_BYTES - 2), "x" * (MAX_BYTES - 1)
    message_id = sums.enqueue(db, 1, keep_result=KEPT)
    found = take(db, sums)
    with pytest.raises(PayloadTooLarge, match="10,001 bytes; at most 10,000"):
        sums.ack(db, found, result=beyond)
    with pytest.raises(InvalidPayload):
        sums.ack(db, found, result=object())
    assert sums.depth(db).leased == 1
    sums.ack(db, found, result=most)
    assert sums.result(db, message_id) == most


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("value", ["x" * MAX_BYTES, {1, 2}], ids=["large", "set"])
def test_a_handler_that_returns_what_cannot_be_kept_has_failed(
    db: Database, sums: Queue[Any], value: object, transactional: bool
) -> None:
    kept, _ = sums.enqueue_many(db, [NewMessage(1, keep_result=KEPT), NewMessage(2)])
    calls: list[int] = []

    def handle(*args: Any) -> object:
        calls.append(args[-1])
        return value

    drain(db, sums, handle, transactional=transactional, failures=True)
    # The message is tried again, and then a dead letter that says why; it is not lost.
    assert calls.count(1) == 2
    assert calls.count(2) == 1
    assert sums.depth(db) == Depth(enqueued=2, done=1, dead=1)
    with pytest.raises(NoResult, match=r"PayloadTooLarge|InvalidPayload"):
        sums.result(db, kept)


def test_a_result_is_kept_for_the_time_asked_and_then_swept(
    db: Database, sums: Queue[Any], clock: ManualClock
) -> None:
    short, long = sums.enqueue_many(
        db, [NewMessage(1, keep_result=60), NewMessage(2, keep_result=600)]
    )
    drain(db, sums, plain)
    clock.seconds += 59
    sums.admin.sweep(db)
    assert sums.result(db, short) == {"of": "1"}
    clock.seconds += 1
    with pytest.raises(NoResult):
        sums.result(db, short)
    sums.admin.sweep(db)
    assert sums.result(db, long) == {"of": "2"}
    clock.seconds += 540
    sums.admin.sweep(db)
    for keys in (sums._keys.result, sums._keys.entry):
        assert not list(db.get_range(keys.prefix, keys.prefix + b"\xff"))


def ends(
    db: Database, sums: Queue[Any], clock: ManualClock
) -> dict[str, tuple[Callable[[str], object], type[NoResult], str]]:
    def reject(_: str) -> None:
        drain(db, sums, lambda message: (_ for _ in ()).throw(Reject("no")), failures=True)

    def drop(_: str) -> None:
        found = take(db, sums)
        sums.reject(db, found, "no", drop=True)

    def cancel_leased(message_id: str) -> None:
        found = take(db, sums)
        sums.cancel(db, message_id)
        sums.release(db, found)

    def expire(_: str) -> None:
        clock.seconds += 31
        sums.admin.sweep(db)

    return {
        "dead": (reject, NoResult, "no"),
        "cancelled": (lambda each: sums.cancel(db, each), NoResult, "it is purged"),
        "cancelled while leased": (cancel_leased, NoResult, "it is purged"),
        "dropped": (drop, NoResult, "it is purged"),
        "purged": (lambda _: sums.purge(db), NoResult, "it is purged"),
        "expired": (expire, NoResult, "it is expired"),
        "gone": (lambda _: sums.delete(db), QueueNotFound, "sums"),  # type: ignore[dict-item]
    }


@pytest.mark.parametrize(
    "how", ["dead", "cancelled", "cancelled while leased", "dropped", "purged", "expired", "gone"]
)
def test_who_waits_learns_at_once_how_a_message_ended(
    db: Database, sums: Queue[Any], clock: ManualClock, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given that nobody looks again but for a watch that fires
    monkeypatch.setattr(results, "LOOK_SECONDS", 10 * DEADLINE)
    end, error, text = ends(db, sums, clock)[how]
    message_id = sums.enqueue(db, 1, keep_result=KEPT, ttl=30)
    found: list[BaseException] = []
    armed = threading.Event()

    def arm(*terms: Any) -> Any:
        watches = watching.arm(*terms)
        armed.set()
        return watches

    monkeypatch.setattr(results, "watching", SimpleNamespace(arm=arm, wait=watching.wait))

    def wait() -> None:
        try:
            sums.result(db, message_id, wait=10 * DEADLINE)
        except BaseException as raised:
            found.append(raised)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert armed.wait(DEADLINE)
    end(message_id)
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    assert type(found[0]) is error
    assert text in str(found[0])


def test_a_redriven_message_is_pending_and_then_done(
    db: Database, sums: Queue[Any], clock: ManualClock
) -> None:
    message_id = sums.enqueue(db, 1, keep_result=60)
    found = take(db, sums)
    sums.reject(db, found, "no")
    with pytest.raises(NoResult):
        sums.result(db, message_id)
    clock.seconds += 40
    sums.retry(db)
    with pytest.raises(ResultPending, match="it is ready"):
        sums.result(db, message_id)
    drain(db, sums, plain)
    clock.seconds += 40  # The time of its death is over, and that of its end is not.
    sums.admin.sweep(db)
    assert sums.result(db, message_id) == {"of": "1"}
    assert sums.admin.verify(db).ok


def test_a_dead_letter_in_another_queue_is_dead_here(
    db: Database, space: fdb.Subspace, sums: Queue[Any]
) -> None:
    graves: Queue[Any] = Queue.create(db, "graves", root=space)
    sums.set_options(db, dead_letter_queue="graves")
    message_id = sums.enqueue(db, 1, keep_result=KEPT)
    found = take(db, sums)
    sums.reject(db, found, "no")
    with pytest.raises(NoResult, match="no"):
        sums.result(db, message_id)
    assert graves.depth(db).ready == 1


def test_waiting_ends_in_time_and_needs_a_database(db: Database, sums: Queue[Any]) -> None:
    message_id = sums.enqueue(db, 1, keep_result=KEPT)
    with pytest.raises(ResultPending, match="it is ready"):
        sums.result(db, message_id, wait=0.01)
    with pytest.raises(InvalidArgument, match="wait"):
        sums.result(db.create_transaction(), message_id, wait=1)
    with pytest.raises(InvalidArgument, match="not a message id"):
        sums.result(db, "a")
    for wrong in (0, -1, True, float("nan"), 11 * 366 * 86_400, "one"):
        with pytest.raises(InvalidArgument, match="keep_result"):
            sums.enqueue(db, 1, keep_result=wrong)


def test_a_result_that_no_sweep_would_find_is_repaired(
    db: Database, sums: Queue[Any], clock: ManualClock
) -> None:
    message_id = sums.enqueue(db, 1, keep_result=60)
    drain(db, sums, plain)
    entries = sums._keys.entry.prefix
    db.clear_range(entries, entries + b"\xff")
    (found,) = sums.admin.repair(db).deviations
    assert (found.kind, found.subject, found.repaired) == ("result astray", message_id, True)
    clock.seconds += 60
    sums.admin.sweep(db)
    assert db.get(sums._keys.result(message_id)) is None
