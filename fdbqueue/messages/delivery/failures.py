"""Failed attempts: what each has left, for as long as its message is in the queue.

FAILURE has the newest of a message, by its id and a number. The envelope has the last number, so
who has none costs nothing. They are written as an attempt fails, and with them a consumer that died
of the message. Redelivery, death and redrive leave them where they are, whatever brings the message
into another queue takes them along, and whatever ends it removes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from ...errors import CorruptData
from ...schema.codec import pack
from ...schema.envelope import KEPT_FAILURES, MAX_ERROR_CHARACTERS
from ...schema.keys import QueueKeys
from ...schema.records import unpack_failure
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.model import Failure
from ...values.states import Transition
from ...values.text import shortened

MOST_BYTES = 1_000_000
"""How much one transaction writes. Of many that fail at once, the tracebacks are cut, and those
that do not fit have only their last errors; of many that die into another queue at once, the oldest
attempts stay behind."""


class Failed(Struct, frozen=True):
    """How an attempt has failed: its error, how many seconds it took (None: since the message was
    taken), and the traceback if there is one."""

    error: str
    seconds: float | None = None
    traceback: str = ""


def write(
    tr: fdb.Transaction, scope: Scope, failed: Sequence[tuple[StoredMessage, Failed]]
) -> None:
    """Write what the last attempts of messages have left. Their envelopes count them already.
    Writes blindly."""
    if not failed:
        return
    keys, now_ms, room, share = scope.keys, scope.now_ms(tr), MOST_BYTES, MOST_BYTES // len(failed)
    for message, how in failed:
        seconds = how.seconds
        started_ms = message.since_ms if seconds is None else now_ms - int(seconds * 1000)
        error = how.error[:MAX_ERROR_CHARACTERS]
        # An equal share for each: a thousand that fail together must still fit, or none could be
        # released.
        traceback = shortened(how.traceback, share)
        row = pack(Failure(started_ms, now_ms, message.consumer, error, traceback))
        room -= len(row)
        if room < 0:
            return
        number = message.envelope.failures
        tr[keys.failure(message.id, number)] = row
        if number > KEPT_FAILURES:
            # Blind, by its number: the ones before went the same way, so no more than eight are
            # ever there.
            del tr[keys.failure(message.id, number - KEPT_FAILURES)]


def forget(tr: fdb.Transaction, keys: QueueKeys, message: StoredMessage) -> None:
    """Remove the failed attempts of a message. Writes blindly."""
    if message.envelope.failures:
        every = keys.failure.under(message.id)
        tr.clear_range(every.start, every.stop)


def forget_ended(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Remove those of messages that end. Writes blindly."""
    for message in messages if transition.ends else ():
        forget(tr, scope.keys, message)


def reads(
    tr: fdb.Transaction, keys: QueueKeys, messages: Sequence[StoredMessage]
) -> list[fdb.FDBRange | None]:
    """Issue snapshot reads of what messages have, the newest first; None for those without. Only
    who has the lease of a message writes it."""
    found: list[fdb.FDBRange | None] = []
    for message in messages:
        every = keys.failure.under(message.id)
        found.append(
            tr.snapshot.get_range(every.start, every.stop, limit=KEPT_FAILURES, reverse=True)
            if message.envelope.failures
            else None
        )
    return found


def opened(read: fdb.FDBRange | None) -> tuple[Failure, ...]:
    """The failed attempts, the oldest first."""
    found: list[Failure] = []
    for kv in read or ():
        with suppress(CorruptData):  # ``verify`` reports it.
            found.insert(0, unpack_failure(kv.value))
    return tuple(found)


def packed(found: Sequence[fdb.FDBRange | None]) -> list[list[bytes]]:
    """What goes along with messages into another queue: of each the newest that fit, the oldest
    first."""
    along: list[list[bytes]] = [[] for _ in found]
    stored = [[kv.value for kv in read or ()] for read in found]
    room = MOST_BYTES
    # The newest of all messages first, then the second newest: where room ends, each has kept about
    # as many.
    for n in range(KEPT_FAILURES):
        for rows, some in zip(along, stored, strict=True):
            if n < len(some):
                room -= len(some[n])
                if room < 0:
                    return along
                rows.insert(0, some[n])
    return along


def bring(tr: fdb.Transaction, keys: QueueKeys, message_id: str, rows: Sequence[bytes]) -> None:
    """Give a message that comes from another queue what it had there, as ``packed`` returns it. Its
    envelope counts them already. Writes blindly."""
    for number, row in enumerate(rows, 1):
        tr[keys.failure(message_id, number)] = row
