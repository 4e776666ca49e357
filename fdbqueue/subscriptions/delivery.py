"""What happens to the messages that a subscription found and read with conflicts."""

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
    """Lease them for ``seconds``, or the queue's lease time; ``begins`` as in ``lease.Terms``."""
    lasts = scope.options.lease if seconds is None else seconds
    return lease.grant(tr, scope, lease.Terms(lasts, claim, consumer, begins), messages)


@transactional
def remove(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> list[Message]:
    """Remove them for good."""
    # Read before the messages end, which removes their chunks.
    found = load(tr, scope, messages)
    scan.remove(tr, scope.keys, messages)
    transitions.record(tr, scope, DEQUEUE, messages)
    return found


@transactional
def load(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> list[Message]:
    """Leave them in place. One round trip if any payload is in chunks."""
    chunks = payloads.reads(tr, scope.keys, messages)
    return [
        message.envelope.message(message.position) for message in payloads.load(messages, chunks)
    ]
