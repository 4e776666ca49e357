"""The commit lock of a store, in the hands of somebody else."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held(path: str) -> Iterator[None]:
    """The lock of a store, as another process would hold it."""
    with open(path + "-lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        yield
