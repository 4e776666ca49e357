"""Receiving: take messages at once, or through the line if the queue is crowded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from ...messages.run import Held
from ...schema.consumers import Request
from ...store import tasks, world
from ...store.binding import fdb
from ...values.model import Delivery
from ..line import Ticket
from . import gathering, shared_request
from .access import Access, Outcome, ReceiveCall
from .try_receive import ask, attempt
from .waiting import collect


def receive(
    db: fdb.Database,
    access: Access,
    request: Request,
    wait: float,
    ack: Sequence[Held] = (),
    *,
    alone: bool = False,
) -> Sequence[Delivery]:
    """Lease what is ready, or becomes ready within ``wait`` seconds.

    ack: deliveries to acknowledge in the transaction of the first attempt.
    alone: whether a task that waits stands in line by itself.
    """
    if wait and request.max_messages == 1 and not alone and (task := tasks.current.get()):
        if ack and (answer := receive(db, access, request, 0.0, ack)):
            return answer
        again = partial(receive, db, access, request, alone=True)
        return shared_request.receive(task, db, access, request, wait, again, asked=bool(ack))
    deadline = world.monotonic() + wait if wait else 0.0
    if wait:
        request = replace(request, waits=True)
    while True:
        settles, ack = ack, ()
        if request.waits and deadline <= world.monotonic():
            # Its time is over, but it asks once more: the answer "nothing" must be one of the
            # store.
            request = replace(request, waits=False)
        outcome: Outcome
        another = True
        try:
            with access.mutex:
                another, access.taken = access.taken, True
            if another:
                outcome = gathering.ask(access, ReceiveCall(db, request, settles))
            else:
                (outcome,) = ask(db, access, [request], settles) or [None]
        finally:
            if not another:
                access.taken = False
                if access.calls:
                    gathering.pass_on(access)
        found: Sequence[Delivery] | None
        if type(outcome) is Ticket:
            left = max(0.0, deadline - world.monotonic()) if request.waits else None
            found = collect(db, access, outcome, left)
        else:
            found = outcome
        if found is not None:
            access.returned = world.monotonic()
            return found


def receive_in(
    tr: fdb.Transaction, access: Access, request: Request, ack: Sequence[Held] = ()
) -> Sequence[Delivery]:
    """Lease what is ready in the caller's transaction, which joins no line."""
    (found,) = attempt(tr, access, [request], ack, joins=False)
    assert found is not None
    assert not isinstance(found, Ticket)
    return found
