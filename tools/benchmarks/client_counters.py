"""Counts the requests of one process to the database, below the bindings.

The embedded engine's futures hold their results, and fdbqueue takes them as they are. So rows and
commits of such a future count when it is made, and a wait for it when it is first asked whether its
result is at hand.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from operator import add, sub
from typing import Any

from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.futures import Future

CONFLICT = 1020
READ_ONLY = -1


@dataclass
class Counts:
    """Counters.

    attempts: commits tried. commits: those that wrote. conflicts: those that conflicted.
    round_trips: waits for answers; requests issued together count once. rows: keys read, existing
    or not, and rows of ranges. written: mutations. written_bytes: those of their keys and values.
    """

    attempts: int = 0
    commits: int = 0
    conflicts: int = 0
    round_trips: int = 0
    rows: int = 0
    written: int = 0
    written_bytes: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(sub, astuple(self), astuple(other)))

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))


class Meter:
    """Counts the requests of this process from now on."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._pending = threading.local()
        self._commits: dict[Any, Any] = {}
        capi = self._capi = fdb.impl._FDBBase.capi
        for name in ("get", "get_key", "get_read_version"):
            self._wrap(f"fdb_transaction_{name}", self._asked)
        for name in ("set", "clear", "clear_range", "atomic_op"):
            self._wrap(f"fdb_transaction_{name}", self._written)
        self._wrap("fdb_future_is_ready", self._waits)
        Future.at_hand = _AtHand(self._waits)  # type: ignore[assignment]
        ranged, rows = capi.fdb_transaction_get_range, capi.fdb_future_get_keyvalue_array
        commit, ended = capi.fdb_transaction_commit, capi.fdb_future_get_error

        def ranging(*args: Any) -> Any:
            self._pending.request = True
            future = ranged(*args)
            if type(future) is Future and future.error is None:
                self.counts.rows += len(future.value[0])
            return future

        def arrived(future: Any, found: Any, count: Any, more: Any) -> Any:
            result = rows(future, found, count, more)
            if type(future) is not Future:
                self.counts.rows += count._obj.value
            return result

        def committing(transaction: Any) -> Any:
            self._pending.request = True
            future = commit(transaction)
            if type(future) is not Future:
                self._commits[future] = transaction
            elif future.error is None:
                self._committed(transaction)
            else:
                self._refused(getattr(future.error, "code", 0))
            return future

        def committed(future: Any) -> Any:
            transaction = self._commits.pop(future, None)
            try:
                result = ended(future)
            except fdb.FDBError as error:
                if transaction is not None:
                    self._refused(error.code)
                raise
            if transaction is not None:
                self._committed(transaction)
            return result

        capi.fdb_transaction_get_range = ranging
        capi.fdb_future_get_keyvalue_array = arrived
        capi.fdb_transaction_commit, capi.fdb_future_get_error = committing, committed

    def now(self) -> Counts:
        """What has been counted so far."""
        return replace(self.counts)

    def _wrap(self, name: str, before: Callable[..., object]) -> None:
        function = getattr(self._capi, name)

        def counted(*args: Any) -> Any:
            before(name, *args)
            return function(*args)

        setattr(self._capi, name, counted)

    def _written(self, name: str, _: Any, key: bytes, length: int, *other: Any) -> None:
        self.counts.written += 1
        self.counts.written_bytes += length + (other[1] if other else 0)

    def _asked(self, name: str, *_: Any) -> None:
        self._pending.request = True
        self.counts.rows += name == "fdb_transaction_get"

    def _waits(self, *_: Any) -> None:
        if getattr(self._pending, "request", False):
            self._pending.request = False
            self.counts.round_trips += 1

    def _committed(self, transaction: Any) -> None:
        version = ctypes.c_int64()
        self._capi.fdb_transaction_get_committed_version(transaction, ctypes.byref(version))
        if version.value != READ_ONLY:
            self.counts.attempts += 1
            self.counts.commits += 1

    def _refused(self, code: int) -> None:
        self.counts.attempts += 1
        self.counts.conflicts += code == CONFLICT


class _AtHand:
    """The ``at_hand`` of a future of the embedded engine, which tells when it is asked for."""

    def __init__(self, asked: Callable[[], object]) -> None:
        self._asked = asked

    def __get__(self, future: Any, _: object = None) -> bool:
        self._asked()
        return bool(vars(future).get("at_hand", True))

    def __set__(self, future: Any, at_hand: bool) -> None:
        vars(future)["at_hand"] = at_hand
