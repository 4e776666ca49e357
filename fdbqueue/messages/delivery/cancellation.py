"""Cancelling leased messages: they are never delivered again.

The consumer has the message, and only that knows how far it has come. So its lease stays, and says
that the message was cancelled. An acknowledgement still ends it as done, since its effects commit
with that. Any other end of the lease, its expiry included, ends the message as cancelled.

It stands for no work any more, so it gives its unique key up at once: what an enqueue asks for
after the cancellation must not be taken for what was cancelled.
"""

from __future__ import annotations

from dataclasses import replace

from ...schema import catalogue
from ...schema.codec.envelopes import pack_envelope
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values.states import REQUEST_CANCEL
from .. import history, lookup
from . import lease_rows


@transactional
def request(tr: fdb.Transaction, scope: Scope, reads: lookup.Reads) -> bool:
    """Cancel a leased message; returns whether that was so, and it had not been cancelled.

    reads: those of ``lookup.find``, which found nothing. One round trip. Conflicts with the
    settlement, extension and expiry of the lease.
    """
    held = lookup.held(tr, scope, reads)
    if held is None:
        return False
    read, lease, message = held
    envelope = message.envelope
    if envelope.cancelled or envelope.opaque is not None:
        return False
    if envelope.unique is not None:
        del tr[scope.keys.unique(envelope.unique)]
    packed = pack_envelope(replace(envelope, cancelled=True, unique=None))
    lease_rows.rewrite(tr, scope.keys, read, lease._replace(envelope=packed, plain=False))
    if scope.options.history_seconds is not None:
        history.record(tr, scope, REQUEST_CANCEL, [replace(message, consumer="")])
    catalogue.note(tr, scope, "cancels")
    return True
