"""Which stores this process has open, so that it reads no file that SQLite holds locks on."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .. import world

stores: dict[str, Any] = {}
"""Open stores by their real paths; guarded by the lock."""
lock = world.Lock()


def find(real: str) -> Any:
    """The open store of a file under any of its names, or None; the caller holds the lock."""
    if real in stores:
        return stores[real]
    for path, store in stores.items():
        with contextlib.suppress(OSError):
            if os.path.samefile(real, path):
                return store
    return None


def first_bytes(path: str, size: int) -> bytes | None:
    """The first bytes of a file, or None if this process has it open as a store.

    POSIX drops all of a process's locks on a file when the process closes any descriptor of it. So
    only SQLite may open and close a store's file: otherwise another process would consider the
    store closed, and delete the log that this one still writes.

    Raises:
        OSError: the file cannot be read.
    """
    with lock:
        if find(os.path.realpath(path)) is not None:
            return None
        with open(path, "rb") as file:
            return file.read(size)
