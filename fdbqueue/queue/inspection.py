"""Inspection of messages, leases, consumers and history: methods of ``Queue``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import InvalidArgument
from ..messages import history as events
from ..messages import listing as waiting
from ..messages import lookup
from ..messages.delivery import scan
from ..schema import counters
from ..store import tasks
from ..store.binding import fdb
from ..values import durations
from ..values.backoff import MAX_DELAY_SECONDS
from ..values.content import check_count, check_place
from ..values.durations import Seconds
from ..values.model import Depth, Event, Message, MessageState
from .queue_base import Handle, Transactor
from .selection import Match, predicate

MAX_LISTED = 10_000
"""The most messages, leases or lines of history of one call."""


def get(queue: Handle, tr: Transactor, message_id: str) -> MessageState | None:
    """Where a message is now; None if it is gone.

    One round trip, or two if the message has moved; up to sixteen more while plans hold messages.
    Snapshot reads: no conflicts. Raises ``InvalidArgument`` if it is not an id,
    ``QueueNotFound``.
    """
    return queue._read(tr, lambda tr: lookup.current(tr, queue._scope(tr), message_id))


def peek(queue: Handle, tr: Transactor, limit: int = 1) -> list[Message]:
    """The first ready messages, left in place. A snapshot read: no conflicts.

    Stops at 8 MB, but always returns at least one message if the queue has any.
    """
    check_count("limit", limit, MAX_LISTED)

    def read(tr: fdb.Transaction) -> list[Message]:
        return [message.opened for message in scan.peek(tr, queue._scope(tr), limit)]

    return queue._read(tr, read)


def messages(
    queue: Handle,
    tr: Transactor,
    state: str = "ready",
    limit: int = 100,
    after: str | None = None,
) -> list[MessageState]:
    """Up to ``limit`` waiting messages, in order.

    state: "ready"; "waiting", by what they wait for; "retrying" or "scheduled", in the order of
        their times.
    after: the id of the last message of the previous page.

    Stops at 8 MB, but always returns at least one message if the queue has any. With a database it
    spans transactions where many of those that come later are in another state. Snapshot reads: no
    conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    _check_state(state)
    check_count("limit", limit, MAX_LISTED)
    begin = b""

    def read(tr: fdb.Transaction) -> tuple[list[MessageState], bytes]:
        scope = queue._scope(tr)
        first = begin or waiting.behind(tr, scope, state, after)
        return waiting.page(tr, scope, state, limit, first)

    while True:
        found, begin = queue._read(tr, read)
        # An empty page says that there are no more: where only others were found, look on behind
        # them.
        if found or not begin:
            return found


def browse(
    queue: Handle,
    db: fdb.Database,
    *,
    levels: Iterable[int] | None = None,
    match: Match = None,
) -> Iterator[Message]:
    """Yield every ready message in the order of delivery, of all levels or of some.

    match: only messages that match: a selector in the syntax of JMS, or a function of the message.

    To continue later where you stopped, use ``subscriptions.open``. Spans transactions of a hundred
    messages, and so does not show one instant: messages taken meanwhile may be missing, and
    arrivals further back appear. Snapshot reads: no conflicts. Raises ``InvalidArgument``,
    ``QueueNotFound``, ``InvalidSelector``.
    """
    from .subscription.subscriptions import browse_levels, check_levels  # which few programs need

    wanted = check_levels(levels, queue._read(db, queue._options).levels)
    found = browse_levels(queue, db, wanted)
    return (
        found if match is None else filter(predicate(match, lambda: queue._clock.now_ms(db)), found)
    )


def depth(queue: Handle, tr: Transactor) -> Depth:
    """How many messages are in each state. A snapshot read: no conflicts."""

    def count(tr: fdb.Transaction) -> Depth:
        queue._options(tr)
        return sum(counters.depths(tr, queue._keys).values(), Depth())

    return queue._read(tr, count)


def watch(queue: Handle, db: fdb.Database, *, every: Seconds = 1.0) -> Iterator[Depth]:
    """Tell when the queue changes: yield its depth, and again whenever it differs, without end.

    every: seconds between two looks, 0.01 or more. Changes between them come as one.

    A look is one snapshot read: no conflicts. Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    if isinstance(db, fdb.Transaction):
        problem = "must be a database: each look is a transaction"
        raise InvalidArgument(argument="db", value=db, problem=problem)
    pause = durations.within(every, 0.01, MAX_DELAY_SECONDS)
    if pause is None:
        problem = "must be 0.01 seconds or more"
        raise InvalidArgument(argument="every", value=every, problem=problem)
    return _changes(queue, db, pause)


def _changes(queue: Handle, db: fdb.Database, pause: float) -> Iterator[Depth]:
    known = None
    while True:
        if (found := depth(queue, db)) != known:
            known = found
            yield found
        tasks.sleep(pause)


def history(
    queue: Handle,
    tr: Transactor,
    limit: int = 1_000,
    after: bytes = b"",
) -> list[Event]:
    """Up to ``limit`` transitions of the queue's messages, oldest first.

    after: the ``stamp`` of the last one of the previous page.

    Needs the option ``history_seconds``; older lines are gone. Snapshot reads: no conflicts. Does
    not work in a transaction that has moved messages of the queue (FoundationDB's error 1036).
    Raises ``InvalidArgument``, ``QueueNotFound``.
    """
    check_count("limit", limit, MAX_LISTED)
    check_place("after", after)
    return queue._read(tr, lambda tr: events.read_events(tr, queue._scope(tr), limit, after))


def _check_state(state: str) -> None:
    if not isinstance(state, str) or state not in waiting.KINDS:
        raise InvalidArgument(
            argument="state", value=state, problem=f"must be one of {', '.join(waiting.KINDS)}"
        )
