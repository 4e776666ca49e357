from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tenacity import wait_fixed

from fdbqueue import Depth, Message, Queue, Reject, Snooze, aio, transactional
from fdbqueue.aio.testing import (
    Draining,
    fdbqueue_aio_db,
    fdbqueue_aio_drain,
    fdbqueue_aio_eager,
    fdbqueue_aio_queue,
)
from fdbqueue.store import client
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import SYSTEM_CLOCK
from fdbqueue.testing import (
    Eager,
    ManualClock,
    assert_depth,
    assert_enqueued,
    drain,
    fdbqueue_clock,
    fdbqueue_db,
    fdbqueue_drain,
    fdbqueue_eager,
    fdbqueue_queue,
    fdbqueue_root,
)
from tests.taking import take

pytest_plugins = ["pytester"]
# As the plugins ``fdbqueue.testing`` and ``fdbqueue.aio.testing``, which are imported already.
__all__ = [
    "fdbqueue_aio_db",
    "fdbqueue_aio_drain",
    "fdbqueue_aio_eager",
    "fdbqueue_aio_queue",
    "fdbqueue_clock",
    "fdbqueue_db",
    "fdbqueue_drain",
    "fdbqueue_eager",
    "fdbqueue_queue",
    "fdbqueue_root",
]
PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"

Make = Callable[..., Queue]


def test_a_queue_is_drained_in_the_order_of_delivery(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue(levels=3)
    queue.enqueue(fdbqueue_db, b"low", priority=0)
    queue.enqueue(fdbqueue_db, b"high", priority=9)
    seen: list[bytes] = []
    handled = drain(fdbqueue_db, queue, lambda message: seen.append(message))
    assert [message.payload for message in handled] == seen == [b"high", b"low"]
    assert_depth(fdbqueue_db, queue, done=2, ready=0)


def test_the_exception_of_a_handler_reaches_the_test(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue(backoff=None)
    queue.enqueue(fdbqueue_db, b"a")

    def handle(message: Message) -> None:
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        drain(fdbqueue_db, queue, handle)
    assert_depth(fdbqueue_db, queue, ready=1)


def test_failures_go_the_way_of_the_queues_policy(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue(max_attempts=3, backoff=None)
    queue.enqueue(fdbqueue_db, b"a")
    attempts: list[int] = []

    def handle(tr: fdb.Transaction, messages: list[Message]) -> None:
        attempts.append(messages[0].attempts)
        raise ValueError

    assert drain(fdbqueue_db, queue, handle, batch=2, failures=True) == []
    assert attempts == [0, 1, 2]
    assert_depth(fdbqueue_db, queue, dead=1)


def test_time_passes_when_the_test_says_so(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make, fdbqueue_clock: ManualClock
) -> None:
    queue = fdbqueue_queue()
    queue.enqueue(fdbqueue_db, b"a", delay=3600)
    assert drain(fdbqueue_db, queue, print, transactional=False) == []
    fdbqueue_clock.seconds += 3601
    assert len(drain(fdbqueue_db, queue, print, transactional=False)) == 1


def test_assertions_say_what_there_is_instead(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue()
    queue.enqueue(fdbqueue_db, b"a", headers={"region": "eu", "n": 1})
    assert_enqueued(fdbqueue_db, queue, b"a", headers={"region": "eu"}, priority=4, count=1)
    with pytest.raises(AssertionError, match="'region': 'eu'"):
        assert_enqueued(fdbqueue_db, queue, b"a", headers={"region": "us"})
    with pytest.raises(AssertionError, match="0 messages"):
        assert_enqueued(fdbqueue_db, queue, b"b")
    with pytest.raises(AssertionError, match=r"0 messages with .* key='ada'"):
        assert_enqueued(fdbqueue_db, queue, key="ada")
    with pytest.raises(AssertionError, match="enqueued=1, ready=1"):
        assert_depth(fdbqueue_db, queue, ready=2)
    assert queue.depth(fdbqueue_db) == Depth(enqueued=1, ready=1, ready_bytes=1)


def test_messages_of_a_key_are_enqueued_though_they_wait(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make
) -> None:
    queue = fdbqueue_queue()
    for key in ("ada", "ada", "bob"):
        queue.enqueue(fdbqueue_db, b"x", key=key)
    found = assert_enqueued(fdbqueue_db, queue, b"x", key="ada", count=2)
    assert [message.key for message in found] == ["ada", "ada"]
    assert_enqueued(fdbqueue_db, queue, count=3)


@pytest.mark.parametrize(
    "wrong", ["assert_depth(db, queue, ready=1)", "assert_enqueued(db, queue)"]
)
def test_a_failed_assertion_shows_the_test_and_not_the_kit(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make, wrong: str
) -> None:
    names = {"db": fdbqueue_db, "queue": fdbqueue_queue()}
    with pytest.raises(AssertionError) as caught:
        exec(wrong, {**names, "assert_depth": assert_depth, "assert_enqueued": assert_enqueued})
    shown = [entry.path for entry in caught.traceback.filter(caught)]
    assert shown
    assert all("assertions.py" not in str(path) for path in shown)


# -- at once ----------------------------------------------------------------------------------


@transactional
def place(tr: fdb.Transaction, queue: Queue, name: bytes) -> None:
    tr[b"placed/" + name] = b"1"
    queue.enqueue(tr, name)


def test_messages_are_handled_when_the_transaction_that_enqueued_them_has_committed(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make, fdbqueue_eager: Eager
) -> None:
    # Given a handler that sees what was written beside the message
    queue, mails = fdbqueue_queue(), fdbqueue_queue("mails")
    seen: list[tuple[bytes, bytes | None]] = []

    def handle(message: Message) -> None:
        seen.append((message.payload, fdbqueue_db[b"placed/" + message.payload]))
        mails.enqueue(fdbqueue_db, b"to " + message.payload)

    def send(tr: fdb.Transaction, message: Message) -> None:
        tr[b"sent"] = message.payload

    fdbqueue_eager(queue, handle)
    fdbqueue_eager(mails, send)
    # When transactions of all kinds enqueue
    place(fdbqueue_db, queue, b"a")
    assert seen == [(b"a", b"1")]
    assert fdbqueue_db[b"sent"] == b"to a"
    queue.enqueue(fdbqueue_db, b"b")
    assert seen[1:] == [(b"b", None)]
    tr = fdbqueue_db.create_transaction()
    queue.enqueue(tr, b"c")
    assert len(seen) == 2
    tr.commit().wait()
    # Then their messages have been handled, and what the handler enqueued
    assert [payload for payload, _ in seen] == [b"a", b"b", b"c"]
    assert fdbqueue_db[b"sent"] == b"to c"
    assert_depth(fdbqueue_db, queue, done=3, ready=0)
    assert_depth(fdbqueue_db, mails, done=3, ready=0)
    assert len(fdbqueue_eager.handled) == 6


def test_an_exception_surfaces_where_the_message_was_enqueued_and_is_settled_by_the_policy(
    fdbqueue_db: fdb.Database,
    fdbqueue_queue: Make,
    fdbqueue_eager: Eager,
    fdbqueue_clock: ManualClock,
) -> None:
    queue = fdbqueue_queue(max_attempts=2, backoff=wait_fixed(60))
    attempts: list[int] = []

    def handle(message: Message) -> None:
        attempts.append(message.attempts)
        raise KeyError("missing")

    fdbqueue_eager(queue, handle)
    with pytest.raises(KeyError, match="missing"):
        queue.enqueue(fdbqueue_db, b"a")
    assert_depth(fdbqueue_db, queue, enqueued=1, retrying=1)
    fdbqueue_eager.run()
    fdbqueue_clock.seconds += 61
    with pytest.raises(KeyError, match="missing"):
        fdbqueue_eager.run()
    assert attempts == [0, 1]
    assert_depth(fdbqueue_db, queue, dead=1)


def test_an_error_of_the_store_in_a_handler_is_not_one_of_the_commit_that_called_it(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make, fdbqueue_eager: Eager
) -> None:
    queue = fdbqueue_queue()

    def handle(message: Message) -> None:
        raise fdb.FDBError(1020)

    fdbqueue_eager(queue, handle)
    with pytest.raises(RuntimeError, match="a handler failed"):
        place(fdbqueue_db, queue, b"a")
    assert_depth(fdbqueue_db, queue, enqueued=1, retrying=1)


def test_a_verdict_is_no_exception_of_the_test(
    fdbqueue_db: fdb.Database, fdbqueue_queue: Make, fdbqueue_eager: Eager
) -> None:
    queue = fdbqueue_queue()

    def handle(message: Message) -> None:
        raise Reject("no") if message.payload == b"bad" else Snooze(60)

    fdbqueue_eager(queue, handle)
    queue.enqueue(fdbqueue_db, b"bad")
    queue.enqueue(fdbqueue_db, b"early")
    assert_depth(fdbqueue_db, queue, dead=1, scheduled=1, ready=0)


def test_time_moves_for_queues_that_the_code_under_test_opens(
    fdbqueue_db: fdb.Database,
    fdbqueue_root: fdb.Subspace,
    fdbqueue_queue: Make,
    fdbqueue_clock: ManualClock,
) -> None:
    fdbqueue_queue("orders", lease=30)
    queue = Queue.open(fdbqueue_db, "orders", root=fdbqueue_root)
    queue.enqueue(fdbqueue_db, b"a")
    queue.enqueue(fdbqueue_db, b"b", ttl=3600)
    taken = take(fdbqueue_db, queue)
    fdbqueue_clock.seconds += 30 + 10
    again = take(fdbqueue_db, queue)
    assert again.message.id == taken.message.id
    fdbqueue_clock.seconds += 3600
    assert [m.payload for m in drain(fdbqueue_db, queue, print, transactional=False)] == [b"a"]


# -- asyncio ----------------------------------------------------------------------------------


def test_coroutines_have_the_kit_too(
    fdbqueue_aio_db: aio.Database,
    fdbqueue_aio_queue: Callable[..., aio.Queue[bytes]],
    fdbqueue_aio_drain: Draining,
) -> None:
    queue = fdbqueue_aio_queue("letters")
    seen: list[bytes | None] = []

    async def handle(tr: aio.Transaction, message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(await tr.get(b"stamp"))
        tr[b"stamp"] = message.payload

    async def main() -> list[Message]:
        await queue.enqueue(fdbqueue_aio_db, b"a")
        await queue.enqueue(fdbqueue_aio_db, b"b")
        return await fdbqueue_aio_drain(fdbqueue_aio_db, queue, handle)

    del fdbqueue_aio_db.blocking[b"stamp"]  # A server keeps that of an earlier run.
    assert [message.payload for message in asyncio.run(main())] == [b"a", b"b"]
    assert seen == [None, b"a"]


def test_coroutine_functions_handle_messages_at_once(
    fdbqueue_aio_db: aio.Database,
    fdbqueue_aio_queue: Callable[..., aio.Queue[bytes]],
    fdbqueue_aio_eager: Callable[..., None],
) -> None:
    queue = fdbqueue_aio_queue("letters")
    seen: list[bytes] = []

    async def handle(message: Message) -> None:
        await queue.depth(fdbqueue_aio_db)
        if message.payload == b"bad":
            raise KeyError("missing")
        seen.append(message.payload)

    @aio.transactional
    async def send(tr: aio.Transaction) -> None:
        await queue.enqueue(tr, b"a")
        assert seen == []

    async def main() -> None:
        fdbqueue_aio_eager(queue, handle)
        await send(fdbqueue_aio_db)
        assert seen == [b"a"]
        with pytest.raises(KeyError, match="missing"):
            await queue.enqueue(fdbqueue_aio_db, b"bad")
        await asyncio.gather(*(queue.enqueue(fdbqueue_aio_db, b"%d" % n) for n in range(9)))

    asyncio.run(main())
    queue.blocking.enqueue(fdbqueue_aio_db.blocking, b"from a thread")
    assert sorted(seen[1:10]) == [b"%d" % n for n in range(9)]
    assert seen[10:] == [b"from a thread"]


# -- as a plugin ------------------------------------------------------------------------------


def test_what_the_docs_show_runs_under_pytest(pytester: pytest.Pytester) -> None:
    """The page's own tests, with the conftest that it asks for."""
    shown = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    conftest = next(block for block in shown if block.startswith("pytest_plugins"))
    pytester.makeconftest(conftest)
    pytester.makepyfile("\n\n".join(block for block in shown if block != conftest))
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=sum(block.count("def test_") for block in shown))


def test_each_test_has_a_store_of_its_own_and_leaves_nothing_behind(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest('pytest_plugins = ["fdbqueue.testing"]')
    pytester.makepyfile(
        """
        import pytest
        from fdbqueue.store.clocks import SYSTEM_CLOCK, Clock
        from fdbqueue.store.binding import fdb

        @pytest.mark.parametrize("n", range(2))
        def test_it(n, fdbqueue_queue, fdbqueue_db, fdbqueue_clock, fdbqueue_eager):
            queue = fdbqueue_queue()
            assert queue.depth(fdbqueue_db).enqueued == 0
            queue.enqueue(fdbqueue_db, b"a", delay=60)
            fdbqueue_clock.seconds += 1_000_000
            assert SYSTEM_CLOCK.monotonic() > 1_000_000
        """
    )
    before = (fdb.Transaction.commit, client.Transaction.commit)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=2)
    assert (fdb.Transaction.commit, client.Transaction.commit) == before
    assert set(vars(SYSTEM_CLOCK)) == set()
