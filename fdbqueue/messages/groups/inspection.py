"""Looking at groups, forgetting them, and what is left to do once they have ended."""

from __future__ import annotations

from ...schema.group_records import Record, Tally, unpack_record
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values.groups import Group
from ...values.states import SCHEDULE
from .. import transitions
from . import callbacks

MAX_SWEPT = 100
"""The most groups that one step of a sweep looks at."""


def known(tr: fdb.Transaction, scope: Scope, name: str) -> Record | None:
    """A group; None if there is none. Conflicts with its end. Raises ``CorruptData``."""
    value = tr.get(scope.keys.groups.record(name)).value
    return None if value is None else unpack_record(value)


@transactional
def one(tr: fdb.Transaction, scope: Scope, name: str) -> Group | None:
    """What is known of a group; None if there is none. Snapshot reads, one round trip."""
    snapshot = tr.snapshot
    stored = snapshot.get(scope.keys.groups.record(name))
    counted = callbacks.tally(snapshot, scope, name)
    return _described(name, unpack_record(stored.value), counted) if stored.present() else None


@transactional
def page(tr: fdb.Transaction, scope: Scope, limit: int, after: str | None) -> list[Group]:
    """Groups by name, behind the name ``after``. Snapshot reads, two round trips for each."""
    groups, found, snapshot = scope.keys.groups, list[Group](), tr.snapshot
    while len(found) < limit:
        rest = groups.named(after)
        for kv in snapshot.get_range(rest.start, rest.stop, limit=1):
            after, _ = groups.parse(kv.key)
            break
        else:
            break
        assert after is not None
        described = one(tr, scope, after)
        found += [] if described is None else [described]
    return found


def _described(name: str, record: Record, counted: Tally) -> Group:
    end = record.end
    if end is not None:
        counted = end.tally
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
        ended_ms=None if end is None else end.at_ms,
    )


@transactional
def forget(tr: fdb.Transaction, scope: Scope, name: str) -> bool:
    """Forget a group; returns whether there was one. Its messages stay, and no callback comes.

    Conflicts with ends of its members.
    """
    groups = scope.keys.groups
    if not tr.get(groups.record(name)).present():
        return False
    every = groups.all_of(name)
    tr.clear_range(every.start, every.stop)
    return True


@transactional
def sweep(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """Forget groups that ended long enough ago, and enqueue callbacks that their queues did not
    take, a step at a time.

    begin: the key to continue from; empty for the first step. Returns how many groups it looked at,
    and the key to continue from, empty at the end. Conflicts with whatever changes these groups.
    """
    groups, now_ms = scope.keys.groups, scope.now_ms(tr)
    due = groups.due_before(now_ms + 1)
    mode = fdb.StreamingMode.exact
    rows = tr.get_range(
        max(begin, due.start), due.stop, limit=MAX_SWEPT, streaming_mode=mode
    ).to_list()
    names = [groups.due.parse(kv.key)[1] for kv in rows]
    issued = [tr.get(groups.record(name)) for name in names]
    for kv, name, value in zip(rows, names, issued, strict=True):
        del tr[kv.key]
        record = callbacks.opened(value.value)
        if record is None or record.end is None:
            continue  # It was forgotten, and perhaps made again.
        if record.end.outcome == "blocked":
            for other, callback in callbacks.end(tr, scope, name):
                transitions.record(tr, other, SCHEDULE, [callback])
        elif callbacks.due_ms(record.end) <= now_ms:
            forget(tr, scope, name)
    return len(rows), rows[-1].key + b"\x00" if len(rows) == MAX_SWEPT else b""
