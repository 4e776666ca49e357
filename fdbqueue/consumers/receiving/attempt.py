"""One attempt to receive: take what is there at once, or stand in line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import InvalidArgument
from ...messages.delivery import head, lease, scan, settle
from ...schema import once
from ...schema.keys import QueueKeys
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
    """What receiving needs of a queue: its keys, and its options as a transaction sees them."""

    def __init__(self, keys: QueueKeys, scope: Callable[[fdb.Transaction], Scope]) -> None:
        self.keys = keys
        self.scope = scope
        self.crowded = False
        """Whether there was a line the last time; a hint that only saves a read."""
        self.lined = True
        """Whether the queue's mode has lines; a hint that only saves a read."""


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
    looked = None
    if waits or access.lined:
        looked = line.look(tr, access.keys, first=not access.crowded)
    leases = lease.look(tr, access.keys, ack)
    if leases:
        # What comes with the read version is there as well then.
        leases[-1].until.block_until_ready()
    scope = access.scope(tr)
    if ack:
        settle.done(tr, scope, ack, leases)
    mode = scope.options.contention
    access.lined = mode in ("auto", "staged")
    access.crowded = access.crowded or mode == "staged"
    if not waits and not access.lined:
        return take(tr, scope, asked, claim, len(ack))
    looked = looked or line.look(tr, access.keys, first=True)
    if mode == "staged" or (mode == "auto" and crowded):
        return line.join(tr, scope, looked, asked, waits)
    ready = None if access.crowded else _look(tr, scope, asked)
    access.crowded = line.formed(tr, scope, looked)
    if access.crowded:
        return line.join(tr, scope, looked, asked, waits)
    found = _take(tr, scope, asked, claim, ready or _look(tr, scope, asked), len(ack))
    return found if found or not waits else line.join(tr, scope, looked, asked, waits)


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
        first: fdb.FDBRange | relaxed.Looked = relaxed.look(tr, scope, asked.max_messages)
    else:
        first = scan.first(tr, scope.keys, asked.max_messages)
    return _Looked(first, promotion.look(tr, scope))


@record
class _Looked:
    """The reads of an attempt, issued and not awaited."""

    ready: fdb.FDBRange | relaxed.Looked
    due: promotion.Looked


def _take(
    tr: fdb.Transaction, scope: Scope, asked: Asked, claim: bytes, looked: _Looked, settled: int
) -> list[Delivery]:
    if scope.options.paused:
        return []
    promoted = promotion.promote_all(tr, scope, looked.due)
    beside = promoted.excess + settled * scan.overhead(scope.keys)
    room = max(LEAST_BYTES, scan.BATCH_BYTES - beside)
    if promoted.ready:
        looked = _look(tr, scope, asked)
    if isinstance(looked.ready, relaxed.Looked):
        messages = head.alive(
            tr,
            scope,
            relaxed.pick(tr, scope, looked.ready, room),
            lambda: relaxed.pick(tr, scope, relaxed.look(tr, scope, asked.max_messages), room),
        )
    else:
        found = scan.conflicting(tr, scope.keys, looked.ready, room)
        messages = head.first(tr, scope, asked.max_messages, found)
    messages = head.together(messages, suspects=asked.suspects)
    seconds = scope.options.lease if asked.seconds is None else asked.seconds
    terms = lease.Terms(seconds, claim, asked.consumer, asked.begins)
    return lease.grant(tr, scope, terms, messages)
