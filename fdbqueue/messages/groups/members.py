"""The members of groups: they join one by one, and their ends are counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...schema import change_counters, due, once
from ...schema.codec import pack_counters
from ...schema.keys import HASHES, WORK, What
from ...schema.records import GroupRecord, Tally
from ...schema.scope import Scope, StoredMessage
from ...store import world
from ...store.binding import fdb
from ...values.states import State, Transition
from . import callbacks

_DIES, _LIVES = Tally(dead=1), Tally(dead=-1)


def add(tr: fdb.Transaction, scope: Scope, messages: Iterable[StoredMessage]) -> None:
    """Let new messages join their groups, as they are written: before anything can end one. Writes
    blindly."""
    for each in messages:
        if each.envelope.group is not None:
            # A row for each, not a number: two ends conflict only if they rely on the same row,
            # while a number would be written by all.
            tr[scope.keys.member(each.envelope.group, each.id)] = b""


def count(tr: fdb.Transaction, scope: Scope, name: str, record: GroupRecord) -> None:
    """Keep the record of a group, which counts the messages that have joined. Writes blindly."""
    keys = scope.keys
    if record.then_on == "settled":
        tr[keys.settles(name)] = b""
    if record.sealed:
        del tr[keys.seal(name)]
    else:
        tr[keys.seal(name)] = b""
    tr[keys.group(name)] = record.pack()


class _MemberReads(NamedTuple):
    """The reads for members of one group, issued and not awaited.

    own: of their rows. left: rows of as many others, from a random point on and from the begin.
    settles: whether those that die leave it; None where nothing depends on that.
    """

    own: list[fdb.Value]
    left: tuple[fdb.FDBRange, ...]
    settles: fdb.Value | None


MAX_ENDED = 20
"""The most groups that the ends of messages end in one transaction."""


def count_ends(
    tr: fdb.Transaction, scope: Scope, transition: Transition, members: Iterable[StoredMessage]
) -> list[tuple[Scope, StoredMessage]]:
    """Count the ends of members of groups, and their deaths and redrives.

    Returns the callbacks of groups of which these were the last, put among the delayed messages of
    their queues. One round trip, and up to two for a callback. Conflicts with the end of one other
    member, with a chance of one in how many are left, and with the removal of the group. Raises
    ``OwnWritesUnseen``.

    Groups for whose callbacks the transaction has no room are left to whoever looks for messages
    next.
    """
    if not transition.leaves and transition.source is not State.DEAD:
        return []
    # The rows of members that this transaction ended before must be gone from what it reads, or the
    # last would not be the last.
    once.insist(tr, scope.keys)
    of: defaultdict[str, list[str]] = defaultdict(list)
    for each in members:
        of[each.envelope.group or ""].append(each.id)
    keys = scope.keys
    issued = {name: _read(tr, scope, name, ids, transition) for name, ids in of.items()}
    found: list[tuple[Scope, StoredMessage]] = []
    attempt, ended = once.attempt(tr), 0
    for name, (own, left, settles) in issued.items():
        leaves, counted = transition.ends, _counted(transition)
        if settles is not None:
            leaves = settles.present()
        there = [n for n, row in zip(of[name], own, strict=True) if row.present()]
        for message_id in there:
            # Spread over shards: the counters of a large group would otherwise be one hot key.
            tr.add(keys.tally(name, message_id), pack_counters(counted))
            if leaves:
                del tr[keys.member(name, message_id)]
        if there and leaves and not _rely_on_another(tr, scope, name, of[name], left):
            if ended < MAX_ENDED and attempt.let_out_bytes > 0:
                found += callbacks.end(tr, scope, name)
                ended += 1
            else:
                due.add(tr, keys, keys.entry(WORK, scope.now_ms(tr), What.GROUP, name))
                # Sleepers see no message come in, and must look at the agenda.
                change_counters.ring(tr, scope)
    return found


def _read(
    tr: fdb.Transaction,
    scope: Scope,
    name: str,
    message_ids: Sequence[str],
    transition: Transition,
) -> _MemberReads:
    keys, dies = scope.keys, transition.target is State.DEAD
    own = [tr.get(keys.member(name, message_id)) for message_id in message_ids]
    left: tuple[fdb.FDBRange, ...] = ()
    if transition.leaves:
        every, point = (
            keys.group_left.under(name, 0),
            # From a random point on: all ends from one side would rely on the same first row, and
            # each would abort the next.
            keys.group_left.begin(name, 0, world.random.randrange(HASHES)),
        )
        # One more than those that end here: so at least one is another's, if any is left.
        most = len(message_ids) + 1
        left = (
            tr.snapshot.get_range(point, every.stop, limit=most),
            tr.snapshot.get_range(every.start, point, limit=most),
        )
    return _MemberReads(own, left, tr.snapshot.get(keys.settles(name)) if dies else None)


def _counted(transition: Transition) -> Tally:
    """What a transition of a member that is left adds to the counters of its group.

    One that dies leaves a group that waits for its members to settle, so it is not dead later on.
    """
    before = _LIVES if transition.source is State.DEAD else Tally()
    if transition.target is State.DONE:
        return before.plus(Tally(done=1))
    if transition.target is State.DEAD:
        return _DIES
    return before.plus(Tally(failed=1)) if transition.ends else before


def _rely_on_another(
    tr: fdb.Transaction,
    scope: Scope,
    name: str,
    message_ids: Sequence[str],
    left: Iterable[fdb.FDBRange],
) -> bool:
    ended = {scope.keys.member(name, message_id) for message_id in message_ids}
    for rows in left:
        for kv in rows:
            if kv.key not in ended:
                # It is still there as of this version; if it ends meanwhile, one of the two fails
                # and finds itself the last.
                tr.add_read_conflict_key(kv.key)
                return True
    return False
