"""Watches notice cleared ranges without a look at each watched key, and commits that come late."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded import open_stores
from fdbqueue.store.embedded.storage import watches
from fdbqueue.store.embedded.storage.versions import ANNOUNCED, RANGES, TOUCHED, slot_of
from tests.embedded.test_processes import Worker
from tests.patience import eventually

KEYS = [b"%c" % letter for letter in b"abcdefgh"]
SENTINEL = b"z"
BOUNDS = st.sampled_from([*KEYS, *(key + b"\0" for key in KEYS)])
Change = tuple[str, bytes, bytes]
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(KEYS), st.sampled_from([b"", b"1", b"2"])),
    st.tuples(st.sampled_from(["clear", "clear without conflicts"]), BOUNDS, BOUNDS),
)


def opened(path: Path) -> tuple[Any, Any]:
    """A store, and the watches of this process on it."""
    db: Any = fdb.open(str(path))
    return db, open_stores.find(str(path)).watches


@fdb.transactional
def change(tr: Any, changes: list[Change]) -> None:
    for kind, one, other in changes:
        if kind == "set":
            tr[one] = other
            continue
        if kind == "clear without conflicts":
            tr.options.set_next_write_no_write_conflict_range()
        tr.clear_range(min(one, other), max(one, other))


class Fixture:
    """Every key of a store watched, and which of them were read again."""

    def __init__(self, path: Path) -> None:
        self.db, self.watches = opened(path)
        self.armed: dict[bytes, tuple[bytes | None, Any]] = {}
        self.read: set[bytes] = set()
        read = self.watches._read

        def noting(raised: Any, cleared: Any) -> Any:
            newest, values = read(raised, cleared)
            self.read |= values.keys()
            return newest, values

        self.watches._read = noting
        self.rearm()

    def rearm(self) -> None:
        """Watch what is not watched, until nothing is left to read."""
        for key in [*KEYS, SENTINEL]:
            if key not in self.armed or self.armed[key][1].is_ready():
                value, watch = self.db.get_and_watch(key)
                self.armed[key] = (bytes(value) if value.present() else None, watch)
        eventually(lambda: None not in self.watches._noted.values())
        self.read.clear()

    def fired(self) -> set[bytes]:
        return {key for key, (_, watch) in self.armed.items() if watch.is_ready()}

    def fired_all(self, keys: set[bytes]) -> bool:
        return keys <= self.fired()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fixture]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDBQUEUE_SYNCHRONOUS", "normal")
        yield Fixture(tmp_path_factory.mktemp("watched") / "a.store")


def test_the_keys_of_the_model_have_slots_of_their_own() -> None:
    assert len({slot_of(key) for key in [*KEYS, SENTINEL]}) == len(KEYS) + 1


@settings(max_examples=60)
@given(commits=st.lists(st.lists(CHANGES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_watches_fire_for_what_changed_and_read_only_what_was_written(
    watched: Fixture, commits: list[list[Change]]
) -> None:
    for changes in commits:
        before = {key: value for key, (value, _) in watched.armed.items()}
        model = dict(before)
        written: set[bytes] = set()
        everything = False
        for kind, one, other in changes:
            low, high = min(one, other), max(one, other)
            hit = {one} if kind == "set" else {key for key in KEYS if low <= key < high}
            model |= dict.fromkeys(hit, other if kind == "set" else None)
            written |= hit
            everything |= kind == "clear without conflicts" and low < high

        change(watched.db, changes)
        watched.db[SENTINEL] = b"%d" % (int(before[SENTINEL] or b"0") + 1)

        changed = {key for key, value in model.items() if value != before[key]} | {SENTINEL}
        eventually(partial(watched.fired_all, changed))
        assert watched.fired() == changed
        if not everything:
            assert watched.read <= written | {SENTINEL}
        watched.rearm()


def test_a_log_that_does_not_reach_back_is_no_reason_to_miss_a_change(tmp_path: Path) -> None:
    db, its_watches = opened(tmp_path / "a.store")
    db[b"a"] = b"1"
    watch = db.get_and_watch(b"a")[1]
    eventually(lambda: None not in its_watches._noted.values())
    path = str(tmp_path / "a.store")

    # The thread is paused for longer than the log is kept.
    with its_watches._reading:
        del db[b"":b"b"]
        db[b"c"] = b"1"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(
                "DELETE FROM recent WHERE version < (SELECT max(version) FROM recent)"
            )

    eventually(watch.is_ready)


def test_a_range_cleared_between_a_commit_and_its_watch_is_noticed(tmp_path: Path) -> None:
    """The thread may have looked at the range before it knew the watch."""
    db, its_watches = opened(tmp_path / "a.store")
    other = db.get_and_watch(b"other")[1]
    arm = its_watches.arm

    def late(watch: Any, version: int, own: bool) -> None:
        its_watches.arm = arm
        del db[b"a":b"b"]
        eventually(lambda: its_watches._cleared[0] == its_watches._file.shared.words[RANGES])
        arm(watch, version, own)

    its_watches.arm = late
    watch = db.set_and_watch(b"a", b"1")

    eventually(watch.is_ready)
    assert not other.is_ready()


def test_a_watch_is_not_compared_with_a_state_older_than_the_one_it_saw(tmp_path: Path) -> None:
    """The thread may have begun to read before the watch was armed."""
    db, its_watches = opened(tmp_path / "a.store")
    db[b"a"] = b"1"
    former = db.get_and_watch(b"a")[1]
    eventually(lambda: None not in its_watches._noted.values())
    cleared_ranges, armed = its_watches._cleared_ranges, []

    def late(*args: Any) -> Any:
        its_watches._cleared_ranges = cleared_ranges
        armed.append(db.set_and_watch(b"a", b"3"))
        return cleared_ranges(*args)

    its_watches._cleared_ranges = late
    db[b"a"] = b"2"
    eventually(former.is_ready)
    watch = armed[0]
    eventually(lambda: its_watches._seen == its_watches._file.shared.words[TOUCHED])

    assert not watch.is_ready()
    db[b"a"] = b"4"
    eventually(watch.is_ready)


def test_a_commit_that_was_slower_than_anyone_expects_still_fires_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was paused, or its disk was, after it had announced the commit."""
    db, its_watches = opened(tmp_path / "a.store")
    monkeypatch.setattr(watches, "_LOST_COMMIT_SECONDS", 0.0)
    shared = its_watches._file.shared
    watch = db.get_and_watch(b"watched")[1]
    eventually(lambda: None not in its_watches._noted.values())
    newest = shared.words[ANNOUNCED]
    looks: list[object] = []
    hold = shared.hold

    def look(*work: Any, **options: Any) -> Any:
        looks.append(hold(*work, **options))
        return looks[-1]

    monkeypatch.setattr(shared, "hold", look)
    worker = Worker(str(tmp_path / "a.store"), "change_slowly", "them")
    try:
        assert worker.process.stdin is not None
        worker.process.stdin.write("watched\n")
        worker.process.stdin.flush()
        eventually(lambda: shared.words[ANNOUNCED] != newest)
        eventually(lambda: len(looks) > 3)
        assert not watch.is_ready()

        worker.process.stdin.write("\n")
        worker.process.stdin.flush()

        eventually(watch.is_ready)
    finally:
        worker.kill()
    assert db[b"watched"] == b"them"


def test_a_commit_lost_with_its_process_leaves_watches_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, its_watches = opened(tmp_path / "a.store")
    monkeypatch.setattr(watches, "_LOST_COMMIT_SECONDS", 0.0)
    shared = its_watches._file.shared
    watch = db.get_and_watch(b"watched")[1]
    newest = shared.words[ANNOUNCED]
    worker = Worker(str(tmp_path / "a.store"), "change_slowly", "them")
    assert worker.process.stdin is not None
    worker.process.stdin.write("watched\n")
    worker.process.stdin.flush()
    eventually(lambda: shared.words[ANNOUNCED] != newest)

    worker.kill()

    eventually(lambda: its_watches._seen == shared.words[ANNOUNCED])
    assert not watch.is_ready()
    db[b"watched"] = b"us"
    eventually(watch.is_ready)
