"""The line of a queue, as ``Queue.line`` offers it: to wait for messages in steps."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from ..consumers import line, receiving
from ..consumers.line import Ticket
from ..errors import InvalidArgument
from ..schema.consumers import Request
from ..store.binding import fdb
from ..values.content import check_flag
from ..values.durations import Seconds, patience
from ..values.model import Delivery
from .admin.housekeeping import past_backlog
from .queue_base import Handle, Transactor


class Line:
    """The line of one queue; get it from ``Queue.line``."""

    def __init__(self, queue: Handle) -> None:
        self._queue = queue

    def request(
        self,
        tr: Transactor,
        *,
        max_messages: int = 1,
        lease: Seconds | None = None,
        wait: bool = True,
        consumer: str = "",
    ) -> Ticket:
        """Stand in line for messages, in the caller's transaction; ``collect`` the answer.

        The effect of a message, its acknowledgement and the request for the next one are then one
        commit. Collect soon: the others in line may wait for the caller, and after ten seconds its
        request may be taken for that of a dead consumer.

        wait: whether to stay in line while the queue is empty, or to be told so.

        One round trip, all reads at snapshot isolation but that of the leader: conflicts only
        with a change of the leader. If the caller's own retry loop repeats it after an unknown
        result, the first request may be answered too; the lease of that answer expires. Raises
        ``QueueNotFound``, ``InvalidArgument``, ``InvalidOptions``.
        """
        request = receiving.checked_request(max_messages, lease, consumer, 0)
        return _join(self._queue, tr, replace(request, waits=check_flag("wait", wait)))

    def collect(
        self,
        db: fdb.Database,
        ticket: Ticket,
        *,
        wait: Seconds | None = None,
    ) -> list[Delivery]:
        """The messages that a request was given; none if the queue is empty.

        wait: seconds to wait for them; None for as long as it takes. The request has left the
            line when this returns or raises.

        Spans transactions; while it leads the line it also serves the others. Repeats a request
        that was taken for dead. Raises ``InvalidArgument``, ``QueueNotFound``.
        """
        _check(ticket)
        wait = None if wait is None else patience("wait", wait)
        found = past_backlog(
            self._queue, db, lambda: receiving.collect(db, self._queue._access, ticket, wait)
        )
        if found is not None:
            return list(found)
        if ticket.request.waits and wait is None:
            return self.collect(db, _join(self._queue, db, ticket.request))
        again = partial(receiving.receive, db, self._queue._access, ticket.request, wait or 0.0)
        return list(past_backlog(self._queue, db, again))

    def withdraw(self, tr: Transactor, ticket: Ticket) -> list[Delivery]:
        """Leave the line. Returns what the request was given before; after that it is answered no
        more.

        One round trip; conflicts with the fulfilment of the request. Raises ``InvalidArgument``,
        ``QueueNotFound``.
        """
        _check(ticket)
        return list(receiving.withdraw(tr, self._queue._access, ticket))


def _check(ticket: object) -> None:
    if not isinstance(ticket, Ticket):
        problem = "give the Ticket that request returned"
        raise InvalidArgument(argument="ticket", value=ticket, problem=problem)


def _join(queue: Handle, tr: Transactor, request: Request) -> Ticket:
    def join(tr: fdb.Transaction) -> Ticket:
        keys, scope = queue._keys.line, queue._scope(tr)
        led = tr.snapshot.get(keys.led)
        asked = line.asking(tr, scope, line.claimed([request]))
        (ticket,) = line.join(tr, scope, keys, led.value, asked)
        return ticket

    return queue._run(tr, join)
