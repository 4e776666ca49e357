"""Resumable imports: each message of a source is enqueued once, whatever interrupts the import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import InvalidArgument, TakenOver
from ...messages.enqueue.bounds import Room
from ...schema import once
from ...store.binding import fdb
from ...values.content import check_place
from ...values.durations import Seconds
from ...values.model import Enqueued, NewMessage
from ...values.options import check_name
from ..bulk import back_pressure
from ..enqueue import Enqueuing
from ..queue_base import Transactor

MAX_PLACE_BYTES = 10_000


class Import:
    """A named import into a queue, from ``Queue.streams``; use the same name to resume it.

    Each transaction stores the new position of the import together with the messages, so the two
    always agree, even after a kill or a commit with an unknown outcome. The importer defines what a
    place is: the number of a line, an offset in a file.
    """

    def __init__(self, queue: Enqueuing[Any], name: str) -> None:
        self._queue = queue
        self._key = queue._keys.imported(check_name(name))
        self._name = name

    def place(self, tr: Transactor) -> bytes:
        """How far the import has come; empty before the start. Raises ``QueueNotFound``."""

        def read(tr: fdb.Transaction) -> bytes:
            self._queue._scope(tr)
            return tr.get(self._key).value or b""

        return self._queue._read(tr, read)

    def enqueue(
        self,
        db: fdb.Database,
        messages: Iterable[NewMessage | Any],
        *,
        since: bytes,
        until: bytes,
        room: Seconds = back_pressure.ROOM_SECONDS,
    ) -> Enqueued:
        """Enqueue the messages between two places; returns their ids, as ``Queue.enqueue_many``.

        since: where the import must be. until: where it is afterwards; not empty.
        room: as in ``Queue.enqueue``.

        One transaction, exactly once. One round trip. Conflicts as ``Queue.enqueue_many``, and with
        other runs of the same import. Raises what ``Queue.enqueue_many`` raises, and
        ``TakenOver``; then nothing is written.
        """
        check_place("since", since, "place()")
        check_place("until", until, "the importer")
        if not 0 < len(until) <= MAX_PLACE_BYTES:
            raise InvalidArgument(
                argument="until", value=until, problem=f"must have 1 to {MAX_PLACE_BYTES:,} bytes"
            )
        given = self._queue._drafts(db, messages)

        def put(tr: fdb.Transaction, known: Room) -> Enqueued:
            place = tr.get(self._key)
            # Between the read of the place and its use: both are under way at once.
            admitted = self._queue._put(tr, given, known)
            if (place.value or b"") != since:
                raise TakenOver(what=f"import {self._name!r}", remedy="read its position again")
            tr[self._key] = until
            return Enqueued(admitted.ids, admitted.new)

        def run(known: Room) -> Enqueued:
            return once.run(db, self._queue._keys.once, put, known)

        return back_pressure.patiently(self._queue, db, run, room)

    def forget(self, tr: Transactor) -> None:
        """Remove the place: the import then starts over."""

        def remove(tr: fdb.Transaction) -> None:
            self._queue._scope(tr)
            del tr[self._key]

        self._queue._run(tr, remove)
