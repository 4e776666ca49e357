"""What operators do to a queue, as ``Queue.admin`` offers it."""

from __future__ import annotations

from dataclasses import replace

from ...consumers import eviction, registry
from ...consumers.registry import Consumer
from ...errors import InvalidArgument, TransactionTooLarge
from ...messages import run
from ...messages.delivery import age
from ...messages.delivery import lease as lease_records
from ...schema import catalogue, counters
from ...schema.consumers import ConsumerRef
from ...store.binding import fdb
from ...values.content import check_count, check_place
from ...values.model import Delivery, Depth, LeasedMessage, Swept, Verification
from ...values.options import check_name
from ..queue_base import Handle, Transactor
from . import housekeeping

MAX_LISTED = 10_000
"""The most leases of one call."""
_MANY_CLAIMS = "the consumers may hold too many messages: call it with a database"


class Admin:
    """What operators do to one queue; get it from ``Queue.admin``."""

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def pause(self, tr: Transactor, *, by: str = "") -> None:
        """Suspend receiving: the queue looks empty, and waiting consumers keep waiting.

        by: who does it, for those who ask later: a name. A queue that is paused already stays so
        since then, and by whom.

        Messages can still be enqueued, and leases settled. Conflicts with every concurrent
        operation on the queue. Raises ``QueueNotFound``, ``InvalidArgument``.
        """
        name = "" if by == "" else check_name(by, "by")
        self._queue._run(tr, lambda tr: _set_paused(self._queue, tr, True, name))

    def resume(self, tr: Transactor) -> None:
        """End a pause, and wake waiting consumers. Conflicts and errors as ``pause``."""
        self._queue._run(tr, lambda tr: _set_paused(self._queue, tr, False))

    def sweep(self, db: fdb.Database) -> Swept:
        """Run housekeeping now: reclaim expired leases, promote due messages, drop expired ones,
        and remove dead consumers.

        Receivers also do this. A queue without receivers needs an occasional sweep, and only a
        sweep deletes a queue with ``auto_delete``. Spans transactions of up to some hundred
        messages. Raises ``QueueNotFound``.
        """
        return housekeeping.sweep(self._queue, db)

    def evict(
        self,
        tr: Transactor,
        consumer: Consumer | None = None,
    ) -> list[bytes]:
        """Remove a consumer, or all of dead processes (None), up to 100 in a transaction.

        Returns their ids; call it again until it returns none. A dead process is removed from all
        queues of the root, from this one first. Requests of dead consumers leave the line, too; the
        claim of one is its id here. Another consumer is woken in place of each. A removed consumer
        that is alive registers again.

        Their leases end: those of ``consumer`` now, those of a dead process 20 seconds after its
        last sign of life. Conflicts with signs of life of the removed ones, and with extensions and
        settlements of their leases. With a database it spans transactions. With a transaction,
        raises ``TransactionTooLarge`` if it would read more than 5,000 claims. Raises
        ``QueueNotFound``, ``InvalidArgument``.
        """
        if consumer is not None:
            if not isinstance(consumer, Consumer):
                problem = "give one of those that consumers returns"
                raise InvalidArgument(argument="consumer", value=consumer, problem=problem)
            return _evict_one(self._queue, tr, consumer)
        if not isinstance(tr, fdb.Transaction):
            return housekeeping.evict_dead(self._queue, tr, first=True)
        gone, _, leaving = self._queue._run(
            tr, lambda tr: eviction.evict_dead(tr, self._queue._scope(tr))
        )
        if leaving is not None and not gone:
            raise TransactionTooLarge(problem=_MANY_CLAIMS)
        return [each for name, each in gone if name == self._queue.name]

    def leases(
        self,
        tr: Transactor,
        limit: int = 1_000,
        after: bytes | None = None,
    ) -> list[LeasedMessage]:
        """Up to ``limit`` leases: first those of plans, then the others in the order of messages.

        after: the token of the last lease of the previous page.

        With a database it spans transactions of 8 MB; with a transaction it stops at 8 MB. Snapshot
        reads: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        check_count("limit", limit, MAX_LISTED)
        found: list[LeasedMessage] = []
        begin = b""
        if after is not None:
            begin = run.token_key(self._queue._keys, check_place("after", after)) + b"\x00"

        def read(tr: fdb.Transaction) -> tuple[list[LeasedMessage], bytes]:
            return lease_records.listed(tr, self._queue._scope(tr), limit - len(found), begin)

        while True:
            some, begin = self._queue._read(tr, read)
            found += some
            if not begin or len(found) == limit or isinstance(tr, fdb.Transaction):
                return found

    def consumers(self, tr: Transactor) -> list[Consumer]:
        """Registered consumers, such as workers, and those that wait in the line, by descending
        priority. Snapshot reads: no conflicts. Raises ``QueueNotFound``."""
        return self._queue._read(tr, lambda tr: registry.consumers(tr, self._queue._scope(tr)))

    def counters(self, tr: Transactor) -> dict[int, Depth]:
        """The depth of every level that ever had a message. A snapshot read: no conflicts."""

        def count(tr: fdb.Transaction) -> dict[int, Depth]:
            self._queue._options(tr)
            return counters.depths(tr, self._queue._keys)

        return self._queue._read(tr, count)

    def ready_since_ms(self, tr: Transactor) -> int | None:
        """When the oldest of the first messages of the levels was enqueued; None if none is ready.

        By its producer's wall clock, in milliseconds. Two round trips, snapshot reads: no
        conflicts. Raises ``QueueNotFound``.
        """
        return self._queue._read(tr, lambda tr: age.ready_since_ms(tr, self._queue._scope(tr)))

    def delivery(self, tr: Transactor, token: bytes) -> Delivery | None:
        """The delivery that a token names, so that the holder of the token can settle it.

        None if the lease is gone: it expired, or was settled. One round trip,
        and one more for a payload in chunks. Snapshot reads: no conflicts. Raises
        ``InvalidArgument``, ``QueueNotFound``.
        """
        check_place("token", token)

        def read(tr: fdb.Transaction) -> Delivery | None:
            found = lease_records.by_token(tr, self._queue._scope(tr).keys, token)
            return found[0] if found else None

        return self._queue._read(tr, read)

    def verify(self, db: fdb.Database) -> Verification:
        """Check the stored state of the queue; returns every defect, and what could not be checked.

        The queue may be in use. Spans transactions of at most 500 messages or 5 MB each, except for
        what must be read at one version: the scans behind the counters (one level's ready messages,
        all leases, all dead letters), a plan with its leases, and the search for owners of chunks.
        Whatever takes longer than four seconds is listed in ``unchecked``. Each defect existed at
        one version of the database; none results from comparing two.

        Snapshot reads: no conflicts. Raises ``QueueNotFound``.
        """
        from . import verification  # which most programs never need

        return verification.verify(db, self._queue)

    def repair(self, db: fdb.Database) -> Verification:
        """Verify the queue, and repair what needs no guess: counters, expiries, TAIL, next ticks of
        schedules, and orphaned cursors and chunks. Other defects need a person.

        A page to repair is read again with conflicts. Otherwise as ``verify``.
        """
        from . import verification  # which most programs never need

        return verification.verify(db, self._queue, repair=True)


def _evict_one(queue: Handle, tr: Transactor, consumer: Consumer) -> list[bytes]:
    ref = ConsumerRef(consumer.id, consumer.priority, consumer.session, consumer.subscription)
    leaving: eviction.LeavingConsumers | None = None

    def remove(tr: fdb.Transaction) -> eviction.LeavingConsumers | None:
        scope = queue._scope(tr)
        return eviction.evict(tr, scope.keys, leaving or eviction.leaving_now(tr, scope, ref))

    while (leaving := queue._run(tr, remove)) is not None:
        if isinstance(tr, fdb.Transaction):
            raise TransactionTooLarge(problem=_MANY_CLAIMS)
    return [consumer.id]


def _set_paused(queue: Handle, tr: fdb.Transaction, paused: bool, by: str = "") -> None:
    scope = queue._scope(tr)
    if scope.options.paused != paused:
        catalogue.change(tr, scope, replace(scope.options, paused=paused), by)
    if not paused:
        # Consumers went to sleep since the queue looked empty: nothing else would wake them.
        housekeeping.look_again(tr, scope)
