"""The life of a transaction: errors, options, retries, timeouts and watches, on every engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fdbqueue.store.binding import fdb
from tests.patience import DEADLINE


def code_of(call: Callable[[], object]) -> int:
    """The error code that a call ends with, or 0."""
    try:
        call()
    except fdb.FDBError as error:
        return error.code
    return 0


def wait(future: Any) -> None:
    """Wait for a future, but not for ever."""
    ready = threading.Event()
    future.on_ready(lambda _: ready.set())
    assert ready.wait(DEADLINE)
    future.wait()


def test_a_read_only_commit_has_no_version_and_no_versionstamp(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction[space.pack(("key",))].wait()
    stamp = transaction.get_versionstamp()

    transaction.commit().wait()

    assert transaction.get_committed_version() == -1
    assert code_of(stamp.wait) == 2021


def test_the_versionstamp_of_a_commit_that_failed_is_an_error(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()
    transaction[key].wait()
    transaction[key] = b"v"
    stamp = transaction.get_versionstamp()
    db[key] = b"first"

    assert code_of(transaction.commit().wait) == 1020
    assert code_of(stamp.wait) == 2020


@pytest.mark.parametrize("code", [1007, 1009, 1020, 1021, 1037, 1038, 1042, 1051, 1078, 1079, 1213])
def test_retryable_errors_start_the_transaction_over(db: Any, space: Any, code: int) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()
    transaction[key] = b"v"

    transaction.on_error(code).wait()

    assert not transaction[key].present()


@pytest.mark.parametrize(
    ("code", "expected"), [(0, 2000), (-1, 4000), (30_001, 4000), (29_999, 29_999)]
)
def test_what_is_no_error_of_the_database_is_not_retried(db: Any, code: int, expected: int) -> None:
    assert code_of(lambda: db.create_transaction().on_error(code).wait()) == expected


def test_the_committed_version_outlives_a_reset_and_a_retry(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction[space.pack(("key",))] = b"v"
    transaction.commit().wait()
    version = transaction.get_committed_version()

    transaction.reset()
    assert transaction.get_committed_version() == version
    transaction.on_error(1020).wait()
    assert transaction.get_committed_version() == version
    transaction.commit().wait()
    assert transaction.get_committed_version() == -1


def test_what_own_writes_tell_takes_no_read_version(db: Any, space: Any) -> None:
    before = db.create_transaction()
    version = before.get_read_version().wait()
    key, begin, end = (space.pack((name,)) for name in ("key", "l", "m"))
    transaction = db.create_transaction()
    transaction[key] = b"v"
    del transaction[begin:end]

    assert transaction[key] == b"v"
    assert transaction.get_range(begin, end).to_list() == []
    assert transaction.get_range(key, key + b"\0").to_list()
    transaction.set_read_version(version)

    assert not transaction[space.pack(("other",))].present()


def test_a_failed_transaction_still_tells_what_it_knows_itself(db: Any, space: Any) -> None:
    prefix = b"\xff\xff/transaction/write_conflict_range/"
    transaction = db.create_transaction()
    transaction[space.pack(("key",))] = b"v"
    transaction.cancel()
    assert len(transaction.get_range(prefix, prefix + b"\xff\xff").to_list()) == 2
    assert code_of(transaction[b"\xff\xff/status/json"].wait) == 1025

    transaction = db.create_transaction()
    transaction.options.set_size_limit(31)
    assert code_of(lambda: transaction.get_range(prefix, prefix + b"\xff\xff").to_list()) == 2006


def test_explicit_conflict_ranges_count_as_size_without_reads_of_own_writes(
    db: Any, space: Any
) -> None:
    transaction = db.create_transaction()
    transaction.options.set_read_your_writes_disable()

    transaction.add_read_conflict_range(space.key(), space.key() + b"\xff")

    assert transaction.get_approximate_size().wait() == 24 + 2 * len(space.key()) + 1


def test_the_retry_limit_counts_calls_and_outlives_a_retry(db: Any) -> None:
    transaction = db.create_transaction()
    transaction.options.set_retry_limit(2)

    codes = [code_of(lambda: transaction.on_error(1020).wait()) for _ in range(3)]

    assert codes == [0, 0, 1020]
    transaction.reset()
    codes = [code_of(lambda: transaction.on_error(1020).wait()) for _ in range(3)]
    assert codes == [0, 0, 0]


def test_a_timeout_counts_from_the_beginning_and_outlives_a_retry(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction.options.set_timeout(50)
    for _ in range(1000):
        if code := code_of(lambda: transaction.on_error(1007).wait()):
            break

    assert code == 1031
    assert code_of(transaction[b"key"].wait) == 1031
    assert code_of(lambda: transaction.commit().wait()) == 1031
    transaction.reset()
    assert code_of(lambda: transaction.commit().wait()) == 0


def test_options_that_do_not_persist_are_gone_after_a_retry(db: Any) -> None:
    transaction = db.create_transaction()
    transaction.options.set_read_system_keys()
    assert code_of(transaction[b"\xff/x"].wait) == 0

    transaction.on_error(1020).wait()

    assert code_of(transaction[b"\xff/x"].wait) == 2004


def test_a_bad_option_value_is_reported_by_the_next_call(db: Any) -> None:
    transaction = db.create_transaction()
    transaction.options.set_timeout(-1)
    assert code_of(transaction[b"key"].wait) == 2006

    transaction = db.create_transaction()
    transaction.options.set_size_limit(31)
    assert code_of(lambda: transaction.commit().wait()) == 2006


def test_a_read_version_is_set_once_and_is_positive(db: Any) -> None:
    transaction = db.create_transaction()
    transaction.get_read_version().wait()
    transaction.set_read_version(5)
    assert code_of(transaction[b"key"].wait) == 2010

    transaction = db.create_transaction()
    transaction.set_read_version(0)
    assert code_of(transaction[b"key"].wait) == 2011


def test_predicates_sort_the_errors(db: Any) -> None:
    def sorted_out(code: int) -> tuple[bool, bool, bool]:
        error = fdb.FDBError(code)
        return (
            fdb.predicates.is_retryable(error),
            fdb.predicates.is_maybe_committed(error),
            fdb.predicates.is_retryable_not_committed(error),
        )

    assert sorted_out(1020) == (True, False, True)
    assert sorted_out(1021) == (True, True, False)
    assert sorted_out(1031) == (False, False, False)
    assert sorted_out(2004) == (False, False, False)


def test_a_watch_fires_after_a_change(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    value, watch = db.get_and_watch(key)
    assert not value.present()
    assert not watch.is_ready()

    db[key] = b"new"

    wait(watch)


def test_a_watch_set_in_the_transaction_that_writes_waits_for_the_next_change(
    db: Any, space: Any
) -> None:
    key = space.pack(("key",))
    watch = db.set_and_watch(key, b"mine")
    assert not watch.is_ready()

    db[key] = b"theirs"

    wait(watch)


def unconflicted(tr: Any, key: bytes) -> None:
    tr.options.set_next_write_no_write_conflict_range()
    tr[key] = b"new"


@pytest.mark.parametrize(
    "change",
    [
        lambda tr, key: tr.clear(key),
        lambda tr, key: tr.clear_range(key[:-1], key + b"\xff"),
        lambda tr, key: tr.add(key, b"\1"),
        lambda tr, key: tr.set_versionstamped_value(key, bytes(14)),
        unconflicted,
    ],
    ids=["clear", "clear range", "atomic", "versionstamp", "without a conflict range"],
)
@pytest.mark.parametrize("own", [True, False], ids=["own value", "value read"])
def test_a_watch_fires_however_its_key_is_changed(
    db: Any, space: Any, change: Callable[[Any, bytes], None], own: bool
) -> None:
    key = space.pack(("key",))
    db[key] = b"mine"
    watch = db.set_and_watch(key, b"mine") if own else db.get_and_watch(key)[1]
    transaction = db.create_transaction()
    change(transaction, key)

    transaction.commit().wait()

    wait(watch)


def test_two_that_wait_for_each_other_by_watches_miss_nothing(db: Any, space: Any) -> None:
    turn = space.pack(("turn",))
    db[turn] = b"0"

    def take_turns(me: int) -> None:
        _, watch = db.get_and_watch(turn)
        for number in range(me, 200, 2):
            while db[turn] != b"%d" % number:
                wait(watch)
                _, watch = db.get_and_watch(turn)
            watch = db.set_and_watch(turn, b"%d" % (number + 1))

    with ThreadPoolExecutor(2) as pool:
        players = [pool.submit(take_turns, me) for me in (0, 1)]

        assert [player.result(timeout=DEADLINE) for player in players] == [None, None]
    assert db[turn] == b"200"


def test_a_write_after_the_watch_in_its_transaction_fires_it(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()
    watch = transaction.watch(key)

    transaction[key] = b"mine"

    wait(watch)


def test_a_commit_that_leaves_the_value_as_it_was_fires_nothing(db: Any, space: Any) -> None:
    key, other = space.pack(("key",)), space.pack(("other",))
    db[key] = b"same"
    _, watch = db.get_and_watch(key)
    _, later = db.get_and_watch(other)
    transaction = db.create_transaction()
    transaction[key] = b"different"
    transaction[key] = b"same"

    transaction.commit().wait()
    db[other] = b"changed"

    wait(later)
    assert not watch.is_ready()


def test_a_watch_notices_a_change_between_its_snapshot_and_its_commit(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()
    watch = transaction.watch(key)
    db[key] = b"early"

    transaction.commit().wait()

    wait(watch)


def test_a_watch_ends_with_its_transaction_unless_that_commits(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    watch = transaction.watch(space.pack(("key",)))
    transaction.reset()
    assert code_of(watch.wait) == 1025

    watch = transaction.watch(space.pack(("key",)))
    transaction.commit().wait()
    transaction.reset()
    assert not watch.is_ready()
    watch.cancel()
    assert code_of(watch.wait) == 1101


def test_there_is_a_limit_of_watches(db: Any, space: Any) -> None:
    db.options.set_max_watches(2)
    try:
        transaction = db.create_transaction()
        watches = [transaction.watch(space.pack((number,))) for number in range(3)]
        # Which of the three is one too many depends on the order in which their reads return.
        ready = fdb.Future.wait_for_any(*watches)
        assert code_of(watches[ready].wait) == 1032
    finally:
        db.options.set_max_watches(10_000)


def test_watches_need_reads_of_own_writes(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction.options.set_read_your_writes_disable()

    assert code_of(transaction.watch(space.pack(("key",))).wait) == 1034


def test_defaults_of_the_database_hold_for_its_transactions(db: Any, space: Any) -> None:
    db.options.set_transaction_retry_limit(1)
    try:
        transaction = db.create_transaction()
        codes = [code_of(lambda: transaction.on_error(1020).wait()) for _ in range(2)]
    finally:
        db.options.set_transaction_retry_limit(-1)

    assert codes == [0, 1020]


def test_a_callback_is_called_once_whenever_it_is_set(db: Any, space: Any) -> None:
    calls: list[str] = []
    done = threading.Event()
    transaction = db.create_transaction()
    future = transaction.get(space.pack(("key",)))
    future.wait()

    future.on_ready(lambda _: calls.append("late"))
    _, watch = db.get_and_watch(space.pack(("key",)))

    def note(_: object) -> None:
        calls.append("early")
        done.set()

    watch.on_ready(note)
    db[space.pack(("key",))] = b"v"

    assert done.wait(DEADLINE)
    assert calls == ["late", "early"]


def test_special_keys_need_a_module_and_permission(db: Any) -> None:
    transaction = db.create_transaction()
    assert (
        code_of(lambda: transaction.get_range(b"\xff\xff/nowhere/", b"\xff\xff/nowhere0").to_list())
        == 2113
    )
    transaction = db.create_transaction()
    transaction[b"\xff\xff/management/tenant/map/x"] = b""
    assert code_of(lambda: transaction.commit().wait()) == 2114


def test_a_read_of_special_keys_stays_within_one_module(db: Any) -> None:
    def read(begin: bytes, end: bytes) -> int:
        transaction = db.create_transaction()
        return code_of(lambda: transaction.get_range(begin, end).to_list())

    assert read(b"\xff\xff/transaction/", b"\xff\xff/transaction0") == 0
    assert read(b"\xff\xff", b"\xff\xff\xff") == 2112
    transaction = db.create_transaction()
    assert code_of(lambda: transaction[b"\xff\xff/nowhere"].value) == 2113


def test_a_versionstamp_that_a_reset_leaves_behind_is_a_broken_promise(db: Any) -> None:
    transaction = db.create_transaction()
    stamp = transaction.get_versionstamp()
    assert not stamp.is_ready()

    transaction.reset()

    assert code_of(stamp.wait) == 1100


def test_a_transaction_aware_of_locks_for_reading_cannot_write(db: Any, space: Any) -> None:
    transaction = db.create_transaction()
    transaction.options.set_read_lock_aware()
    transaction[space.pack(("key",))] = b"v"
    assert code_of(lambda: transaction.commit().wait()) == 2023

    transaction = db.create_transaction()
    transaction.options.set_lock_aware()
    transaction.options.set_read_lock_aware()
    transaction[space.pack(("key",))] = b"v"
    assert code_of(lambda: transaction.commit().wait()) == 0


def test_the_conflict_ranges_of_a_transaction_can_be_read(db: Any, space: Any) -> None:
    key = space.pack(("key",))
    transaction = db.create_transaction()
    transaction[key].wait()
    transaction[key + b"w"] = b"v"

    def boundaries(kind: str) -> list[tuple[bytes, bytes]]:
        prefix = b"\xff\xff/transaction/%s_conflict_range/" % kind.encode()
        rows = transaction.get_range(prefix, prefix + b"\xff\xff")
        return [(row.key.removeprefix(prefix), row.value) for row in rows]

    assert boundaries("read") == [(key, b"1"), (key + b"\0", b"0")]
    assert boundaries("write") == [(key + b"w", b"1"), (key + b"w\0", b"0")]


def test_conflicting_keys_are_reported_when_asked_for(db: Any, space: Any) -> None:
    read, changed, other = (space.pack((name,)) for name in ("read", "changed", "other"))
    reader = db.create_transaction()
    reader.options.set_report_conflicting_keys()
    assert not reader[read].present()
    assert not reader[changed].present()
    reader[other] = b"x"
    db[changed] = b"new"

    assert code_of(reader.commit().wait) == 1020

    prefix = b"\xff\xff/transaction/conflicting_keys/"
    rows = reader.get_range(prefix, prefix + b"\xff").to_list()
    assert [(row.key.removeprefix(prefix), row.value) for row in rows] == [
        (changed, b"1"),
        (changed + b"\0", b"0"),
    ]
