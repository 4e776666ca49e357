"""The commit lock of a store, in the hands of somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fdbqueue.store.embedded.storage.versions import Shared


@contextmanager
def held(path: str) -> Iterator[None]:
    """The lock of a store, as another process would hold it."""
    other = Shared(path + "-lock")
    other.lock()
    try:
        yield
    finally:
        other.unlock()
