"""The limits that queues share: what lies below the root, and what lies in the queue, agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVarTuple

from ...errors import CorruptData
from ...schema.key_kinds import KindKeys
from ...schema.records import Delayed, Limited
from ...values.limits import Gate
from . import agenda, backlogs, rates
from .verification import Audit

Ts = TypeVarTuple("Ts")


def check(audit: Audit) -> None:
    """Every message of the queue that holds a slot of a limit, or waits for one, is known below the
    root. And every one that is known there is in its queue, if it is one of this queue, or of a
    queue that is gone."""
    keys, root = audit.scope.keys, audit.scope.root.limits
    held = {
        keys.slot.parse(kv.key): kv.value.decode(errors="replace")
        for kv in audit.whole(keys.of_limits(keys.slot))
    }
    _compare(audit, root.slot, held, "slot astray", "holds it")
    waiting = {
        keys.waiting.parse(kv.key): Delayed.unpack(kv.value).envelope.id or ""
        for kv in audit.whole(keys.of_limits(keys.waiting))
    }
    _compare(audit, root.waiting, waiting, "line astray", "waits")
    backlogs.check(audit, root)
    rates.check(audit, root)
    agenda.earliest(audit, root)


def _compare(
    audit: Audit,
    kind: KindKeys[Gate, *Ts],
    known: Mapping[tuple[Gate, *Ts], str],
    finding: str,
    does: str,
) -> None:
    rest, name = dict(known), audit.scope.name
    for row, holder in _below_root(audit, kind.rows):
        one = kind.parse(row)
        message_id = rest.pop(one, None) if holder is None or holder.queue == name else None
        if holder is None:
            known_here = partial(_set, audit, row, message_id) if message_id else None
            audit.report("unreadable", _subject(one, one[0]), "who it is of", known_here)
        elif message_id is None:
            detail = f"message {holder.id} of queue {holder.queue} is gone"
            audit.report(
                finding, _subject(one, one[0]), detail, partial(_clear, audit, row, one[0])
            )
        elif holder.id != message_id:
            detail = f"message {message_id} {does}, not {holder.id}"
            repair = partial(_set, audit, row, message_id)
            audit.report(finding, _subject(one, one[0]), detail, repair)
    for one, message_id in rest.items():
        row = kind(*one)
        other = audit.tr.snapshot.get(row).present()
        detail = f"message {message_id} {does}, which is not known below the root"
        put = partial(_set, audit, row, message_id)
        audit.report(finding, _subject(one, one[0]), detail, None if other else put)


def _below_root(audit: Audit, every: slice) -> Iterator[tuple[bytes, Limited | None]]:
    """The rows of this queue's messages, and of those of queues that are gone; and those that
    cannot be read."""
    there: dict[str, bool] = {audit.scope.name: False}
    for kv in audit.whole(every):
        try:
            holder = Limited.unpack(kv.value)
        except CorruptData:
            yield bytes(kv.key), None
            continue
        if holder.queue not in there:
            entry = audit.scope.root.name(holder.queue)
            there[holder.queue] = audit.tr.snapshot.get(entry).present()
        if not there[holder.queue]:
            yield bytes(kv.key), holder


def _subject(one: Sequence[object], gate: Gate) -> str:
    return f"{backlogs.gate_name(gate)}, {one[1]}"


def _set(audit: Audit, row: bytes, message_id: str) -> None:
    # Whoever changes what the message holds writes the row.
    audit.tr.add_read_conflict_key(row)
    audit.tr[row] = Limited(audit.scope.name, message_id).pack()


def _clear(audit: Audit, row: bytes, gate: Gate) -> None:
    audit.tr.add_read_conflict_key(row)
    del audit.tr[row]
    if row.startswith(audit.scope.root.limits.slot.prefix):
        backlogs.fill(audit, gate)
