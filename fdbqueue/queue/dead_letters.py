"""The dead letters of a queue, as ``Queue.dead`` offers them."""

from __future__ import annotations

from ..messages import dead_letters, lookup
from ..store.binding import fdb
from ..values.content import check_count
from ..values.model import DeadMessage, MessageState
from .queue_base import Handle, Transactor

MAX_LISTED = 10_000


class DeadLetters:
    """The dead letters that a queue keeps itself; get it from ``Queue.dead``.

    Those that ``dead_letter_queue`` sends to another queue are ordinary messages of that queue.
    ``Queue.retry``, ``move`` and ``purge`` take dead letters, too.
    """

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def list(
        self,
        tr: Transactor,
        limit: int = 100,
        after: str | None = None,
    ) -> list[DeadMessage]:
        """Up to ``limit`` dead letters in the order of their deaths. Stops at 8 MB, but always
        returns at least one if there are any.

        after: the id of the last one of the previous page.

        Snapshot reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        check_count("limit", limit, MAX_LISTED)
        return self._queue._read(
            tr, lambda tr: dead_letters.read(tr, self._queue._scope(tr), limit, after)
        )

    def show(self, tr: Transactor, message_id: str) -> DeadMessage | None:
        """The dead letter with an id; None if there is none. Snapshot reads: no conflicts.

        Raises ``InvalidArgument`` if it is not an id, ``QueueNotFound``.
        """

        def read(tr: fdb.Transaction) -> MessageState | None:
            scope = self._queue._scope(tr)
            reads = lookup.reads(tr.snapshot, self._queue._keys, message_id)
            found = lookup.find(tr.snapshot, scope, reads)
            return None if found is None else lookup.state(tr, scope, found)

        found = self._queue._read(tr, read)
        if found is None or found.death is None:
            return None
        return DeadMessage(found.message, found.death, found.failures)
