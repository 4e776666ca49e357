"""Processes that wait for the commit lock: its holder commits what they have posted, exactly once.

Each store of these tests is opened several times in one process, with a descriptor of its own for
each, as other processes would have it.
"""

from __future__ import annotations

import errno
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from fcntl import LOCK_EX, flock
from typing import Any
from zlib import crc32

import pytest
from msgspec.msgpack import encode as packb

from fdbqueue.store import embedded
from fdbqueue.store.embedded.codes import Fault
from fdbqueue.store.embedded.storage import mailbox, versions
from fdbqueue.store.embedded.storage.database import EmbeddedDatabase, OpenStore
from fdbqueue.store.embedded.storage.futex import Futex
from fdbqueue.store.embedded.storage.mailbox import _DATA, AVAILABLE, Mailbox, Post
from fdbqueue.store.embedded.storage.versions import FIRST_BOX, Sidecar, VersionClock
from fdbqueue.store.embedded.transactions import lifecycle, reads, writes
from fdbqueue.store.embedded.transactions.commit_requests import CommitRequest
from fdbqueue.store.embedded.transactions.transaction import EmbeddedTransaction, live
from tests.embedded.commit_lock import held
from tests.patience import DEADLINE

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="the system has no locks on open files")

ONE = (1).to_bytes(8, "little")
ADD = 2
Patch = pytest.MonkeyPatch


class Attempt(threading.Thread):
    """A transaction of a process of its own that counts, and sets a key."""

    numbers = itertools.count(-1, -1)

    def __init__(self, store: OpenStore, key: bytes, read: bytes | None = None) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self.handle = next(self.numbers)
        self.transaction = live[self.handle] = EmbeddedTransaction(EmbeddedDatabase(store))
        if read is not None:
            assert reads.fdb_transaction_get(self.handle, read, len(read), 0).error is None
        writes.fdb_transaction_atomic_op(self.handle, b"sum", 3, ONE, len(ONE), ADD)
        writes.fdb_transaction_set(self.handle, key, len(key), b"", 0)

    def run(self) -> None:
        self.error = lifecycle.fdb_transaction_commit(self.handle).error

    def commits(self) -> bool:
        """Whether it can commit."""
        self.start()
        return isinstance(self.outcome(), tuple)

    def outcome(self) -> Any:
        """Its version and its place among those of that version, or its error code."""
        self.join(DEADLINE)
        assert not self.is_alive()
        lifecycle.fdb_transaction_destroy(self.handle)
        if isinstance(self.error, Fault):
            return self.error.code
        assert self.error is None
        return self.transaction.committed_version, self.transaction.order


def posted(monkeypatch: Patch, count: int) -> Callable[[], None]:
    """Counts posts from now on; waits until there are so many."""
    original, all_posted, made = Mailbox.post, threading.Event(), itertools.count(1)

    def post(self: Mailbox, group: Any) -> bool:
        done = original(self, group)
        if done and next(made) == count:
            all_posted.set()
        return done

    monkeypatch.setattr(Mailbox, "post", post)

    def wait() -> None:
        assert all_posted.wait(DEADLINE)

    return wait


def commit_together(path: str, monkeypatch: Patch, attempts: Sequence[Attempt]) -> None:
    """Let attempts wait for the lock until each has posted."""
    wait = posted(monkeypatch, len(attempts))
    with held(path):
        for attempt in attempts:
            attempt.start()
        wait()


def total(path: str) -> int:
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT v FROM kv WHERE k = ?", (b"sum",)).fetchone()
    connection.close()
    return int.from_bytes(row[0], "little") if row else 0


def test_processes_that_wait_together_share_a_commit(path: str, monkeypatch: Patch) -> None:
    attempts = [Attempt(OpenStore(path, "normal"), b"%d" % number) for number in range(6)]

    commit_together(path, monkeypatch, attempts)

    outcomes = [attempt.outcome() for attempt in attempts]
    assert len({version for version, _ in outcomes}) == 1
    assert sorted(order for _, order in outcomes) == list(range(6))
    assert total(path) == 6


def test_of_those_that_read_what_they_write_one_is_committed(path: str, monkeypatch: Patch) -> None:
    stores = [OpenStore(path, "normal") for _ in range(5)]
    attempts = [Attempt(store, b"same", read=b"same") for store in stores]
    bystander = Attempt(OpenStore(path, "normal"), b"other")

    commit_together(path, monkeypatch, [*attempts, bystander])

    outcomes = [attempt.outcome() for attempt in attempts]
    assert outcomes.count(1020) == 4
    assert bystander.outcome() != 1020
    assert total(path) == 2


def test_what_a_holder_committed_before_it_died_is_not_committed_again(
    path: str, monkeypatch: Patch
) -> None:
    attempts = [Attempt(OpenStore(path, "normal"), b"%d" % number) for number in range(4)]
    monkeypatch.setattr(Mailbox, "answer", lambda self, posts, done: None)

    commit_together(path, monkeypatch, attempts)

    outcomes = [attempt.outcome() for attempt in attempts]
    assert len({version for version, _ in outcomes}) == 1
    assert total(path) == 4


def test_what_a_holder_noted_and_did_not_commit_is_committed_once(
    path: str, monkeypatch: Patch
) -> None:
    attempts = [Attempt(OpenStore(path, "normal"), b"%d" % number) for number in range(4)]
    original, failures = Mailbox.note, itertools.count()

    def note(self: Mailbox, posts: Sequence[Post], version: int) -> None:
        original(self, posts, version)
        if next(failures) == 0:
            raise sqlite3.OperationalError("disk full, say")

    monkeypatch.setattr(Mailbox, "note", note)
    # No time passes, so the next commit gets the version that was noted in vain.
    monkeypatch.setattr(VersionClock, "now", lambda self: 0)

    commit_together(path, monkeypatch, attempts)

    assert {type(attempt.outcome()) for attempt in attempts} == {tuple}
    assert total(path) == 4


def posted_by(store: OpenStore, key: bytes) -> tuple[Mailbox, list[CommitRequest]]:
    """The mailbox of a process that has posted a transaction, and what it has posted."""
    request = lifecycle._request(Attempt(store, key).transaction)
    assert request is not None
    mailbox = Mailbox(store.file.shared, False)
    assert mailbox.post([request])
    return mailbox, [request]


def test_what_a_dead_holder_noted_in_vain_is_not_taken_for_a_later_commit(path: str) -> None:
    stores = [OpenStore(path, "normal") for _ in range(2)]
    mailbox, group = posted_by(stores[0], b"key")
    holder = Mailbox(stores[1].file.shared, False)

    with held(path):
        posts = holder.collect(0, lambda _: False)
        holder.note(posts, version=7)
        # The holder dies. The next one leaves the post alone, and commits the same version.
        holder.collect(2**62, lambda _: False)

        assert not mailbox.take_answer(group, lambda version: version == 7)


def test_a_post_that_is_being_replaced_is_not_taken_under_its_old_number(path: str) -> None:
    stores = [OpenStore(path, "normal") for _ in range(2)]
    mailbox, _ = posted_by(stores[0], b"interrupted")
    request = lifecycle._request(Attempt(stores[0], b"next").transaction)
    assert request is not None
    assert mailbox.post([request])
    holder, words = Mailbox(stores[1].file.shared, False), stores[0].file.shared.words
    number = FIRST_BOX // 8
    assert words[number] == 2

    with held(path):
        words[number] = 1  # as it is until the new post is complete
        assert holder.collect(0, lambda _: False) == []
        words[number] = 2
        (post,) = holder.collect(0, lambda _: False)

    assert [each.record for each in post.requests] == [request.record]


def test_what_a_dead_process_posted_is_not_committed(path: str, monkeypatch: Patch) -> None:
    alive, dead = OpenStore(path, "normal"), OpenStore(path, "normal")
    left = Attempt(dead, b"left")
    request = lifecycle._request(left.transaction)
    assert request is not None
    mailbox = Mailbox(dead.file.shared, False)
    assert mailbox.post([request])
    # The system drops a dead process's locks, and nothing else.
    dead.file.shared.close()

    attempt = Attempt(alive, b"other")
    attempt.start()

    assert attempt.outcome()[1] == 0
    assert total(path) == 1
    with open(path + "-lock", "rb") as sidecar:
        assert b"left" not in sidecar.read()


def test_a_box_is_used_again_when_its_process_is_gone(path: str, monkeypatch: Patch) -> None:
    for number in range(40):
        store = OpenStore(path, "normal")
        attempt = Attempt(store, b"%d" % number)
        commit_together(path, monkeypatch, [attempt])
        assert attempt.outcome()[1] == 0
        store.close()

    assert total(path) == 40


def test_what_is_too_long_for_a_box_waits_for_the_lock_itself(path: str) -> None:
    store = OpenStore(path, "normal")
    attempt = Attempt(store, b"key")
    value = bytes(50_000)
    writes.fdb_transaction_set(attempt.handle, b"long", 4, value, len(value))
    request = lifecycle._request(attempt.transaction)
    assert request is not None
    assert not Mailbox(store.file.shared, False).post([request])

    with held(path):
        attempt.start()
        attempt.join(0.05)
        assert attempt.is_alive()

    assert attempt.outcome()[1] == 0
    assert total(path) == 1


def test_a_transaction_older_than_what_the_holder_knows_is_left_to_its_own_process(
    path: str,
) -> None:
    stores = [OpenStore(path, "normal") for _ in range(2)]
    attempt = Attempt(stores[0], b"key", read=b"never written")
    begun = attempt.transaction.read_version
    request = lifecycle._request(attempt.transaction)
    assert begun is not None
    assert request is not None
    assert Mailbox(stores[0].file.shared, False).post([request])
    holder = Mailbox(stores[1].file.shared, False)

    with held(path):
        assert holder.collect(begun + 1, lambda _: False) == []
        (post,) = holder.collect(begun, lambda _: False)

    assert [each.record for each in post.requests] == [request.record]


def test_who_waits_sleeps_until_it_is_woken(path: str, monkeypatch: Patch) -> None:
    # Given a process that posts while the lock is taken, and would sleep for long
    monkeypatch.setattr(mailbox, "_PAUSE_SECONDS", 10 * DEADLINE)
    asleep = sleeping(monkeypatch)
    holder, other = Mailbox(Sidecar(path + "-lock"), False), OpenStore(path, "normal")
    attempt = Attempt(OpenStore(path, "normal"), b"key")
    with held(path):
        attempt.start()
        assert asleep.wait(DEADLINE)
        attempt.join(0.1)
    # Then it sleeps on although the lock is free, until it is woken
    assert attempt.is_alive()
    holder.wake()
    assert attempt.outcome()[1] == 0
    asleep.clear()
    # And a commit of another process wakes it, whichever of the two makes it for both
    attempt, last = Attempt(OpenStore(path, "normal"), b"key"), Attempt(other, b"other")
    with held(path):
        attempt.start()
        assert asleep.wait(DEADLINE)
    last.start()
    (version, order), (other_version, other_order) = attempt.outcome(), last.outcome()
    assert version == other_version
    assert {order, other_order} == {0, 1}


def sleeping(monkeypatch: Patch) -> threading.Event:
    """Set when somebody goes to sleep who has posted."""
    asleep, waits = threading.Event(), Futex.wait

    def wait(self: Futex, value: int, seconds: float) -> None:
        asleep.set()
        waits(self, value, seconds)

    monkeypatch.setattr(Futex, "wait", wait)
    return asleep


def test_who_waits_finds_out_that_the_holder_of_the_lock_has_died(
    path: str, monkeypatch: Patch
) -> None:
    dying = Sidecar(path + "-lock")
    attempt = Attempt(OpenStore(path, "normal"), b"key")
    asleep = sleeping(monkeypatch)
    flock(dying.descriptor, LOCK_EX)

    attempt.start()
    assert asleep.wait(DEADLINE)
    dying.close()

    assert attempt.outcome()[1] == 0


def test_who_waits_needs_no_futex(path: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(versions, "futex", lambda shared, offset: None)
    attempts = [Attempt(OpenStore(path, "full"), b"%d" % number) for number in range(3)]
    commit_together(path, monkeypatch, attempts)
    assert {attempt.outcome()[1] for attempt in attempts} == {0, 1, 2}


def test_stores_are_closed_while_others_wait(path: str, monkeypatch: Patch) -> None:
    store = OpenStore(path, "normal")
    attempt = Attempt(OpenStore(path, "normal"), b"key")
    wait = posted(monkeypatch, 1)

    with held(path):
        attempt.start()
        wait()
        closing = threading.Thread(target=store.close)
        closing.start()
    closing.join(DEADLINE)

    assert attempt.outcome()[1] == 0
    late = Attempt(store, b"late")
    late.start()
    late.join(DEADLINE)
    assert isinstance(late.error, embedded.StoreFileError)


def test_who_has_closed_the_store_finds_no_post(path: str) -> None:
    # Given a post that nobody has answered yet
    stores = [OpenStore(path, "normal") for _ in range(2)]
    request = lifecycle._request(Attempt(stores[0], b"key").transaction)
    assert request is not None
    assert Mailbox(stores[0].file.shared, False).post([request])
    # When a store is closed, and then asked to commit
    stores[1].close()
    late = Attempt(stores[1], b"late")
    late.start()
    late.join(DEADLINE)
    # Then it says that it is closed
    assert isinstance(late.error, embedded.StoreFileError)


def test_without_room_for_a_mailbox_processes_wait_for_the_lock(
    path: str, monkeypatch: Patch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", refuse)
        attempts = [Attempt(OpenStore(path, "normal"), b"%d" % number) for number in range(3)]
        with held(path):
            for attempt in attempts:
                attempt.start()
            attempts[0].join(0.05)
            assert all(attempt.is_alive() for attempt in attempts)

    assert len({attempt.outcome()[0] for attempt in attempts}) == 3
    assert total(path) == 3
    # The next process finds room.
    late = Attempt(OpenStore(path, "normal"), b"late")
    commit_together(path, monkeypatch, [late])
    assert late.outcome()[1] == 0


@pytest.mark.parametrize("holder_mode", ["full", "normal"])
def test_a_commit_is_as_durable_as_its_own_process_asks(
    path: str, monkeypatch: Patch, holder_mode: str
) -> None:
    """Of those that wait, whoever asks for more than the holder gives commits for itself."""
    full, normal = OpenStore(path, "full"), OpenStore(path, "normal")
    poster, holder = (normal, full) if holder_mode == "full" else (full, normal)
    first = Attempt(poster, b"first")
    commit_together(path, monkeypatch, [first])
    assert first.outcome()
    attempt, own = Attempt(poster, b"posted"), Attempt(holder, b"own")
    wait = posted(monkeypatch, 1)

    def look_and_let_the_other_post() -> None:
        if attempt.ident is None:
            attempt.start()
            wait()

    monkeypatch.setattr(holder.file, "misplaced", look_and_let_the_other_post)
    own.run()

    version, _ = attempt.outcome()
    assert (version == own.transaction.committed_version) == (holder_mode == "full")
    assert total(path) == 3


@pytest.mark.parametrize(
    "nonsense", [b"", b"x", b"\xc1", packb(7), packb((False, [1])), packb((0, 0))]
)
def test_a_post_that_makes_no_sense_is_left_alone(path: str, nonsense: bytes) -> None:
    stores = [OpenStore(path, "normal") for _ in range(2)]
    mailbox, _ = posted_by(stores[0], b"key")
    shared, holder = stores[0].file.shared, Mailbox(stores[1].file.shared, False)
    number, length, checksum = (FIRST_BOX // 8 + index for index in (0, 4, 5))
    data = FIRST_BOX + _DATA
    shared.map[data : data + len(nonsense)] = nonsense
    shared.words[checksum] = crc32(nonsense, shared.words[number])
    for size in (len(nonsense), -1, 1 << 62):
        shared.words[length] = size
        assert holder.collect(0, lambda _: False) == []
    shared.words[versions.BOXES] = 1 << 40
    assert holder.collect(0, lambda _: False) == []
    shared.words[versions.BOXES] = 1
    assert Attempt(stores[1], b"other").commits()
    assert mailbox.is_answered(1) is False


@pytest.mark.parametrize("number", [-1, 1 << 62, (1 << 63) - 1])
def test_posts_are_counted_from_any_number(path: str, monkeypatch: Patch, number: int) -> None:
    attempts = [Attempt(OpenStore(path, "normal"), b"%d" % each) for each in range(2)]
    words = attempts[0].transaction.database.store.file.shared.words
    for box in range(2):
        at = mailbox._words_of(box)
        words[at] = words[at + 1] = number
    commit_together(path, monkeypatch, attempts)
    assert {len(attempt.outcome()) for attempt in attempts} == {2}
    assert total(path) == 2


def test_nothing_of_what_was_posted_stays_in_the_sidecar(path: str, monkeypatch: Patch) -> None:
    secret = b"nobody else may read this"
    attempts = [Attempt(OpenStore(path, "normal"), secret) for _ in range(2)]
    commit_together(path, monkeypatch, attempts)
    assert {len(attempt.outcome()) for attempt in attempts} == {2}
    with open(path + "-lock", "rb") as sidecar:
        assert secret not in sidecar.read()
