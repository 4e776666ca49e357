"""One watcher sees changes for all viewers, reads little, and ends with the last viewer."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fdbqueue import Queue, fdb
from fdbqueue.queue import overview
from fdbqueue.web import application, watcher
from fdbqueue.web.site import rate
from fdbqueue.web.watcher import QueueChange, Watcher
from tests.patience import DEADLINE, eventually
from tests.taking import take
from tests.web.serving import events, serving


class Viewer:
    """Gathers what it is told."""

    def __init__(self) -> None:
        self.changes: list[QueueChange] = []
        self._told = threading.Condition()

    def note(self, change: QueueChange) -> None:
        with self._told:
            self.changes.append(change)
            self._told.notify_all()

    def wait(self, true: Callable[[QueueChange], bool]) -> None:
        """Wait for a change, and forget those up to it."""

        def found() -> bool:
            return any(map(true, self.changes))

        with self._told:
            assert self._told.wait_for(found, DEADLINE)
            while not true(self.changes.pop(0)):
                pass


@contextmanager
def viewing(watching: Watcher) -> Iterator[Viewer]:
    viewer = Viewer()
    leave = watching.follow(viewer.note)
    try:
        yield viewer
    finally:
        leave()
        eventually(lambda: watching._thread is None or watching._viewers)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks follow each other faster."""
    monkeypatch.setattr(watcher, "TICK_SECONDS", 0.06)
    monkeypatch.setattr(watcher, "REST_SECONDS", 0.01)
    monkeypatch.setattr(watcher, "SHARE", 1)


@pytest.fixture
def watching(db: fdb.Database, space: fdb.Subspace) -> Watcher:
    return Watcher(db, space)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The queues that each look reads."""
    looks: list[list[str]] = []
    survey = overview._survey

    def noted(tr: fdb.Transaction, keys: dict[str, Any]) -> Any:
        looks.append(sorted(keys))
        return survey(tr, keys)

    monkeypatch.setattr(overview, "_survey", noted)
    return looks


def test_a_change_is_seen_by_all_viewers_and_only_that_queue_is_read(
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue[bytes],
    watching: Watcher,
    read: list[list[str]],
) -> None:
    for n in range(5):
        Queue.create(db, f"mail-{n}", root=space).enqueue(db, b"x")
    queue.enqueue(db, b"x")
    with viewing(watching) as one, viewing(watching) as other:
        one.wait(lambda change: change.everything)
        eventually(lambda: len(watching.look().views) == 6)
        read.clear()

        delivery = take(db, queue)
        for viewer in (one, other):
            viewer.wait(lambda change: "orders" in change.names)
        assert watching.look().views["orders"].seen.depth.leased == 1
        queue.ack(db, delivery)
        one.wait(lambda change: "orders" in change.names)

        assert watching.look().views["orders"].seen.depth.done == 1
        assert {name for names in read for name in names} == {"orders"}


def test_a_new_queue_a_pause_and_a_deletion_are_seen(
    db: fdb.Database, space: fdb.Subspace, watching: Watcher
) -> None:
    with viewing(watching) as viewer:
        queue = Queue.create(db, "late", root=space)
        viewer.wait(lambda change: change.everything and "late" in watching.look().views)
        queue.admin.pause(db)
        eventually(lambda: watching.look().views["late"].seen.options.paused)
        queue.delete(db)
        viewer.wait(lambda change: change.everything and "late" not in watching.look().views)


def test_a_look_at_everything_keeps_the_watches_and_sees_what_they_do_not(
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue[bytes],
    watching: Watcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watcher, "FULL_SECONDS", 0.0)
    Queue.create(db, "other", root=space)
    queue.enqueue(db, b"x")
    with viewing(watching) as viewer:
        viewer.wait(lambda change: change.everything)
        before = dict(watching._watches)
        views = dict(watching.look().views)
        at = watching.look().at
        eventually(lambda: watching.look().at > at)
        assert {name: id(some) for name, some in watching._watches.items()} == {
            name: id(some) for name, some in before.items()
        }
        assert watching.look().views["other"] is views["other"]

        queue.enqueue(db, b"later", delay=3600, priority=1)
        viewer.wait(lambda change: change.names == {"orders"})
        assert watching.look().views["orders"].depth.scheduled == 1
        queue.enqueue(db, b"x", priority=1)
        eventually(lambda: watching.look().views["orders"].depth.ready == 2)


def test_rows_are_new_only_if_they_look_different(
    db: fdb.Database, space: fdb.Subspace, watching: Watcher
) -> None:
    busy = Queue.create(db, "busy", root=space)
    Queue.create(db, "still", root=space)
    with viewing(watching) as viewer:
        viewer.wait(lambda change: change.everything)
        busy.enqueue_many(db, [b"x"] * 10)
        viewer.wait(lambda change: "busy" in change.names)
        for _ in range(20):
            before = watching.look().views
            watching._fell_at = float("-inf")
            viewer.wait(lambda change: True)
            after = watching.look().views
            assert after["still"] is before["still"]
            rate_in = after["busy"].rate_in
            assert float(rate(rate_in).replace(",", "")) == rate_in
        told = [name for change in viewer.changes for name in change.names]
        assert set(told) <= {"busy"}


def test_without_a_viewer_nothing_is_read(
    db: fdb.Database, queue: Queue[bytes], watching: Watcher, read: list[list[str]]
) -> None:
    with viewing(watching) as viewer:
        viewer.wait(lambda change: change.everything)
    assert watching._watches == {}
    read.clear()
    queue.enqueue(db, b"x")
    assert read == []

    with viewing(watching) as viewer:
        viewer.wait(lambda change: "orders" in change.names)
    assert watching.look().views["orders"].seen.depth.ready == 1


def test_rates_rise_and_fall(
    db: fdb.Database, queue: Queue[bytes], watching: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "RATE_SECONDS", 0.2)
    with viewing(watching) as viewer:
        viewer.wait(lambda change: change.everything)
        queue.enqueue_many(db, [b"x"] * 10)
        eventually(lambda: watching.look().views["orders"].rate_in > 0)
        eventually(lambda: watching.look().views["orders"].rate_in == 0)
        assert watching.look().views["orders"].rate_out == 0


def test_more_queues_than_watches_are_seen_by_and_by(
    db: fdb.Database, space: fdb.Subspace, watching: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MAX_WATCHES", 2)
    monkeypatch.setattr(watcher, "FULL_SECONDS", 0.0)
    queues = [Queue.create(db, f"mail-{n}", root=space) for n in range(4)]
    with viewing(watching) as viewer:
        viewer.wait(lambda change: change.everything)
        assert sum(map(len, watching._watches.values())) == 2
        for queue in queues:
            queue.enqueue(db, b"x")
        eventually(lambda: all(view.seen.depth.ready for view in watching.look().views.values()))


def test_a_store_that_fails_is_said_and_looked_at_again(
    db: fdb.Database,
    queue: Queue[bytes],
    watching: Watcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with viewing(watching) as viewer:
        viewer.wait(lambda change: change.everything)
        with monkeypatch.context() as patched:
            patched.setattr(
                watching, "_catalogue", lambda: (_ for _ in ()).throw(fdb.FDBError(1031))
            )
            viewer.wait(lambda change: change.everything)
            assert "1031" in str(watching.look().failed)
            assert "orders" in watching.look().views
        viewer.wait(lambda change: change.everything)
        assert watching.look().failed is None


def page(address: str, contains: str) -> str:
    with urllib.request.urlopen(f"http://{address}/?contains={contains}") as response:
        return str(response.read().decode())


def test_pages_receive_rows_and_changes(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes]
) -> None:
    other = Queue.create(db, "other", root=space)
    queue.enqueue(db, b"x")
    other.enqueue(db, b"x")

    def until(address: str, received: Iterator[tuple[str, Any]], row: str, ready: int) -> None:
        """Wait for a row that says so; there may be others before. If there are perhaps other
        queues, the page is loaded again."""
        for name, data in received:
            rows = data.get("rows", {})
            shown = page(address, row) if name == "changed" else rows.get(row, "")
            if f'data-label="Ready">{ready}<' in shown:
                return

    with (
        serving(application(db, root=space)) as address,
        events(address) as overviews,
        events(address, "?contains=oth") as filtered,
        events(address, "?queue=other") as others,
    ):
        assert next(others) == ("changed", {})
        until(address, overviews, "orders", 1)
        until(address, filtered, "other", 1)
        queue.enqueue(db, b"<script>")
        until(address, overviews, "orders", 2)
        other.enqueue(db, b"x")
        until(address, filtered, "other", 2)
        assert next(others) == ("changed", {})


def test_a_page_hears_only_of_what_it_shows(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes]
) -> None:
    Queue.create(db, "other", root=space)
    with (
        serving(application(db, root=space)) as address,
        events(address, "?contains=oth") as filtered,
    ):
        queue.enqueue(db, b"x")
        for name, data in filtered:
            assert data.get("rows", {}).keys() <= {"other"}
            shown = page(address, "oth") if name == "changed" else data.get("totals", "")
            if "<dt>Ready</dt><dd>1</dd>" in shown:
                break
