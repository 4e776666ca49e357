"""Counts the requests of one process to the database, below the bindings."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
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
        self._commits: dict[Any, Any] = {}
        self._capi: Any = None

    def install(self) -> None:
        capi = self._capi = fdb.impl._FDBBase.capi
        for name in ("get", "get_key", "get_read_version", "get_range"):
            self._wrap(f"fdb_transaction_{name}", self._asked)
        for name in ("set", "clear", "clear_range", "atomic_op"):
            self._wrap(f"fdb_transaction_{name}", self._wrote)
        self._wrap("fdb_future_is_ready", self._waits)
        rows = capi.fdb_future_get_keyvalue_array
        commit, ended = capi.fdb_transaction_commit, capi.fdb_future_get_error

        def arrived(future: Any, found: Any, count: Any, more: Any) -> Any:
            result = rows(future, found, count, more)
            self.counts.rows += count._obj.value
            return result

        def committing(transaction: Any) -> Any:
            self._pending.request = True
            future = commit(transaction)
            self._commits[future] = transaction
            return future

        def committed(future: Any) -> Any:
            transaction = self._commits.pop(future, None)
            try:
                result = ended(future)
            except fdb.FDBError as error:
                if transaction is not None:
                    self.counts.attempts += 1
                    self.counts.conflicts += error.code == CONFLICT
                raise
            if transaction is not None and self._version(transaction) != READ_ONLY:
                self.counts.attempts += 1
                self.counts.commits += 1
            return result

        capi.fdb_future_get_keyvalue_array = arrived
        capi.fdb_transaction_commit, capi.fdb_future_get_error = committing, committed

    def _wrap(self, name: str, before: Callable[[str], None]) -> None:
        function = getattr(self._capi, name)

        def counted(*args: Any) -> Any:
            before(name)
            return function(*args)

        setattr(self._capi, name, counted)

    def _asked(self, name: str) -> None:
        self._pending.request = True
        self.counts.rows += name == "fdb_transaction_get"

    def _wrote(self, _: str) -> None:
        self.counts.written += 1

    def _waits(self, _: str) -> None:
        if getattr(self._pending, "request", False):
            self._pending.request = False
            self.counts.round_trips += 1

    def _version(self, transaction: Any) -> int:
        version = ctypes.c_int64()
        self._capi.fdb_transaction_get_committed_version(transaction, ctypes.byref(version))
        return version.value
