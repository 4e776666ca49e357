"""Receiving: take messages at once, or through the line if the queue is crowded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from ...messages.run import Held
from ...schema.catalogue import CachedScope
from ...schema.consumers import Request
from ...schema.keys import OnceKeys
from ...store import tasks, world
from ...store.binding import fdb
from ...values.model import Delivery
from ..line import Ticket
from ..supply import Supply, unfinished
from . import shared_request
from .access import Access, Accesses, Asked
from .try_receive import ask_all, attempt
from .waiting import collect, undo


def accesses(
    entry: CachedScope, supply: Supply | None = None, once: OnceKeys | None = None
) -> Accesses:
    """What the threads of a process share to receive from a queue, or from a subscription."""
    return Accesses(partial(Access, ask_all, undo, entry, supply, once))


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
        asked: Asked = [request], settles
        (outcome,) = access.combiner.ask(db, asked, request.max_messages)
        found: Sequence[Delivery] | None
        if type(outcome) is Ticket:
            left = max(0.0, deadline - world.monotonic()) if request.waits else None
            found = collect(db, access, outcome, left)
        else:
            found = outcome
        if found is not None:
            access.hints.returned = world.monotonic()
            return found


def receive_in(
    tr: fdb.Transaction, access: Access, request: Request, ack: Sequence[Held] = ()
) -> Sequence[Delivery]:
    """Lease what is ready in the caller's transaction, which joins no line. Raises
    ``TransactionTooLarge`` for a selector if it does not come to the end."""
    (found,) = attempt(tr, access, [request], ack, joins=False)
    if found is None:
        raise unfinished()
    assert not isinstance(found, Ticket)
    return found
