"""One attempt to receive: take what is there at once, or stand in line."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import InvalidArgument
from ...messages.delivery import head, lease, scan, settle
from ...schema import once
from ...schema.catalogue import Entry
from ...schema.scope import Scope
from ...store.binding import fdb
from ...values.durations import patience
from ...values.model import Delivery
from ...values.options import check_lease, check_name
from ...values.records import record
from .. import line, promotion, relaxed, wakeups
from ..line import Asked, Ticket

MAX_MESSAGES = 10_000
LEAST_BYTES = 200_000
"""What a batch may hold beside what the same transaction sends elsewhere, or settles."""


class Access:
    """What receiving needs of a queue, and what it was like the last time: hints, which only save
    reads.

    crowded: whether there was a line. lined: whether the queue's mode has lines. common: whether
    there is likely to be nothing but ready messages. delays: whether there were delayed ones.
    """

    __slots__ = ("common", "crowded", "delays", "entry", "keys", "lined", "scope")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.keys = entry.keys
        self.scope = entry.scope
        self.crowded = False
        self.lined = True
        self.common = True
        self.delays = False


def asking(max_messages: object, lease: object, consumer: object, wait: object) -> Asked:
    """What a consumer asks for, checked; raises ``InvalidArgument``, ``InvalidOptions`` and
    ``InvalidName``."""
    if type(max_messages) is not int or not 0 < max_messages <= MAX_MESSAGES:
        raise InvalidArgument(
            argument="max_messages", value=max_messages, problem=f"must be 1 to {MAX_MESSAGES:,}"
        )
    patience("wait", wait)
    seconds = None if lease is None else check_lease("lease", lease)
    return Asked(max_messages, seconds, check_name(consumer) if consumer else "")


def take(
    tr: fdb.Transaction, scope: Scope, asked: Asked, claim: bytes, settled: int = 0
) -> list[Delivery]:
    """Lease what is there to the caller, at once. The conflicts are those of the queue's mode.

    settled: leases that the same transaction ends.
    """
    return _take(tr, scope, asked, claim, _look(tr, scope, asked), settled)


def attempt(
    tr: fdb.Transaction,
    access: Access,
    asked: Asked,
    claim: bytes,
    *,
    waits: bool,
    crowded: bool,
    ack: Sequence[Delivery] = (),
) -> list[Delivery] | Ticket:
    """Lease what is there, or stand in line.

    crowded: whether an earlier attempt met a conflict.
    ack: deliveries to acknowledge.
    """
    # Before the options are known, so that all of it is one round trip.
    reads = None
    if waits or access.lined:
        reads = line.reads(tr, access.keys, first=not access.crowded)
    leases = lease.reads(tr, access.keys, ack)
    if leases:
        # What comes with the read version is there as well then.
        leases[-1].until.block_until_ready()
    scope = access.scope(tr)
    if ack:
        settle.done(tr, scope, ack, leases)
    return proceed(tr, access, scope, asked, claim, reads, len(ack), waits=waits, crowded=crowded)


def proceed(
    tr: fdb.Transaction,
    access: Access,
    scope: Scope,
    asked: Asked,
    claim: bytes,
    reads: line.Reads | None,
    settled: int,
    *,
    waits: bool,
    crowded: bool = False,
) -> list[Delivery] | Ticket:
    """As ``attempt``, once the scope is known, and ``settled`` leases are ended.

    reads: the reads of the line, if they have been issued.
    """
    mode = scope.options.contention
    access.lined = mode in ("auto", "staged")
    access.crowded = access.crowded or mode == "staged"
    ready, led = None, None
    if waits or access.lined:
        reads = reads or line.reads(tr, access.keys, first=True)
        if mode != "staged" and not (mode == "auto" and crowded):
            ready = None if access.crowded else _look(tr, scope, asked)
            access.crowded = crowded = line.formed(tr, scope, reads)
        led = reads.led.value
        if mode == "staged" or crowded:
            access.common = False
            return line.join(tr, scope, led, asked, waits)
    ready = ready or _look(tr, scope, asked)
    found = _take(tr, scope, asked, claim, ready, settled)
    access.common = mode in ("auto", "first") and led is None and not ready.overdue
    return found if found or not waits else line.join(tr, scope, led, asked, waits)


def take_closely(
    tr: fdb.Transaction,
    scope: Scope,
    asked: Asked,
    claim: bytes,
    ready: fdb.FDBRange,
    settled: int,
) -> list[Delivery]:
    """As ``take``, where the first messages were read, and nothing has become due."""
    return _take(tr, scope, asked, claim, _Looked(ready, None), settled)


def give_back(db: fdb.Database, access: Access, deliveries: Sequence[Delivery]) -> None:
    """Release deliveries that never reached a consumer."""
    if deliveries:
        once.run(db, access.keys.once, lambda tr: release(tr, access.scope(tr), deliveries))


def release(tr: fdb.Transaction, scope: Scope, deliveries: Sequence[Delivery]) -> None:
    """Release deliveries, and wake consumers for them."""
    waiting = wakeups.reads(tr, scope.keys, len(deliveries))
    settle.release(tr, scope, deliveries, 0.0, None)
    wakeups.wake(tr, scope.keys, waiting)


def _look(tr: fdb.Transaction, scope: Scope, asked: Asked) -> _Looked:
    if scope.options.contention == "relaxed":
        first: fdb.FDBRange | relaxed.Reads = relaxed.reads(tr, scope, asked.max_messages)
    else:
        first = scan.first(tr, scope.keys, asked.max_messages)
    return _Looked(first, promotion.reads(tr, scope))


@record
class _Looked:
    """The reads of an attempt, issued and not awaited."""

    ready: fdb.FDBRange | relaxed.Reads
    due: promotion.Reads | None

    @property
    def overdue(self) -> bool:
        """Whether the versions of leases had passed; they may go on by the wall clock."""
        return self.due is not None and bool(self.due.expired.expired.to_list())


_NOTHING = promotion.Promoted(0, 0, 0)


def _take(
    tr: fdb.Transaction, scope: Scope, asked: Asked, claim: bytes, reads: _Looked, settled: int
) -> list[Delivery]:
    if scope.options.paused:
        return []
    promoted = _NOTHING
    if reads.due is not None:
        promoted = promotion.promote_all(tr, scope, reads.due)
    beside = promoted.excess + settled * scope.keys.lease_bytes
    room = max(LEAST_BYTES, scan.BATCH_BYTES - beside)
    if promoted.ready:
        reads = _look(tr, scope, asked)
    if isinstance(reads.ready, relaxed.Reads):
        messages = head.alive(
            tr,
            scope,
            relaxed.pick(tr, scope, reads.ready, room),
            lambda: relaxed.pick(tr, scope, relaxed.reads(tr, scope, asked.max_messages), room),
        )
    else:
        found = scan.conflicting(tr, scope.keys, reads.ready, room)
        messages = head.first(tr, scope, asked.max_messages, found)
    messages = head.together(messages, suspects=asked.suspects)
    seconds = scope.options.lease if asked.seconds is None else asked.seconds
    terms = lease.Terms(seconds, claim, asked.consumer, asked.begins)
    return lease.grant(tr, scope, terms, messages)
