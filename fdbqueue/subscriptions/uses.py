"""What is done with the messages that a subscription finds, which were read with conflicts."""

from __future__ import annotations

from collections.abc import Sequence

from ..binding import fdb
from ..model import Delivery, Message
from ..queue import dequeue, lease, life, payloads
from ..queue.scope import Scope, Standing
from ..states import DEQUEUE


@fdb.transactional
def grant(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[Standing],
    *,
    seconds: float | None,
    claim: bytes,
    consumer: str,
    begins: bool = True,
) -> list[Delivery]:
    """Lease them, for ``seconds`` or the queue's own time; ``begins`` as in ``lease.Terms``."""
    lasts = scope.options.lease if seconds is None else seconds
    return lease.grant(tr, scope, lease.Terms(lasts, claim, consumer, begins), messages)


@fdb.transactional
def remove(tr: fdb.Transaction, scope: Scope, messages: Sequence[Standing]) -> list[Message]:
    """Remove them for good."""
    # Looked at before the end of the messages removes their chunks.
    found = look(tr, scope, messages)
    dequeue.remove(tr, scope.keys, messages)
    life.moved(tr, scope, DEQUEUE, messages)
    return found


@fdb.transactional
def look(tr: fdb.Transaction, scope: Scope, messages: Sequence[Standing]) -> list[Message]:
    """Leave them where they are. One round trip for payloads in chunks, if there are any."""
    chunks = payloads.look(tr, scope.keys, messages)
    return [
        message.envelope.message(message.position) for message in payloads.load(messages, chunks)
    ]
