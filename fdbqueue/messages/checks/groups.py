"""Checks of groups, at one version: their members live, their counters add up, and each goes on."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from functools import partial

from ...errors import CorruptData
from ...schema import due
from ...schema.codec import unpack_counters
from ...schema.envelope import Envelope
from ...schema.key_kinds import elements
from ...schema.keys import WORK, What
from ...schema.records import GroupRecord, Tally
from ...schema.scope import StoredMessage
from ...values.limits import Gate
from ...values.model import Position
from ...values.states import PURGE_READY, SCHEDULE
from .. import transitions
from ..groups import callbacks, members
from .verification import Audit


@dataclass(slots=True)
class _GroupRows:
    """What is stored of one group. left: the members that are; keys: all of its keys."""

    record: GroupRecord | None = None
    unreadable: bool = False
    sealed: bool = True
    left: list[str] = field(default_factory=list)
    counted: Tally = field(default_factory=Tally)
    keys: list[bytes] = field(default_factory=list)


def check(audit: Audit, message_ids: Set[str]) -> None:
    """Every group has its members among the messages, and will end when they have.

    message_ids: of all messages of the queue.
    """
    found, entries = _gather(audit)
    keys = audit.scope.keys
    for name, rows in found.items():
        if rows.unreadable:
            continue
        record = rows.record
        if record is None:
            for key in rows.keys:
                audit.report("group astray", name, "it has no record", partial(_clear, audit, key))
            continue
        if record.end is not None:
            entry = callbacks.entry(audit.scope, name, record.end)
            if entry not in entries:
                repair = partial(_add, audit, entry)
                audit.report("group astray", name, "nobody would look at it", repair)
            continue
        for message_id in rows.left:
            if message_id not in message_ids:
                detail = f"message {message_id} is gone, and the group waits for it"
                repair = partial(_fail, audit, name, message_id)
                audit.report("group waits for nothing", name, detail, repair)
        if (keys.settles(name) in rows.keys) is not (record.then_on == "settled"):
            audit.report("group astray", name, "its members leave it in another way than it says")
        if record.sealed and not (rows.left and rows.sealed) and name not in entries.values():
            detail = "nothing is left, and it has not ended"
            end = partial(_end, audit, name) if rows.sealed else None
            audit.report("group waits for nothing", name, detail, end)
        left = record.left(rows.counted)
        if left != len(rows.left):
            detail = f"by its counters {left:,} messages are left, but {len(rows.left):,} are"
            audit.report("group miscounted", name, detail)


def _gather(audit: Audit) -> tuple[dict[str, _GroupRows], dict[bytes, Gate]]:
    """What is stored of each group, and the entries of the agenda with the names of groups."""
    keys = audit.scope.keys
    found: dict[str, _GroupRows] = {}
    every = slice(keys.entry.begin(WORK), keys.entry.end)
    each = (due.entry(keys, kv) for kv in audit.whole(every))
    entries = {entry.key: entry.name for entry in each if entry.what is What.GROUP}
    for kv in audit.whole(keys.group.rows):
        name, *rest = elements(kv.key, keys.group.prefix)
        rows = found.setdefault(name, _GroupRows())
        rows.keys.append(kv.key)
        match rest:
            case []:
                try:
                    rows.record = GroupRecord.unpack(kv.value)
                except CorruptData:
                    rows.unreadable = True
            case [0, _, ""]:
                rows.sealed = False
            case [0, _, member]:
                rows.left.append(member)
            case [1, _]:
                rows.counted = rows.counted.plus(unpack_counters(kv.value, 3))
    return found, entries


def _clear(audit: Audit, key: bytes) -> None:
    audit.tr.add_read_conflict_key(key)
    del audit.tr[key]


def _add(audit: Audit, key: bytes) -> None:
    audit.tr.add_read_conflict_key(key)
    due.add(audit.tr, audit.scope.keys, key)


def _fail(audit: Audit, name: str, message_id: str) -> None:
    """Count a member as failed that is gone."""
    gone = StoredMessage(Position(0, 0, b""), Envelope(b"", 0, 0, id=message_id, group=name))
    for other, callback in members.count_ends(audit.tr, audit.scope, PURGE_READY, [gone]):
        transitions.record(audit.tr, other, SCHEDULE, [callback])


def _end(audit: Audit, name: str) -> None:
    for other, callback in callbacks.end(audit.tr, audit.scope, name):
        transitions.record(audit.tr, other, SCHEDULE, [callback])
