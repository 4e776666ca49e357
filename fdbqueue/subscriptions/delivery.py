"""What is done with the messages that a subscription finds, which were read with conflicts."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages import payloads, transitions
from ..messages.delivery import lease, scan
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Delivery, Message
from ..values.states import DEQUEUE


@transactional
def grant(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[StoredMessage],
    *,
    seconds: float | None,
    claim: bytes,
    consumer: str,
    begins: bool = True,
) -> list[Delivery]:
    """Lease them, for ``seconds`` or the queue's own time; ``begins`` as in ``lease.Terms``."""
    lasts = scope.options.lease if seconds is None else seconds
    return lease.grant(tr, scope, lease.Terms(lasts, claim, consumer, begins), messages)


@transactional
def remove(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> list[Message]:
    """Remove them for good."""
    # Looked at before the end of the messages removes their chunks.
    found = look(tr, scope, messages)
    scan.remove(tr, scope.keys, messages)
    transitions.record(tr, scope, DEQUEUE, messages)
    return found


@transactional
def look(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> list[Message]:
    """Leave them where they are. One round trip for payloads in chunks, if there are any."""
    chunks = payloads.reads(tr, scope.keys, messages)
    return [
        message.envelope.message(message.position) for message in payloads.load(messages, chunks)
    ]
