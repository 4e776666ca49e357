"""Backlogs: what waits for a key, or for a limit, is counted, and waits for something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from functools import partial

from ...errors import CorruptData
from ...schema import due
from ...schema.codec import pack_counters, unpack_counters
from ...schema.keys import TIDYING, SlotKeys
from ...schema.records import Backlog, Paced, unpack_limits
from ...values.limits import Gate
from ..slots import backlog, gates, hand_over, key_limits, permits, rates
from .verification import Audit


def gate_name(gate: Gate) -> str:
    """A key or a limit in a finding."""
    return gate if isinstance(gate, str) else "/".join(gate)


def check(audit: Audit, keys: SlotKeys) -> None:
    """Every backlog has messages, as many as it counts, of which none could become ready.

    keys: those of the queue, or of the limits of its root.
    """
    for kv in audit.whole(keys.limits.rows):
        try:
            unpack_limits(kv.value)
        except CorruptData as error:
            (gate,) = keys.limits.parse(kv.key)
            audit.report("unreadable", gate_name(gate), str(error))
    of_limits = keys is not audit.scope.keys
    rows = audit.whole(keys.waiting.rows)
    places = (keys.waiting.parse(kv.key)[0] for kv in rows)
    # In a queue, what waits for a limit only stands beside the line of that.
    waiting = Counter(gate for gate in places if isinstance(gate, str) is not of_limits)
    counts: dict[Gate, int] = {}
    backlogs: dict[Gate, Backlog] = {}
    unreadable: set[Gate] = set()
    for kv in audit.whole(keys.backlog.rows):
        gate, *count = keys.backlog_count.parse(kv.key)
        if count:
            (counts[gate],) = unpack_counters(kv.value, 1)
            continue
        try:
            backlogs[gate] = Backlog.unpack(kv.value)
        except CorruptData as error:
            unreadable.add(gate)
            repair = partial(_begin if waiting[gate] else _end, audit, gate)
            audit.report("unreadable", gate_name(gate), str(error), repair)
    work = (due.entry(keys, kv) for kv in audit.whole(keys.work()))
    owed = {each.name for each in work if each.due_ms == hand_over.OWED_MS}
    for gate in sorted({*waiting, *counts, *backlogs} - unreadable, key=gate_name):
        wait, known, subject = waiting[gate], backlogs.get(gate), gate_name(gate)
        if wait and known is None:
            begin = partial(_begin, audit, gate)
            detail = f"{wait:,} messages wait in no backlog"
            audit.report("backlog astray", subject, detail, begin)
        elif not wait and known is not None:
            end = partial(_end, audit, gate)
            audit.report("backlog astray", subject, "no message waits", end)
        elif known is not None:
            _stuck(audit, gate, known, owed)
        if wait != counts.get(gate, 0):
            operand = pack_counters((wait - counts.get(gate, 0),))
            correct = partial(audit.tr.add, keys.backlog_count(gate, 0), operand)
            detail = f"is {counts.get(gate, 0):,}, but {wait:,} wait"
            repair = correct if wait else partial(_end, audit, gate)
            audit.report("backlog miscounted", subject, detail, repair)


def _stuck(audit: Audit, gate: Gate, known: Backlog, owed: Set[Gate]) -> None:
    """Whether messages wait for nothing, since one could become ready."""
    keys, snapshot = gates.keys(audit.scope, gate), audit.tr.snapshot
    own = snapshot.get(keys.limits(gate)).value
    allowed = key_limits.effective(audit.scope, gate, own).allowed
    held = [sum(1 for _ in audit.whole(rows.under(gate))) for rows in permits.kinds(keys)]
    # After a change of the limits, the next end of a message that is out counts what is held.
    if any(held) and known.settled != allowed:
        return
    if gate in owed:
        return  # Whoever looks for messages next lets them out.
    if all(most is None or count < most for count, most in zip(held, allowed.numbers, strict=True)):
        stored = rates.issue_rate(audit.tr, audit.scope, gate)
        paced = None if stored is None else stored.value
        if allowed.rate and paced is not None:
            known_rate = Paced.unpack(paced)
            now_ms = audit.scope.now_ms(audit.tr)
            coming = rates.next_ms(known_rate, allowed.rate, now_ms)
            if known_rate.timer.rank != TIDYING and known_rate.timer.due_ms <= coming:
                return  # Its timer lets the next one out.
        detail = f"messages wait, and {held[0]:,} hold slots, {held[1]:,} places of the window"
        audit.report("backlog stuck", gate_name(gate), detail, partial(fill, audit, gate))


def fill(audit: Audit, gate: Gate) -> None:
    """Let out what may be."""
    hand_over.fill(audit.tr, audit.scope, gate)


def _begin(audit: Audit, gate: Gate) -> None:
    """Begin a backlog, of messages that wait in none."""
    now_ms, keys = audit.scope.now_ms(audit.tr), gates.keys(audit.scope, gate)
    # Any concurrent change of what waits writes it.
    audit.tr.add_read_conflict_key(keys.backlog(gate))
    backlog.begin(audit.tr, keys, gate, now_ms, None)
    fill(audit, gate)


def _end(audit: Audit, gate: Gate) -> None:
    """End a backlog, unless a message waits by now."""
    backlog.leave(audit.tr, gates.keys(audit.scope, gate), {gate: 0})
