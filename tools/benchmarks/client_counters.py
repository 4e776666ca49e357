"""Counts the requests of one process to the database, at the level of the bindings."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any

from fdbqueue.store.binding import fdb

CONFLICT = 1020
READ_ONLY = -1


@dataclass
class Counts:
    """Counters.

    attempts: commits tried. commits: those that wrote. conflicts: those that conflicted.
    round_trips: waits for answers; requests issued together count once. rows: keys read, existing
    or not, and rows of ranges. written: mutations.
    """

    attempts: int = 0
    commits: int = 0
    conflicts: int = 0
    round_trips: int = 0
    rows: int = 0
    written: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(a - b for a, b in zip(self.values(), other.values(), strict=True)))

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self.values(), other.values(), strict=True)))

    def values(self) -> list[int]:
        return list(asdict(self).values())


class Meter:
    """Counts the requests of this process after ``install``."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._pending = threading.local()

    def install(self) -> None:
        impl: Any = fdb.impl
        for name in ("get", "get_key", "get_read_version", "_get_range"):
            self._mark(impl.TransactionRead, name)
        for name in ("set", "clear", "clear_range", "_atomic_operation"):
            self._mark_written(impl.Transaction, name)
        waits = impl.Future.block_until_ready

        def block_until_ready(future: Any) -> Any:
            if getattr(self._pending, "request", False):
                self._pending.request = False
                self.counts.round_trips += 1
            return waits(future)

        impl.Future.block_until_ready = block_until_ready
        arrive = impl.FutureKeyValueArray.wait

        def arrived(future: Any) -> Any:
            found = arrive(future)
            self.counts.rows += found[1]
            return found

        impl.FutureKeyValueArray.wait = arrived
        commit = impl.Transaction.commit
        meter = self

        def counted(tr: Any) -> _Commit:
            meter._pending.request = True
            return _Commit(tr, commit(tr), meter.counts)

        impl.Transaction.commit = counted

    def _mark(self, owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def marked(*args: Any, **kwargs: Any) -> Any:
            self._pending.request = True
            self.counts.rows += name == "get"
            return method(*args, **kwargs)

        setattr(owner, name, marked)

    def _mark_written(self, owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def marked(*args: Any, **kwargs: Any) -> Any:
            self.counts.written += 1
            return method(*args, **kwargs)

        setattr(owner, name, marked)


class _Commit:
    """A commit that is counted when it ends."""

    def __init__(self, tr: Any, future: Any, counts: Counts) -> None:
        self._tr = tr
        self._future = future
        self._counts = counts

    def wait(self) -> None:
        try:
            self._future.wait()
        except fdb.FDBError as error:
            self._counts.attempts += 1
            self._counts.conflicts += error.code == CONFLICT
            raise
        if self._tr.get_committed_version() != READ_ONLY:
            self._counts.attempts += 1
            self._counts.commits += 1
