"""Imports: many messages from one source, each enqueued once however often it is interrupted."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ...errors import ImportMoved, InvalidArgument
from ...messages.enqueue import back_pressure
from ...schema import once
from ...store.binding import fdb
from ...values.durations import Seconds
from ...values.model import Enqueued, NewMessage
from ...values.options import check_name
from ..handle import Transactor
from ..queue import Queue

MAX_PLACE_BYTES = 10_000


class Import:
    """An import into a queue, under a name that whoever goes on with it must know.

    How far it has come is stored in the same transaction as the messages, so there is no instant
    at which the two differ: not when the importer is killed, and not when the outcome of a commit
    is unknown. What a place is, is the importer's: the number of a line, an offset in a file.
    """

    def __init__(self, queue: Queue, name: str) -> None:
        self._queue = queue
        self._key = queue._keys.imported(check_name(name))
        self._name = name

    def place(self, tr: Transactor) -> bytes:
        """How far it has come; empty if it has not begun. Raises ``QueueNotFound``."""

        def look(tr: fdb.Transaction) -> bytes:
            self._queue._scope(tr)
            return tr.get(self._key).value or b""

        return self._queue._read(tr, look)

    def enqueue(
        self,
        db: fdb.Database,
        messages: Iterable[NewMessage | Any],
        *,
        since: bytes,
        until: bytes,
        timeout: Seconds = back_pressure.TIMEOUT_SECONDS,
    ) -> Enqueued:
        """Enqueue the messages between two places; returns their ids, as
        ``Queue.enqueue_many`` does.

        since: the place that the import must be at. until: where it is then; not empty.
        timeout: as in ``Queue.enqueue``.

        One transaction, exactly once. One round trip. Conflicts as ``Queue.enqueue_many``, and
        with whoever goes on with the same import. Raises what ``Queue.enqueue_many`` raises, and
        ``ImportMoved``; then nothing is written.
        """
        if not 0 < len(until) <= MAX_PLACE_BYTES:
            raise InvalidArgument(
                argument="until", value=until, problem=f"must have 1 to {MAX_PLACE_BYTES:,} bytes"
            )
        given = list(messages)

        def put(tr: fdb.Transaction) -> Enqueued:
            place = tr.get(self._key)
            ids = self._queue.enqueue_many(tr, given)
            if (place.value or b"") != since:
                raise ImportMoved(name=self._name)
            tr[self._key] = until
            return ids

        run = partial(once.run, db, self._queue._keys.once, put)
        return back_pressure.patiently(lambda _: run(), timeout)

    def forget(self, tr: Transactor) -> None:
        """Remove the place. Whoever goes on with the import then begins anew."""

        def remove(tr: fdb.Transaction) -> None:
            self._queue._scope(tr)
            del tr[self._key]

        self._queue._run(tr, remove)
