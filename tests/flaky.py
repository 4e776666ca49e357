"""A database whose commits fail as planned, on any engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from fdbqueue.store import client
from fdbqueue.store.binding import fdb

CONFLICT = "conflict"
UNKNOWN_COMMITTED = "unknown, committed"
UNKNOWN_LOST = "unknown, not committed"
TIMED_OUT_COMMITTED = "timed out, committed"
TIMED_OUT_LOST = "timed out, not committed"

_TIMED_OUT = 1031
_CODES = {
    CONFLICT: 1020,
    UNKNOWN_COMMITTED: 1021,
    UNKNOWN_LOST: 1021,
    TIMED_OUT_COMMITTED: _TIMED_OUT,
    TIMED_OUT_LOST: _TIMED_OUT,
}
FAULTS = (CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST)
"""After which an operation is tried again."""
PLANS = [plan for length in (1, 2) for plan in itertools.product(FAULTS, repeat=length)]
"""One or two of them, in all orders."""


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def wait(self) -> None:
        raise self.error


class FlakyDatabase:
    """Lends transactions of ``db`` whose commits meet the planned faults, one after another."""

    def __init__(
        self,
        db: fdb.Database,
        plan: Iterable[str | None],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """before: what happens before each commit, after the transaction's reads."""
        self.__dict__.update(vars(db))  # What a process knows of the database: what time it is.
        self._db = db
        self._plan = iter(plan)
        self._before = before
        self.commits = 0

    def create_transaction(self) -> fdb.Transaction:
        tr = client.begin(self._db)
        commit = tr.commit

        def flaky() -> Any:
            self.commits += 1
            self._before()
            fault = next(self._plan, None)
            if fault in (None, UNKNOWN_COMMITTED, TIMED_OUT_COMMITTED):
                done = commit()
                if fault is None:
                    return done
                done.wait()
            return _Failed(fdb.FDBError(_CODES[str(fault)]))

        tr.commit = flaky  # type: ignore[method-assign]
        return tr


class CuttableDatabase:
    """Lends transactions of ``db``, as long as it is not ``cut`` off; then ``error`` is raised."""

    def __init__(self, db: fdb.Database, error: Exception | None = None) -> None:
        self._db = db
        self._error = error or fdb.FDBError(_TIMED_OUT)
        self.cut = False

    def create_transaction(self) -> fdb.Transaction:
        if self.cut:
            raise self._error
        tr = self._db.create_transaction()
        commit = tr.commit

        def cuttable() -> Any:
            return _Failed(self._error) if self.cut else commit()

        tr.commit = cuttable  # type: ignore[method-assign]
        return tr
