"""Cancelling leased messages: they are never delivered again.

The consumer has the message, and only that knows how far it has come. So its lease stays, and says
that the message was cancelled. An acknowledgement still ends it as done, since its effects commit
with that. Any other end of the lease, its expiry included, ends the message as cancelled.

It stands for no work any more, so it gives its unique key up at once: what an enqueue asks for
after the cancellation must not be taken for what was cancelled.

Each cancellation also adds to one key of the queue, CANCELS. A worker that holds messages watches
it, and looks which of them were cancelled when it changes. Who extends a lease is told anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...schema import catalogue
from ...schema.change_counters import ONE
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values.model import Delivery
from ...values.states import REQUEST_CANCEL
from .. import history, lookup, run


@transactional
def request(tr: fdb.Transaction, scope: Scope, reads: lookup.IdReads) -> bool:
    """Cancel a leased message; returns whether that was so, and it had not been cancelled.

    reads: those of ``lookup.find``, which found nothing. One round trip. Conflicts with the
    settlement, extension and expiry of the lease. Adds to CANCELS blindly.
    """
    held = lookup.held(tr, scope, reads)
    if held is None:
        return False
    one, message = held
    envelope = message.envelope
    if envelope.cancelled or not envelope.readable:
        return False
    if envelope.unique is not None:
        del tr[scope.keys.unique(envelope.unique)]
    packed = replace(envelope, cancelled=True, unique=None).pack()
    # Not plain any more: a lease that ends plain would be counted as done without opening the
    # envelope.
    run.rewrite(tr, one, replace(one.lease, envelope=packed, plain=False))
    # Workers watch this one key, instead of reading all their leases every few seconds.
    tr.add(scope.keys.cancels, ONE)
    history.record(tr, scope, REQUEST_CANCEL, [replace(message, consumer="")])
    catalogue.note_use(tr, scope, "cancels")
    return True


@transactional
def requested(
    tr: fdb.Transaction, scope: Scope, deliveries: Sequence[Delivery]
) -> frozenset[bytes]:
    """The tokens of those deliveries whose messages were cancelled, and whose leases still hold.

    One round trip, none in a queue that has never cancelled a lease. Snapshot reads, no conflicts.
    """
    if "cancels" not in scope.noted:
        return frozenset()
    tokens = [each.token for each in deliveries]
    # At snapshot isolation: looking must not abort the handler's acknowledgement.
    found = run.Leases(tr, scope.keys, tokens, looks=True)
    ones = ((token, found.get(n)) for n, token in enumerate(tokens))
    return frozenset(token for token, one in ones if one is not None and one.cancelled)
