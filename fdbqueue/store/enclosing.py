"""The transactions that the caller is in: what it gives their database by mistake is noticed."""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..errors import InvalidArgument
from . import tasks

if TYPE_CHECKING:
    from .._stubs import fdb


class Inside:
    """While a caller is in it, it is in a transaction of ``db``: ``with Inside(tr.db)``.

    db: None for what begins anew, in no transaction. Threads and tasks that the caller starts
    meanwhile are not in it.
    """

    __slots__ = ("__weakref__", "db", "outer", "over", "runner")

    def __init__(self, db: fdb.Database | None) -> None:
        self.db = db
        self.over = False

    def __enter__(self) -> None:
        self.runner, self.outer = tasks.runner(), _innermost.get()
        # Weakly: a signal handler that raises here, or in the exit, must leave nothing behind.
        _innermost.set(weakref.ref(self))

    def __exit__(self, *_: object) -> None:
        self.over = True  # Copies of the context may outlive it.
        if _innermost.get() is weakref.ref(self):
            _innermost.set(self.outer)


_innermost: ContextVar[weakref.ref[Inside] | None] = ContextVar("fdbqueue.inside", default=None)


def check_apart(db: fdb.Database) -> None:
    """Raise ``InvalidArgument`` for the database of a transaction that the caller is in."""
    known = _innermost.get()
    while known is not None:
        inside = known()
        if inside is None or inside.db is None:
            return
        if inside.db is db and not inside.over and inside.runner == tasks.runner():
            raise InvalidArgument(
                argument="tr",
                value=db,
                problem="commits apart from the transaction that this is called in: give that; "
                "what must stay whatever becomes of it, enqueue after it, or send by a producer",
            )
        known = inside.outer
