"""A store that is closed gives back all that it held, and can be opened again."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

import pytest

import fdbqueue
from fdbqueue.consumers import watching
from fdbqueue.store import binding, embedded
from tests.patience import DEADLINE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc shows")


def files_open_below(directory: Path) -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(directory))]


def threads_of_stores() -> set[threading.Thread]:
    names = ("fdbqueue-watches", "fdbqueue-checkpoint")
    return {thread for thread in threading.enumerate() if thread.name in names}


def test_stores_that_are_closed_leave_no_descriptor_and_no_thread(tmp_path: Path) -> None:
    before = threads_of_stores()
    for n in range(20):
        # When a store is written, read and watched, and closed
        db = fdbqueue.open(tmp_path / f"{n}.fdbq")
        tr = db.create_transaction()
        watch = tr.watch(b"key")
        tr[b"other"] = b"value"
        tr.commit().wait()
        assert db[b"other"] == b"value"
        assert files_open_below(tmp_path)
        binding.close(db)
        # Then nothing of it is open, and who waits for a change is told
        assert files_open_below(tmp_path) == []
        with pytest.raises(embedded.StoreFileError, match="closed"):
            watch.wait()
    for thread in threads_of_stores() - before:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_who_sleeps_as_the_store_is_closed_wakes_without_an_error(tmp_path: Path) -> None:
    db = fdbqueue.open(tmp_path / "store.fdbq")
    armed = watching.watch(db, b"key", DEADLINE)
    binding.close(db)
    assert watching.wait([armed], 0.01)


def test_a_closed_store_opens_again_with_what_was_in_it(tmp_path: Path) -> None:
    db = fdbqueue.open(tmp_path / "store.fdbq")
    db[b"key"] = b"value"
    late = db.create_transaction()
    late[b"key"] = b"late"
    binding.close(db)
    binding.close(db)
    # What was under way fails and has no effect
    with pytest.raises(embedded.StoreFileError, match="closed"):
        late.commit().wait()
    with pytest.raises(embedded.StoreFileError, match="closed"):
        db.create_transaction().get(b"key").wait()
    again = fdbqueue.open(tmp_path / "store.fdbq")
    try:
        assert again is not db
        assert again[b"key"] == b"value"
    finally:
        binding.close(again)
