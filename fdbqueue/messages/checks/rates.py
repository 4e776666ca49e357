"""Checks of rates, at one version: each RATE has its entry of the agenda, and the reverse; and of
the queue's own rate."""

from __future__ import annotations

from functools import partial

from ...errors import CorruptData
from ...schema import due
from ...schema.keys import WORK, SlotKeys, What
from ...schema.records import Paced, Reached
from ...values.limits import Gate
from ..slots import gates
from ..slots.hand_over import OWED_MS
from . import backlogs
from .verification import Audit


def check(audit: Audit, keys: SlotKeys) -> None:
    """Something looks at every rate when it is due, and every entry of a rate is that of one.

    keys: those of the queue, or of the limits of its root.
    """
    wanted: dict[bytes, Gate] = {}
    unreadable = set[Gate]()
    for kv in audit.whole(keys.rate.rows):
        (gate,) = keys.rate.parse(kv.key)
        try:
            wanted[gates.entry(audit.scope, gate, *Paced.unpack(kv.value).timer)] = gate
        except CorruptData as error:
            unreadable.add(gate)
            audit.report("unreadable", backlogs.gate_name(gate), str(error))
    for kv in audit.whole(slice(keys.entry.begin(WORK), keys.entry.end)):
        entry = due.entry(keys, kv)
        if entry.what not in (What.GATE, What.REST) or entry.due_ms == OWED_MS:
            continue
        if wanted.pop(entry.key, None) is None and entry.name not in unreadable:
            repair = partial(_clear, audit, entry)
            detail = "its rate does not name it"
            audit.report("timer astray", backlogs.gate_name(entry.name), detail, repair)
    for row, gate in wanted.items():
        repair = partial(_add, audit, keys, row, gate)
        detail = "nothing looks at it when it is due"
        audit.report("rate astray", backlogs.gate_name(gate), detail, repair)


def _clear(audit: Audit, entry: due.Entry) -> None:
    audit.tr.add_read_conflict_key(gates.keys(audit.scope, entry.name).rate(entry.name))
    del audit.tr[entry.key]


def _add(audit: Audit, keys: SlotKeys, row: bytes, gate: Gate) -> None:
    audit.tr.add_read_conflict_key(keys.rate(gate))
    due.add(audit.tr, keys, row)


def pace(audit: Audit) -> None:
    """It can be read how far the queue has come by its rate. To repair it is to begin anew."""
    key = audit.scope.keys.pace
    value = audit.reads.get(key)
    if value.present():
        try:
            Reached.unpack(value.value or b"")
        except CorruptData:
            repair = partial(audit.tr.clear, key)
            audit.report("pace unreadable", "", "how far the queue has come by its rate", repair)
