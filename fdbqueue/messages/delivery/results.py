"""Results: what is kept of messages that have ended, for a time, if their producers asked for it.

RESULT has how a message ended, by its id. RESULT_END has the ids in the order in which that time
is over, for the sweep. A message that dies, is redriven and done writes a second one, so an entry
of RESULT_END may be older than what RESULT has: the sweep goes by that.
"""

from __future__ import annotations

from ...errors import CorruptData
from ...schema.records import Kept
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.states import ENDS, FORWARDS, State, Transition

MAX_SWEPT = 500
"""The most results that one step of a sweep removes."""


def note(tr: fdb.Transaction, scope: Scope, transition: Transition, message: StoredMessage) -> None:
    """Keep how a message has ended, or died, if its producer asked for it. Writes blindly."""
    keep_ms = message.envelope.keep_result_ms
    if keep_ms is None or not (transition.target in ENDS or transition.target is State.DEAD):
        return
    state, reason = transition.target, ""
    if transition in FORWARDS:
        state = State.DEAD
    if state is State.DEAD:
        reason = message.envelope.last_error or ""
    put(tr, scope, message.id, Kept(state, scope.now_ms(tr) + keep_ms, reason=reason))


def put(tr: fdb.Transaction, scope: Scope, message_id: str, kept: Kept) -> None:
    """Keep how a message has ended, in place of what was kept before. Writes blindly."""
    tr[scope.keys.result(message_id)] = kept.pack()
    tr[scope.keys.result_end(kept.until_ms, message_id)] = b""


def forget(tr: fdb.Transaction, scope: Scope, message: StoredMessage) -> None:
    """Forget how a message ended that is alive again. Writes blindly."""
    if message.envelope.keep_result_ms is not None:
        del tr[scope.keys.result(message.id)]


@transactional
def sweep(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """Remove results whose time is over, a step at a time.

    begin: the key to continue from; empty for the first step. Returns how many were removed, and
    the key to continue from, empty at the end. Two round trips. Conflicts with whatever changes
    these results.
    """
    keys, now_ms = scope.keys, scope.now_ms(tr)
    over = keys.result_end.before(now_ms + 1)
    mode = fdb.StreamingMode.exact
    ends = tr.snapshot.get_range(
        max(begin, over.start), over.stop, limit=MAX_SWEPT, streaming_mode=mode
    ).to_list()
    ids = [keys.result_end.parse(kv.key)[1] for kv in ends]
    stored = [tr.get(keys.result(each)) for each in ids]
    for end, message_id, value in zip(ends, ids, stored, strict=True):
        try:
            if value.present() and Kept.unpack(value.value).until_ms <= now_ms:
                del tr[keys.result(message_id)]
        except CorruptData:
            continue  # ``verify`` reports it.
        del tr[end.key]
    return len(ends), ends[-1].key + b"\x00" if len(ends) == MAX_SWEPT else b""
