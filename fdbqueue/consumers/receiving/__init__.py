"""Receiving: the attempt to take messages at once, and standing in line for them.

What waits lives here, outside of the storage operations.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...schema import once
from ...store.binding import fdb
from ...values.model import Delivery
from .. import line
from ..line import Asked, Ticket
from .attempt import Access, asking, attempt, take
from .waiting import collect, withdraw

__all__ = ["Access", "asking", "collect", "receive", "take", "withdraw"]


def receive(
    db: fdb.Database,
    access: Access,
    asked: Asked,
    wait: float,
    ack: Sequence[Delivery] = (),
) -> list[Delivery]:
    """Lease what is there, or comes within ``wait`` seconds.

    ack: deliveries to acknowledge in the transaction of the first attempt.
    """
    deadline = time.monotonic() + wait
    while True:
        outcome = _start(db, access, asked, deadline > time.monotonic(), ack)
        if isinstance(outcome, list):
            return outcome
        left = max(0.0, deadline - time.monotonic()) if outcome.waits else None
        found = collect(db, access, outcome, left)
        if found is not None:
            return found
        ack = ()


def _start(
    db: fdb.Database,
    access: Access,
    asked: Asked,
    waits: bool,
    ack: Sequence[Delivery],
) -> list[Delivery] | Ticket:
    attempts = 0

    def body(tr: fdb.Transaction) -> list[Delivery] | Ticket:
        nonlocal attempts
        attempts += 1
        claim, crowded = line.new_claim(), attempts > 1
        return attempt(tr, access, asked, claim, waits=waits, crowded=crowded, ack=ack)

    def wrote(outcome: list[Delivery] | Ticket) -> bool:
        return bool(outcome) or bool(ack)

    return once.run(db, access.keys.once, body, wrote=wrote)
