"""Last values: of each value of a header, the queue keeps only the newest message.

LATEST leads from a value to the id of its newest message, for as long as that is in the queue. A
new message that becomes ready removes the one before, if that is ready. One that is leased, or
rests after an attempt, is left alone, and marked as replaced: when it would become ready again, it
ends instead.

Two new messages of one value conflict on LATEST. A new one and whoever takes, returns or ends the
one before conflict on that message's READY key, MOVED, or LATEST: ends clear it blindly, by
COMPARE_AND_CLEAR. Messages of different values, and those without one, do not conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from ...schema.envelope import Envelope
from ...schema.records import unpack_id
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.model import HeaderValue, Position
from ...values.states import REPLACE_READY, Transition
from .. import lookup, run, transitions


def value(scope: Scope, envelope: Envelope) -> HeaderValue:
    """The value of which a message may be the last; None if it is of none."""
    header = scope.options.last_value
    return None if header is None else envelope.headers.get(header)


def with_value(scope: Scope, envelope: Envelope) -> Envelope:
    """The envelope of a message that becomes ready for the first time, with its value."""
    return replace(envelope, last_value=value(scope, envelope))


def replace_older(tr: fdb.Transaction, scope: Scope, messages: Collection[StoredMessage]) -> None:
    """Let messages, new and written with all that belongs to them, replace older ones.

    Two round trips, another if an older message has moved.
    """
    keys = scope.keys
    newest: dict[bytes, StoredMessage] = {}
    replaced: list[StoredMessage] = []
    reads: dict[bytes, fdb.Value] = {}
    for message in messages:
        if message.envelope.last_value is None:
            continue
        latest = keys.latest(message.envelope.last_value)
        if latest in newest:
            # Two of one value in one call: the later one wins, though neither can be read yet.
            replaced.append(newest[latest])
        else:
            reads[latest] = tr.get(latest)
        newest[latest] = message
    known = {latest: unpack_id(one) for latest, read in reads.items() if (one := read.value)}
    older = {latest: lookup.reads(tr, keys, known[latest]) for latest in known}
    for latest, issued in older.items():
        found = lookup.find(tr, scope, issued)
        # Found with a conflict: if a consumer takes it meanwhile, one of the two transactions
        # fails.
        if found is not None and isinstance(found.place, Position):
            replaced.append(found.message)
        else:
            # It is in somebody's hands: marked, it ends when it would come back, and is not
            # delivered after the newer one.
            tr[keys.replaced(newest[latest].envelope.last_value, issued.id)] = b""
    run.remove(tr, keys, run.pieces(keys, replaced))
    transitions.record(tr, scope, REPLACE_READY, replaced)
    for latest, message in newest.items():
        tr[latest] = message.id.encode()


def remaining(
    tr: fdb.Transaction, scope: Scope, ended: Transition, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Those of messages about to return to their places that no newer one has replaced; the others
    end by ``ended``. One round trip if any has a value."""
    marks = [
        # With a conflict: a producer that replaces it at this moment must not find it neither ready
        # nor marked.
        tr.get(scope.keys.replaced(each.envelope.last_value, each.id))
        for each in messages
        if each.envelope.last_value is not None
    ]
    if not marks:
        return list(messages)
    marked = iter(marks)
    stay: list[StoredMessage] = []
    gone: list[StoredMessage] = []
    for each in messages:
        replaced = each.envelope.last_value is not None and next(marked).present()
        (gone if replaced else stay).append(each)
    transitions.record(tr, scope, ended, gone)
    return stay
