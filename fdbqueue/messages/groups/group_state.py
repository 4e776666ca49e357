"""Looking at groups, forgetting them, and what is left to do once they have ended."""

from __future__ import annotations

from collections.abc import Sequence

from ...schema.due import Entry
from ...schema.key_kinds import elements
from ...schema.records import GroupRecord, Tally
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values.groups import Group
from ...values.states import SCHEDULE
from .. import transitions
from ..transaction_budget import Done, weight
from . import callbacks

MAX_LOOKED = 10
"""The most groups that have ended at which one transaction looks. So their callbacks, of 90,000
bytes at most, leave room for what else it does."""


def known(tr: fdb.Transaction, scope: Scope, name: str) -> GroupRecord | None:
    """A group; None if there is none. Conflicts with its end. Raises ``CorruptData``."""
    value = tr.get(scope.keys.group(name)).value
    return None if value is None else GroupRecord.unpack(value)


@transactional
def find(tr: fdb.Transaction, scope: Scope, name: str) -> Group | None:
    """What is known of a group; None if there is none. Snapshot reads, one round trip."""
    snapshot = tr.snapshot
    stored = snapshot.get(scope.keys.group(name))
    counted = callbacks.tally(snapshot, scope, name)
    return _described(name, GroupRecord.unpack(stored.value), counted) if stored.present() else None


@transactional
def page(tr: fdb.Transaction, scope: Scope, limit: int, after: str | None) -> list[Group]:
    """Groups by name, behind the name ``after``. Snapshot reads, two round trips for each."""
    keys, found, snapshot = scope.keys, list[Group](), tr.snapshot
    while len(found) < limit:
        begin = keys.group.rows.start if after is None else keys.group.under(after).stop
        for kv in snapshot.get_range(begin, keys.group.end, limit=1):
            after, *_ = elements(kv.key, keys.group.prefix)
            break
        else:
            break
        assert after is not None
        described = find(tr, scope, after)
        found += [] if described is None else [described]
    return found


def _described(name: str, record: GroupRecord, counted: Tally) -> Group:
    end = record.end
    if end is not None:
        counted = end.tally
    blocked = end is not None and end.outcome == "blocked"
    return Group(
        name=name,
        then_on=record.then_on,
        state=end.outcome if end is not None else "running" if record.sealed else "open",
        total=record.members,
        left=record.left(counted),
        done=counted.done,
        dead=counted.dead,
        failed=counted.failed,
        queue=record.callback.queue,
        callback_id=(end.message_id or None) if end is not None else None,
        created_ms=record.created_ms,
        ended_ms=None if end is None or blocked else end.at_ms,
        retry_ms=callbacks.due_ms(end) if end is not None and blocked else None,
    )


@transactional
def forget(tr: fdb.Transaction, scope: Scope, name: str) -> bool:
    """Forget a group; returns whether there was one. Its messages stay, and no callback comes.

    Conflicts with ends of its members.
    """
    keys = scope.keys
    if not tr.get(keys.group(name)).present():
        return False
    # From the record on, so that the counters and the rows of its members go with it.
    tr.clear_range(keys.group(name), keys.group.under(name).stop)
    return True


def finish_ended(tr: fdb.Transaction, scope: Scope, entries: Sequence[Entry], room: int) -> Done:
    """Forget groups that ended long enough ago, and enqueue callbacks that their queues did not
    take, by entries of the agenda.

    A round trip, and three for each callback. Conflicts with whatever changes these groups.
    """
    keys, now_ms = scope.keys, scope.now_ms(tr)
    pauses = {(str(each.name), each.due_ms): each.value for each in entries}
    # A group that was made again under its name may have two entries: it is looked at once.
    issued = {name: tr.get(keys.group(name)) for name, _ in pauses}
    size = 0
    for name, value in issued.items():
        record = callbacks.opened(value.value)
        if record is None:
            continue  # It was forgotten.
        pause_ms = callbacks.RETRY_MS
        if record.end is None:
            # Its last members ended in a transaction that had no room for its callback.
            every = keys.group_left.under(name, 0)
            if tr.get_range(every.start, every.stop, limit=1).to_list():
                continue  # It was made again.
        else:
            at_ms = callbacks.due_ms(record.end)
            if at_ms > now_ms:
                continue  # It has a later entry.
            if record.end.outcome != "blocked":
                forget(tr, scope, name)
                continue
            pause_ms = callbacks.longer_ms(pauses.get((name, at_ms)))
        # The record is written again, and the callback is a message.
        size += 2 * weight(record.callback.envelope)
        for other, callback in callbacks.end(tr, scope, name, pause_ms):
            transitions.record(tr, other, SCHEDULE, [callback])
    return Done(size=size, handled=len(entries))
