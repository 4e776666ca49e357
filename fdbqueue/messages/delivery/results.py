"""Results: what is kept of messages that have ended, for a time, if their producers asked for it;
and for a day where those went that are in another queue now.

RESULT has how a message ended, by its id. An entry of the agenda has when that time is over. A
message that dies, is redriven and done writes a second one, so an entry may be older than what
RESULT has: that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...errors import CorruptData
from ...schema import due
from ...schema.due import Entry
from ...schema.keys import What
from ...schema.records import Kept
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb
from ...values.states import End, State, Transition
from ..transaction_budget import Done

WHERE_MS = 24 * 3_600_000
"""How long it is known where a message went."""


def keep_ends(
    tr: fdb.Transaction, scope: Scope, transition: Transition, messages: Sequence[StoredMessage]
) -> None:
    """Keep how messages have ended, or died, whose producers asked for it. Writes blindly."""
    state = State.DEAD if transition.end is End.FORWARD else transition.target
    for message in messages if transition.leaves else ():
        keep_ms = message.envelope.keep_result_ms
        if keep_ms is not None:
            reason = message.envelope.last_error or "" if state is State.DEAD else ""
            kept = Kept(state, scope.now_ms(tr) + keep_ms, reason=reason)
            put(tr, scope, message.id, kept)


def keep_where(
    tr: fdb.Transaction,
    scope: Scope,
    state: State,
    messages: Sequence[StoredMessage],
    queue: str,
    ids: Sequence[str],
) -> None:
    """Keep where messages went, which have left as they died, or otherwise: the other queue, and
    their ids there. Writes blindly."""
    for message, moved in zip(messages, ids, strict=True):
        envelope = message.envelope
        until_ms = scope.now_ms(tr) + max(WHERE_MS, envelope.keep_result_ms or 0)
        reason = envelope.last_error or "" if state is State.DEAD else ""
        put(tr, scope, message.id, Kept(state, until_ms, reason=reason, queue=queue, id=moved))


def put(tr: fdb.Transaction, scope: Scope, message_id: str, kept: Kept) -> None:
    """Keep how a message has ended, in place of what was kept before. Writes blindly."""
    tr[scope.keys.result(message_id)] = kept.pack()
    # An earlier entry stays, and finds a result that is kept for longer: it is not worth a read to
    # remove it here.
    due.tidy(tr, scope.keys, kept.until_ms, What.RESULT, message_id)


def forget(tr: fdb.Transaction, scope: Scope, message: StoredMessage) -> None:
    """Forget how a message ended that is alive again. Writes blindly."""
    if message.envelope.keep_result_ms is not None:
        del tr[scope.keys.result(message.id)]


def forget_over(tr: fdb.Transaction, scope: Scope, entries: Sequence[Entry], room: int) -> Done:
    """Remove results whose time is over, by entries of the agenda. One round trip; conflicts with
    whatever changes them."""
    keys, now_ms = scope.keys, scope.now_ms(tr)
    message_ids = [str(each.name) for each in entries]
    # With a conflict: a result that is written anew meanwhile must not be removed by its old entry.
    stored = [tr.get(keys.result(each)) for each in message_ids]
    for message_id, value in zip(message_ids, stored, strict=True):
        with suppress(CorruptData):  # ``verify`` reports it.
            if value.present() and Kept.unpack(value.value).until_ms <= now_ms:
                del tr[keys.result(message_id)]
    return Done(handled=len(entries))
