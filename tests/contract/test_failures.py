"""What failed attempts leave can be read, goes where the message goes, and is tidied with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from fdbqueue import (
    Delivery,
    Failure,
    Message,
    NewMessage,
    Queue,
    Reject,
    Retry,
    Take,
    Worker,
    aio,
)
from fdbqueue.schema.envelope import KEPT_FAILURES
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.audit import sound
from tests.patience import eventually
from tests.taking import take

Database = fdb.Database

pytestmark = pytest.mark.queue(max_attempts=None, max_deaths=None, lease=60, backoff=None)

COMPLAINTS = "no such street"


def rows(db: Database, queue: Queue) -> int:
    every = queue._keys.kind(QueueKeys.failure)
    return len(list(db.get_range(every.start, every.stop)))


def taken(db: Database, queue: Queue) -> Delivery:
    return take(db, queue, consumer="post")


def fail(db: Database, queue: Queue, *errors: str) -> str:
    """Let the first message fail; returns its id."""
    for error in errors:
        delivery = taken(db, queue)
        queue.release(db, delivery, error=error)
    return delivery.id


def known(db: Database, queue: Queue, message_id: str) -> tuple[Failure, ...]:
    found = queue.get(db, message_id)
    assert found is not None
    return found.failures


def errors(db: Database, queue: Queue, message_id: str) -> list[str]:
    return [each.error for each in known(db, queue, message_id)]


def test_the_newest_eight_failed_attempts_of_a_message_can_be_read(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    assert known(db, queue, queue.peek(db, 1)[0].id) == ()
    for n in range(10):
        delivery = taken(db, queue)
        clock.seconds += 2
        queue.release(db, delivery, error=f"error {n}")
        first = delivery.id
    assert errors(db, queue, first) == [f"error {n}" for n in range(2, 10)]
    for each, following in pairwise(known(db, queue, first)):
        assert (each.consumer, each.traceback) == ("post", "")
        assert 2_000 <= each.ended_at_ms - each.started_at_ms < 4_000
        assert each.ended_at_ms <= following.started_at_ms
    sound(db, queue)
    # And nothing is left of them once it is done
    queue.ack(db, queue.receive_many(db, 2))
    assert rows(db, queue) == 0


def test_who_gives_back_or_loses_a_message_without_having_begun_leaves_nothing(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue_many(db, [b"a", b"b"])
    queue.release(db, taken(db, queue))
    assert len(queue.receive_many(db, 2)) == 2
    clock.seconds += 61
    queue.admin.sweep(db)
    assert rows(db, queue) == 0


def test_a_death_is_among_them(db: Database, queue: Queue, clock: ManualClock) -> None:
    queue.enqueue(db, b"a")
    message_id = taken(db, queue).id
    clock.seconds += 71
    fail(db, queue, COMPLAINTS)
    died, failed = known(db, queue, message_id)
    assert (died.error[:16], died.consumer) == ("killed 1 process", "post")
    assert failed.error == COMPLAINTS


@fdb.transactional
def _dequeued(tr: fdb.Transaction, queue: Queue) -> None:
    assert queue.dequeue(tr) is not None


ENDS: dict[str, Callable[[Database, Queue, ManualClock], object]] = {
    "done": lambda db, queue, clock: queue.ack(db, taken(db, queue)),
    "done as it is taken": lambda db, queue, clock: _dequeued(db, queue),
    "purged": lambda db, queue, clock: queue.purge(db, states="ready"),
    "dropped": lambda db, queue, clock: queue.reject(db, taken(db, queue), "no", drop=True),
    "expired": lambda db, queue, clock: _expired(db, queue, clock),
    "dead and purged": lambda db, queue, clock: _dead(db, queue),
    "cancelled": lambda db, queue, clock: queue.cancel(db, [m.id for m in queue.peek(db, 1)]),
    "cancelled as it fails": lambda db, queue, clock: _stopped(db, queue),
}


def _expired(db: Database, queue: Queue, clock: ManualClock) -> None:
    clock.seconds += 1_001
    queue.admin.sweep(db)


def _dead(db: Database, queue: Queue) -> None:
    queue.reject(db, taken(db, queue), "no")
    assert rows(db, queue) == 3
    queue.purge(db, states="dead")


def _stopped(db: Database, queue: Queue) -> None:
    delivery = taken(db, queue)
    queue.cancel(db, delivery.id)
    queue.release(db, delivery, error="stopped")


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_of_a_message_that_ends(
    db: Database, queue: Queue, clock: ManualClock, end: str
) -> None:
    queue.enqueue(db, b"a", ttl=1_000)
    fail(db, queue, "one", "two")
    assert rows(db, queue) == 2
    ENDS[end](db, queue, clock)
    assert rows(db, queue) == 0
    sound(db, queue)


def test_dead_letters_keep_them_and_so_does_who_is_redriven(db: Database, queue: Queue) -> None:
    queue.enqueue(db, b"a")
    fail(db, queue, "one")
    queue.reject(db, taken(db, queue), COMPLAINTS)
    (letter,) = queue.dead.list(db)
    assert [each.error for each in letter.failures] == ["one", COMPLAINTS]
    queue.retry(db)
    message_id = fail(db, queue, "three")
    assert errors(db, queue, message_id) == ["one", COMPLAINTS, "three"]
    found = queue.get(db, message_id)
    assert found is not None
    assert found.message.attempts == 1
    sound(db, queue)


@pytest.mark.parametrize("how", ["dead letters", "move", "copy", "delayed"])
@pytest.mark.parametrize("target", [{}, {"last_value": "of"}, {"sort": "of"}])
def test_they_go_where_the_message_goes(
    db: Database, queue: Queue, space: fdb.Subspace, how: str, target: Any
) -> None:
    # Given three messages that have failed, two of one value
    other = Queue.create(db, "other", root=space, **target)
    messages = [NewMessage(b"%d" % n, headers={"of": n // 2}) for n in range(3)]
    queue.enqueue_many(db, messages)
    for _ in range(2):
        queue.release(db, queue.receive_many(db, 3), error="no", delay=9 * (how == "delayed"))
        queue.retry(db, states=["retrying", "scheduled"])
    # When they go to another queue
    match how:
        case "dead letters":
            queue.set_options(db, dead_letter_queue="other")
            queue.reject(db, queue.receive_many(db, 3), COMPLAINTS)
        case "move":
            queue.move(db, other)
        case "copy":
            queue.copy(db, other)
        case _:
            queue.edit(db, match="TRUE", delay=9)
            queue.move(db, other, states=["retrying", "scheduled"])
            other.retry(db, states=["retrying", "scheduled"])
    # Then all that are there have them, and nothing else is left
    there = other.peek(db, 9)
    assert len(there) == (2 if target.get("last_value") and how != "delayed" else 3) or target
    for message in there:
        wanted = ["no", "no", *([COMPLAINTS] if how == "dead letters" else [])]
        assert errors(db, other, message.id) == wanted
    assert rows(db, queue) == (6 if how == "copy" else 0)
    sound(db, queue)
    sound(db, other)
    other.ack(db, other.receive_many(db, 9))
    assert rows(db, other) == 0


def test_a_message_that_replaces_one_that_has_failed_begins_anew(
    db: Database, queue: Queue
) -> None:
    queue.enqueue(db, b"old", unique="u")
    message_id = fail(db, queue, "one")
    queue.enqueue(db, b"new", unique="u", on_conflict="replace")
    assert known(db, queue, message_id) == ()
    sound(db, queue)
    fail(db, queue, "two")
    assert errors(db, queue, message_id) == ["two"]


def test_a_message_with_every_failure_at_its_longest_can_die_and_move(
    db: Database, queue: Queue, space: fdb.Subspace
) -> None:
    others = [Queue.create(db, name, root=space) for name in ("other", "third")]
    queue.set_options(db, dead_letter_queue="other")
    for _ in range(9):
        queue.enqueue_many(db, [b"x" * 80_000] * 10)
    try:
        raise ValueError("ä" * 500 + "\ud800")
    except ValueError as error:
        why = error
    for attempts in (*[None] * KEPT_FAILURES, 1):
        queue.set_options(db, max_attempts=attempts)
        held = queue.receive_many(db, 90)
        assert len(held) == 90
        queue.settle(db, held, {each.id: why for each in held})
    assert others[0].depth(db).ready == 90
    assert others[0].move(db, others[1]).taken == 90
    last = others[1].peek(db, 90)[-1]
    assert 0 < len(known(db, others[1], last.id)) <= KEPT_FAILURES


# -- workers ----------------------------------------------------------------------------------


def deliver(message: Message) -> None:
    raise KeyError(message.payload.decode())


def lead_to(message: Message) -> None:
    try:
        deliver(message)
    except KeyError as error:
        raise LookupError("no street") from error


def worked(db: Database, queue: Queue, handler: Callable[[Message], object]) -> Failure:
    """How a worker failed."""
    queue.enqueue(db, b"a")
    queue.set_options(db, max_attempts=1)
    with Worker(db, 1, name="w").add(queue, handler, take=Take(lease=60)):
        eventually(lambda: queue.depth(db).dead == 1)
    (letter,) = queue.dead.list(db)
    (failed,) = letter.failures
    return failed


def test_a_worker_tells_how_long_it_took_and_the_frames_of_the_handler(
    db: Database, queue: Queue
) -> None:
    failed = worked(db, queue, lead_to)
    assert failed.error == "LookupError: no street"
    assert failed.consumer.startswith("w")
    assert failed.started_at_ms <= failed.ended_at_ms
    frames = [line.split('"')[1] for line in failed.traceback.splitlines() if "File" in line]
    assert set(frames) == {__file__}
    named = [line.rsplit(" ", 1)[-1] for line in failed.traceback.splitlines() if "File" in line]
    assert named == ["lead_to", "deliver", "lead_to"]
    assert failed.traceback.endswith("LookupError: no street")


class Broken(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def broken(message: Message) -> None:
    raise Broken


def deep(message: Message) -> None:
    def down(n: int) -> None:
        if n == 0:
            raise ValueError("x" * 9_000)
        (down if n % 2 else lambda n: down(n))(n - 1)

    down(300)


def rejects(message: Message) -> None:
    raise Reject("bad")


def asks_again(message: Message) -> None:
    raise Retry("not yet")


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (broken, "Broken"),
        (deep, "ValueError: xxx"),
        (rejects, "Reject: bad"),
        (asks_again, "Retry: not yet"),
    ],
)
def test_whatever_a_handler_raises_can_be_read(
    db: Database, queue: Queue, handler: Callable[[Message], object], error: str
) -> None:
    failed = worked(db, queue, handler)
    assert failed.error.startswith(error)
    assert 0 < len(failed.traceback.encode()) <= 4_000
    assert handler.__name__ in failed.traceback


class Raises(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError(str(record.exc_info))


def test_a_message_is_settled_also_where_the_log_fails(db: Database, queue: Queue) -> None:
    handler = Raises()
    logging.getLogger("fdbqueue.worker").addHandler(handler)
    try:
        assert worked(db, queue, lead_to).error == "LookupError: no street"
    finally:
        logging.getLogger("fdbqueue.worker").removeHandler(handler)


def test_a_coroutine_tells_the_same(db: Database, queue: Queue) -> None:
    import asyncio

    async def leads(message: Message) -> None:
        await asyncio.sleep(0)
        deliver(message)

    queue.enqueue(db, b"a")
    queue.set_options(db, max_attempts=1)

    async def work() -> None:
        worker = aio.Worker(aio.Database(db), 2, name="w").add(aio.Queue.of(queue), leads)
        async with worker:
            await asyncio.to_thread(eventually, lambda: queue.depth(db).dead == 1)

    asyncio.run(work())
    (letter,) = queue.dead.list(db)
    frames = [line for line in letter.failures[0].traceback.splitlines() if "File" in line]
    assert [line.rsplit(" ", 1)[-1] for line in frames] == ["leads", "deliver"]
