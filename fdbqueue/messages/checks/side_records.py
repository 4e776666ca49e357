"""Checks of side records: chunks, failed attempts, unique keys, times to live, pointers, slots of
keys, last values.

They are compared with all messages at one version.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...errors import CorruptData, InvalidArgument
from ...schema import due
from ...schema.key_kinds import Kind, KindKeys
from ...schema.keys import TIDYING, QueueKeys, What
from ...schema.leases import Lease
from ...schema.records import Place
from ...values.limits import Gate
from ...values.model import parse_id
from .. import lookup as places
from .. import run
from ..run import AnyRow
from ..slots import permits
from . import agenda, backlogs, groups, rates, shared_limits
from .verification import HOLDERS, Audit

_LIVING = (QueueKeys.ready, QueueKeys.waiting, QueueKeys.lease, QueueKeys.delayed)


@dataclass(slots=True)
class Messages:
    """The side records that all messages of a queue claim.

    ids: of all messages. places: by id, of those that are not leased; None if several have the id.
    chunks: names of payloads. failed: ids of those with failed attempts. unique: unique keys of
    live messages. mortal: what the agenda has of the ends of live messages, with their ids, and
    whether they wait. permits: by kind, key or limit, and number of a permit, the ids of those that
    hold it. values: the LATEST keys of the values of live messages, each with the ids, and whether
    they are ready.
    """

    ids: set[str] = field(default_factory=set)
    places: dict[str, Place | None] = field(default_factory=dict)
    chunks: set[bytes] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    unique: dict[str, str] = field(default_factory=dict)
    mortal: dict[bytes, tuple[str, bool]] = field(default_factory=dict)
    permits: dict[tuple[Kind, Gate, int], set[str]] = field(default_factory=dict)
    values: dict[bytes, dict[str, bool]] = field(default_factory=dict)


def check(audit: Audit) -> None:
    """Every side record has a message that claims it, and the reverse.

    Reports nothing if an envelope is unreadable, since it may own anything.
    """
    messages = _gather(audit)
    if messages is None:
        return
    keys = audit.scope.keys
    _orphans(audit, keys.chunk, messages.chunks, "chunks orphaned")
    _orphans(audit, keys.failure, messages.failed, "attempts orphaned")
    _names(audit, messages)
    _pointers(audit, messages)
    _permits(audit, messages)
    backlogs.check(audit, audit.scope.keys)
    rates.check(audit, audit.scope.keys)
    agenda.earliest(audit, audit.scope.keys)
    if due.shared(audit.tr, audit.scope.keys):
        shared_limits.check(audit)
    _last_values(audit, messages)
    groups.check(audit, messages.ids)


def _gather(audit: Audit) -> Messages | None:
    keys, messages = audit.scope.keys, Messages()
    for kind in HOLDERS:
        for kv in audit.messages(keys.holding(kind)):
            read = audit.envelope(kind, kv)
            # Whatever it owns would look like nobody's, and a repair would remove it.
            if read is None:
                return None
            position, envelope = read
            message_id = envelope.id or position.to_id()
            named = kind is QueueKeys.ready and not envelope.id  # its id is its place
            place = None if named or message_id in messages.ids else _place(keys, kind, kv)
            messages.places[message_id] = place
            messages.ids.add(message_id)
            messages.chunks.add(envelope.chunks)
            if envelope.failures:
                messages.failed.add(message_id)
            if kind not in _LIVING:
                continue
            if envelope.unique:
                messages.unique[envelope.unique] = message_id
            if envelope.expires_at_ms is not None:
                end = keys.tidying(envelope.expires_at_ms, What.EXPIRED, message_id)
                messages.mortal[end] = message_id, kind is not QueueKeys.lease
            if envelope.last_value is not None:
                latest = keys.latest(envelope.last_value)
                messages.values.setdefault(latest, {})[message_id] = kind is QueueKeys.ready
            # A scheduled message without an index gets its permits when it is due.
            if envelope.gate and position.index:
                held = [(QueueKeys.slot, gate, n) for gate, n in envelope.held.items()]
                if envelope.window is not None and kind in (QueueKeys.ready, QueueKeys.waiting):
                    held.append((QueueKeys.window, envelope.gate, envelope.window))
                for one in held:
                    messages.permits.setdefault(one, set()).add(message_id)
    return messages


def _place(keys: QueueKeys, kind: Kind, kv: AnyRow) -> Place | None:
    """The place of a message; None if a plan leases it, since its id need not lead there."""
    if kind is not QueueKeys.lease:
        return places.place_of(keys, kv.key)
    lease = Lease.unpack(kv.value)
    return lease.position if kv.key == run.lease_key(keys, lease.position) else None


def _orphans(audit: Audit, kind: KindKeys[Any, Any], owners: Container[Any], what: str) -> None:
    """Rows of a kind, under a first element that no message has: names and ids are never reused, so
    nothing will ever own them. One key of each is enough, and skips its bytes."""
    begin, stop = kind.rows.start, kind.rows.stop
    while row := next(audit.whole(slice(begin, stop), 1), None):
        name = kind.parse(row.key)[0]
        every = kind.under(name)
        begin = every.stop
        if name not in owners:
            clear = partial(audit.tr.clear_range, every.start, every.stop)
            subject = name if isinstance(name, str) else name.hex()
            audit.report(what, subject, "no message has them", clear)


def _names(audit: Audit, messages: Messages) -> None:
    keys = audit.scope.keys
    held = dict(messages.unique)
    for kv in audit.whole(keys.unique.rows):
        name = keys.unique.parse(kv.key)[0]
        if held.pop(name, None) != kv.value.decode(errors="replace"):
            audit.report("unique key astray", name, "no message has it", _clear(audit, kv.key))
    for name, message_id in held.items():
        repair = partial(_set, audit, keys.unique(name), message_id.encode())
        audit.report("unique key missing", name, f"message {message_id} has it", repair)
    ends = dict(messages.mortal)
    for kv in audit.whole(keys.entry.under(TIDYING)):
        entry = due.entry(keys, kv)
        if entry.what is What.EXPIRED and not ends.pop(entry.key, None):
            audit.report("end astray", str(entry.name), "no such message", _clear(audit, kv.key))
    for key, (message_id, waits) in ends.items():
        if waits:  # That of a leased one is written again when it returns.
            repair = partial(due.add, audit.tr, keys, key)
            audit.report("end missing", message_id, "nobody would end it", repair)


def _pointers(audit: Audit, messages: Messages) -> None:
    keys = audit.scope.keys
    pointers: dict[str, bytes] = {}
    for kv in audit.whole(keys.moved.rows):
        message_id = keys.moved.parse(kv.key)[0]
        pointers[message_id] = kv.value
        if message_id not in messages.ids:
            audit.report("pointer astray", message_id, "it is gone", _clear(audit, kv.key))
    for message_id, place in messages.places.items():
        if place is None or _leads(keys, message_id, pointers.get(message_id), place):
            continue
        stored = "" if message_id in pointers else ", but has no pointer"
        repair = partial(_set, audit, keys.moved(message_id), places.pointer(keys, place))
        audit.report("pointer astray", message_id, f"it is at {place}{stored}", repair)


def _leads(keys: QueueKeys, message_id: str, pointer: bytes | None, place: Place) -> bool:
    """Whether a lookup by id finds the message at its place."""
    there = places.key(keys, place)
    try:
        if places.key(keys, parse_id(message_id)) == there:
            return True
        return pointer is not None and places.key(keys, places.pointed(keys, pointer)) == there
    except (CorruptData, InvalidArgument):
        return False


_PERMITS: dict[Kind, str] = {QueueKeys.slot: "slot", QueueKeys.window: "window"}


def _permits(audit: Audit, messages: Messages) -> None:
    keys = audit.scope.keys
    rows = dict(zip(_PERMITS, permits.kinds(keys), strict=True))
    held: dict[tuple[Kind, Gate, int], str] = {
        (kind, *rows[kind].parse(kv.key)): kv.value.decode(errors="replace")
        for kind in _PERMITS
        for kv in audit.whole(keys.kind(kind))
    }
    for one in sorted({*held, *messages.permits}, key=repr):
        out, holder = messages.permits.get(one, set()), held.get(one)
        kind, gate, n = one
        row, name = rows[kind](gate, n), _PERMITS[kind]
        subject = f"{backlogs.gate_name(gate)}, {n}"
        # Which of them is right is a guess: no repair.
        if len(out) > 1:
            detail = f"messages {', '.join(sorted(out))} hold it"
            audit.report(f"{name} held twice", subject, detail)
        elif out and holder not in out:
            (message_id,) = out
            repair = partial(_set, audit, row, message_id.encode())
            audit.report(f"{name} astray", subject, f"{message_id} holds it, not {holder}", repair)
        elif not out:
            free = partial(_free, audit, gate, row)
            audit.report(f"{name} astray", subject, f"message {holder} does not hold it", free)


def _last_values(audit: Audit, messages: Messages) -> None:
    keys = audit.scope.keys
    newest: dict[bytes, str] = {}
    marked: dict[bytes, set[str]] = {}
    for kv in audit.whole(keys.latest.rows):
        value, *rest = keys.replaced.parse(kv.key)
        named = keys.latest(value)
        message_id = rest[0] if rest else kv.value.decode(errors="replace")
        if message_id not in messages.values.get(named, {}):
            audit.report("value astray", message_id, "it is gone", _clear(audit, kv.key))
        elif rest:
            marked.setdefault(named, set()).add(message_id)
        else:
            newest[named] = message_id
    for named, found in messages.values.items():
        value = keys.latest.parse(named)[0]
        # A ready one first: it is the newest, if no record says which is.
        for message_id, ready in sorted(found.items(), key=lambda each: not each[1]):
            mark, known = keys.replaced(value, message_id), newest.get(named)
            is_marked = message_id in marked.get(named, ())
            if is_marked and (ready or message_id == known):
                audit.report("value astray", message_id, "it is not replaced", _clear(audit, mark))
            if message_id == known or (is_marked and not ready):
                continue
            if known is None:
                newest[named] = message_id
                repair = partial(_set, audit, named, message_id.encode())
                audit.report("value missing", message_id, "it is the newest", repair)
            elif ready:
                audit.report("value replaced", message_id, f"it is ready beside {known}")
            else:
                repair = partial(_set, audit, mark, b"")
                audit.report(
                    "value unmarked", message_id, f"it would return beside {known}", repair
                )


def _clear(audit: Audit, key: bytes) -> Callable[[], None]:
    return partial(_guarded, audit, key, partial(audit.tr.clear, key))


def _set(audit: Audit, key: bytes, value: bytes) -> None:
    _guarded(audit, key, partial(audit.tr.set, key, value))


def _free(audit: Audit, gate: Gate, row: bytes) -> None:
    _guarded(audit, row, partial(audit.tr.clear, row))
    if isinstance(gate, str):  # The slot of a limit is freed below the root.
        backlogs.fill(audit, gate)


def _guarded(audit: Audit, key: bytes, repair: Callable[[], None]) -> None:
    """Repair under a conflict on the key, which any concurrent change of its message writes."""
    audit.tr.add_read_conflict_key(key)
    repair()
