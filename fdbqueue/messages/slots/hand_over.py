"""Handing slots over: whoever ends a message gives its slot to the next that waits.

The next of a limit may be a message of another queue. It becomes ready there as it would here, and
its queue's consumers are told by CHANGE.

What one transaction lets out is bounded. The keys and limits that are left over are *owed*: each
has an entry of the agenda that is due, as that of a rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import QueueNotFound
from ...schema import catalogue, change_counters, once
from ...schema.due import Entry
from ...schema.envelope import Envelope
from ...schema.keys import WORK, RootKeys, SlotKeys
from ...schema.records import Backlog, Delayed, Limited
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...store.clocks import Clock
from ...values.limits import Allowed, Gate, Limit
from ...values.model import Position
from ...values.states import State, Transition
from .. import place
from ..transaction_budget import Done, weight
from . import backlog, gates, key_limits, next_gate, permits, rates
from .next_gate import PassedGate
from .permits import Permit, Permits
from .rates import Pace

STEP_ROWS = 32
"""The most messages that are let out in one round trip: so many are read before it is known how
large they are."""
MAX_FILLED = 100
"""The most messages of a key or a limit that a change of it lets out in one transaction."""
MAX_LOOKED_AT = 500
"""The most rows of keys and limits with a backlog that one transaction looks at."""
MAX_FIRED = 25
"""The most keys and limits that are due at which one transaction looks."""
MAX_DUE = 10
"""The most messages of each that become ready then."""
OWED_MS = 0
"""When what is owed is due; a rate has a time."""


class _WaitingMessage(NamedTuple):
    """A message that waits, of any queue: where it stands in line, its row in its queue, which was
    read with a conflict, and what that has."""

    scope: Scope
    in_line: bytes
    row: bytes
    position: Position
    envelope: Envelope


class _Next(NamedTuple):
    """The reads of what may become ready of a key or a limit, issued and not awaited."""

    own: fdb.Value
    first: fdb.FDBRange
    rate: fdb.Value | None


class _BacklogReads(NamedTuple):
    """The reads of a key or a limit of which messages have ended or were taken, issued and not
    awaited.

    held: by kind of permit, the rows of those that the messages may hold. following: None where the
    key probably has no backlog, since it had none lately.
    """

    backlog: fdb.Value
    held: list[dict[int, fdb.Value]]
    following: _Next | None


class _Freed(NamedTuple):
    """What messages of a key or a limit with a backlog have freed, and what may get it.

    level: of one of the messages. freed: the numbers, by kind of permit. waited: how many of the
    messages have ended while they waited. following: None until it is read.
    """

    gate: Gate
    level: int
    backlog: Backlog
    freed: list[list[int]]
    waited: int
    following: _Next | None

    @property
    def most(self) -> int:
        """How many may become ready: of a backlog that waits for slots alone, no other could
        before, so no more can now than one kind has freed."""
        return min(max(map(len, self.freed)), STEP_ROWS)


def freed(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[StoredMessage],
    transition: Transition,
) -> int:
    """Free what messages hold of their keys and limits, and hand it to those that wait; returns how
    many of these became ready in the same queue.

    transition: by which they leave, or are taken, which is to leave the windows of their keys.
        Only those that were ready may hold a place in a window.

    One round trip if any of the messages holds something. Another if its key or limit has a backlog
    and had none lately, and if its next message is of another level; another if it has a window,
    and another if its limits have changed; two if the next message of a limit is of another queue.
    Conflicts with other ends of the same key or limit that hand over to the same message, with
    enqueues only where the backlog begins or ends, and with a change of the options of the queue
    whose message is next.
    """
    messages = [
        each
        for each in messages
        if (
            (each.turn or each.envelope.gate)
            if transition.leaves
            else each.envelope.window is not None
        )
    ]
    if not messages:
        return 0
    keys = scope.keys
    of_gate: defaultdict[Gate, _Left] = defaultdict(_Left)
    for message in messages:
        _leave(of_gate, message, transition)
    room = STEP_ROWS
    reads: dict[Gate, _BacklogReads] = {}
    for gate, left in of_gate.items():
        room -= left.most
        # What comes next is read along where a backlog is likely: a guess that saves a round trip,
        # and costs one row where it is wrong.
        reads[gate] = _read(tr, scope, gate, left, following=gate in scope.waited and room >= 0)
    # Where the next that wait probably go.
    levels = {level for gate in of_gate.keys() & scope.waited for level in of_gate[gate].levels}
    behind = {level: place.reads(tr, keys, level) for level in sorted(levels)}
    found = _free(tr, scope, of_gate, reads)
    return next_gate.onward(tr, scope, _let_out(tr, scope, found), behind)


def _free(
    tr: fdb.Transaction,
    scope: Scope,
    of_gate: Mapping[Gate, _Left],
    reads: Mapping[Gate, _BacklogReads],
) -> list[_Freed]:
    """Free what the store says that messages hold; returns the keys and limits with a backlog."""
    found = []
    for gate, (stored, held, following) in reads.items():
        left = of_gate[gate]
        # Only what the store says they hold: an envelope may name a slot that was handed on long
        # ago.
        slots, places = ([n for n, row in some.items() if row.value in left.ids] for some in held)
        for n in slots:
            gates.free(tr, scope, gate, n)
        for n in places:
            tr.clear(scope.keys.window(gate, n))
        if not stored.present():
            scope.waited.discard(gate)
            continue
        scope.note_backlog(gate)
        found.append(
            _Freed(
                gate,
                min(left.levels),
                Backlog.unpack(stored.value),
                [slots, places],
                left.waited,
                following,
            )
        )
    return found


def _let_out(tr: fdb.Transaction, scope: Scope, found: Sequence[_Freed]) -> list[PassedGate]:
    """Let what waits pass, as much as the transaction has room for; the others are owed. Returns
    what has passed. One round trip for each ``STEP_ROWS``."""
    passed: list[PassedGate] = []
    attempt, left = once.attempt(tr) if found else None, list(found)
    # One budget for the whole transaction, however many ends it has: it must stay small enough to
    # commit.
    while left and attempt and min(attempt.let_out_rows, attempt.let_out_bytes) > 0:
        room, n = STEP_ROWS, 0
        while n < len(left) and (n == 0 or left[n].most <= room):
            room -= max(1, left[n].most)
            n += 1
        some, left = left[:n], left[n:]
        step = _handed_over(
            tr,
            scope,
            [
                each
                if each.following
                else each._replace(following=_next(tr, scope, each.gate, max(1, each.most)))
                for each in some
            ],
        )
        attempt.let_out_rows -= len(step)
        attempt.let_out_bytes -= sum(weight(each.message.envelope) for each in step)
        passed += step
    for each in left:
        if each.waited:
            backlog.count(tr, gates.keys(scope, each.gate), each.gate, -each.waited)
        _owe(tr, scope, each.gate, each.level, each.backlog)
    return passed


def _owe(tr: fdb.Transaction, scope: Scope, gate: Gate, level: int, known: Backlog) -> None:
    """Let whoever looks for messages next go on with a key or a limit, of which a message of a
    level waits. BACKLOG was read with a conflict."""
    gates.look_later(tr, scope, gate, WORK + level, OWED_MS)
    if known.settled is not None:  # There may be free slots now: all have to be counted.
        # ``settled`` tells others that no slot is free beyond what they free themselves; that is no
        # longer certain.
        tr[gates.keys(scope, gate).backlog(gate)] = Backlog(known.since_ms, None).pack()
    change_counters.ring(tr, scope)


@dataclass(slots=True)
class _Left:
    """What messages leave at a key or a limit as they end or are taken: their ids as they are
    stored, their levels, the numbers of what they may hold there, and how many of them waited
    there."""

    ids: set[bytes] = field(default_factory=set)
    levels: set[int] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)
    places: set[int] = field(default_factory=set)
    waited: int = 0

    @property
    def most(self) -> int:
        """How many others it may let out."""
        return max(1, len(self.slots), len(self.places))


def _leave(of_gate: Mapping[Gate, _Left], message: StoredMessage, transition: Transition) -> None:
    """Note what a message leaves at each of its gates; at those behind the one where it waits it
    has nothing. A dead letter has nothing either, but may still name slots."""
    envelope, turn = message.envelope, message.turn
    # Of one that cannot be read only the gate where it waits is known.
    for gate in envelope.gates or ((turn.gate,) if turn else ()):
        left = of_gate[gate]
        left.ids.add(message.id.encode())
        left.levels.add(message.position.level)
        if turn is not None and turn.gate == gate:
            left.waited += 1
            return
        if transition.leaves and (n := envelope.held.get(gate)) is not None:
            left.slots.add(n)
        if gate == envelope.gate:
            if transition.source is State.READY and envelope.window is not None:
                left.places.add(envelope.window)
            if not transition.leaves:  # Only a key has a window.
                return


def _read(
    tr: fdb.Transaction, scope: Scope, gate: Gate, left: _Left, *, following: bool
) -> _BacklogReads:
    # The place of a message that was taken before is another's, who is not to be disturbed.
    reading: tuple[fdb.TransactionRead, ...] = tr, tr.snapshot
    kinds = zip(reading, permits.kinds(scope.keys), (left.slots, left.places), strict=True)
    return _BacklogReads(
        tr.get(gates.keys(scope, gate).backlog(gate)),
        [{n: read.get(rows(gate, n)) for n in some} for read, rows, some in kinds],
        _next(tr, scope, gate, min(left.most, STEP_ROWS)) if following else None,
    )


def _next(tr: fdb.Transaction, scope: Scope, gate: Gate, count: int) -> _Next:
    """Issue the reads of the own limits, and of ``count`` messages that wait and another."""
    keys = gates.keys(scope, gate)
    return _Next(
        tr.get(keys.limits(gate)),
        backlog.first(tr, keys, gate, count + 1),
        rates.issue_rate(tr, scope, gate),
    )


def _handed_over(tr: fdb.Transaction, scope: Scope, found: Sequence[_Freed]) -> list[PassedGate]:
    """Let what waits pass; returns it. All of it is read."""
    following = [each.following for each in found if each.following]
    allowed = [
        key_limits.effective(scope, each.gate, next_.own.value).allowed
        for each, next_ in zip(found, following, strict=True)
    ]
    counts = [max(map(len, each.freed)) for each in found]
    others = [
        # Under unchanged limits the backlog waits for what this transaction frees, so not all
        # permits need counting.
        _others(tr, scope, *one) if one[0].backlog.settled == one[1] and not one[1].rate else None
        for one in zip(found, allowed, counts, strict=True)
    ]
    entries = []
    for each, next_, now, held in zip(found, following, allowed, others, strict=True):
        rows, keys = next_.first.to_list(), gates.keys(scope, each.gate)
        if held is None:
            if each.waited:
                backlog.shrink(tr, keys, each.gate, each.waited, rows[:1])
            entries += _next_in_time(tr, scope, each, next_, rows, now) if rows else []
            continue
        kinds = zip(permits.kinds(keys), now.numbers, held, each.freed, strict=True)
        some = [Permits(tr, kind, each.gate, limit, of, n) for kind, limit, of, n in kinds]
        line = _line(tr, scope, each.gate, rows, each.most)
        handed = _hand_over(tr, scope, each.gate, some, line, each.waited)
        # Slots are left, and messages too: both were more than this step could hand over.
        if len(handed) < len(line.rows) and all(one.left for one in some):
            _owe(tr, scope, each.gate, each.level, each.backlog)
        entries += handed
    return entries


def _others(
    tr: fdb.Transaction, scope: Scope, freed: _Freed, allowed: Allowed, count: int
) -> list[fdb.FDBRange | None]:
    """Issue snapshot reads of what is held of the kinds of permit of which fewer than ``count``
    were freed: others of these have to be free."""
    keys = gates.keys(scope, freed.gate)
    kinds = zip(permits.kinds(keys), allowed.numbers, freed.freed, strict=True)
    return [
        None if limit is None or len(some) == count else permits.held(tr.snapshot, rows, freed.gate)
        for rows, limit, some in kinds
    ]


def _next_in_time(
    tr: fdb.Transaction,
    scope: Scope,
    freed: _Freed,
    following: _Next,
    rows: list[fdb.KeyValue],
    allowed: Allowed,
) -> list[PassedGate]:
    """Let what waits become ready that a key's rate lets come; looks no further if nothing may come
    yet."""
    gate, paced = freed.gate, following.rate
    if paced is not None:
        pace = Pace(tr, scope, gate, allowed.rate, paced)
        if not pace.left:
            # The entry of the agenda brings the key back when its rate allows the next one.
            pace.rely(scope, freed.level)
            return []
    most = max(1, freed.most)
    return _filled(tr, scope, gate, _filling(tr, scope, gate, most, beside=rows))


@transactional
def fill(tr: fdb.Transaction, scope: Scope, gate: Gate) -> int:
    """Give the free slots of a key or a limit to messages that wait, up to a hundred; returns
    how many got one, of a limit those of all queues.

    For a limit that has changed. Conflicts with enqueues and ends of the key or limit.
    """
    entries = _filled(tr, scope, gate, _filling(tr, scope, gate))
    next_gate.onward(tr, scope, entries)
    return len(entries)


@transactional
def fill_shared(tr: fdb.Transaction, root: RootKeys, clock: Clock, limit: Limit) -> int:
    """``fill`` a limit where no queue is at hand: begins at that of the first message in line.

    Two or three more round trips.
    """
    # A backlog that begins meanwhile does so by the limit as it was.
    tr.add_read_conflict_key(root.limits.backlog(limit))
    for kv in backlog.first(tr, root.limits, limit, MAX_LOOKED_AT):
        try:
            scope = catalogue.found(tr, root, Limited.unpack(kv.value).queue, clock)
        except QueueNotFound:
            continue
        return fill(tr, scope, limit)
    return 0


def fire(tr: fdb.Transaction, scope: Scope, entries: Sequence[Entry], room: int) -> Done:
    """Let messages become ready whose time has come by the rates of their keys or limits, or that
    are owed, by entries of the agenda, as long as there is room.

    A round trip for every few of them, and another if messages become ready. Conflicts with others
    that use up the same entries, and with enqueues and ends of the same keys, but not with enqueues
    to a backlog that goes on.
    """
    passed: list[PassedGate] = []
    size = fired = 0
    while fired < len(entries) and size <= room:
        step = _distinct(entries[fired : fired + STEP_ROWS // 2])
        issued = [_filling(tr, scope, each.name, MAX_DUE) for each in step]
        for each, reads in zip(step, issued, strict=True):
            if size > room:
                break
            some = _filled(tr, scope, each.name, reads, each)
            passed += some
            size += sum(weight(one.message.envelope) for one in some)
            fired += 1
    ready = next_gate.onward(tr, scope, passed)
    return Done(ready, size=size, handled=fired)


def _distinct(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The first entries, up to one of a key or a limit that has been before: what that lets out is
    read once the one before has let out its own."""
    names = [each.name for each in entries]
    return entries[: next((n for n, name in enumerate(names) if name in names[:n]), None)]


@transactional
def refill(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """Give the free slots of a key whose limit has changed to its messages that wait.

    begin: the key of the store to continue from; empty for the first. Returns how many got one,
    and where to continue, empty at the end. Conflicts as ``fill``.
    """
    return _refill(tr, scope, scope.keys, begin)


@transactional
def refill_shared(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """``refill`` the limits of the root."""
    return _refill(tr, scope, scope.root.limits, begin)


def _refill(tr: fdb.Transaction, scope: Scope, keys: SlotKeys, begin: bytes) -> tuple[int, bytes]:
    every = keys.backlog.rows
    rows = tr.snapshot.get_range(begin or every.start, every.stop, limit=MAX_LOOKED_AT).to_list()
    found = [
        (kv.key, gate, Backlog.unpack(kv.value), tr.snapshot.get(keys.limits(gate)))
        for kv in rows
        for gate, *count in [keys.backlog_count.parse(kv.key)]
        if not count
    ]
    # Only those whose limits differ from what the backlog was settled by; the others have been
    # filled since.
    for row, gate, known, own in found:
        if known.settled != key_limits.effective(scope, gate, own.value).allowed:
            filled = fill(tr, scope, gate)
            # Again, until no slot is free.
            return filled, row if filled else row + b"\x00"
    return 0, rows[-1].key + b"\x00" if len(rows) == MAX_LOOKED_AT else b""


class _Filling(NamedTuple):
    """The reads of all that decides what may become ready of a key or a limit, issued and not
    awaited.

    most: how many messages may become ready at once.
    """

    backlog: fdb.Value
    own: fdb.Value
    held: list[fdb.FDBRange]
    rate: fdb.Value | None
    first: Iterable[fdb.KeyValue]
    most: int


def _filling(
    tr: fdb.Transaction,
    scope: Scope,
    gate: Gate,
    most: int = MAX_FILLED,
    beside: Iterable[fdb.KeyValue] | None = None,
) -> _Filling:
    """beside: the first that wait, if they have been read."""
    keys = gates.keys(scope, gate)
    return _Filling(
        tr.get(keys.backlog(gate)),
        tr.get(keys.limits(gate)),
        [permits.held(tr, rows, gate) for rows in permits.kinds(keys)],
        rates.issue_rate(tr, scope, gate),
        backlog.first(tr, keys, gate, most + 1) if beside is None else beside,
        most,
    )


def _filled(
    tr: fdb.Transaction, scope: Scope, gate: Gate, reads: _Filling, entry: Entry | None = None
) -> list[PassedGate]:
    """Let what may of a key or a limit become ready, all of its permits counted; returns that.

    entry: of the agenda, with which somebody looks at it.
    """
    keys, stored = gates.keys(scope, gate), reads.backlog
    allowed = key_limits.effective(scope, gate, reads.own.value).allowed
    pace = None if reads.rate is None else Pace(tr, scope, gate, allowed.rate, reads.rate)
    timed = entry is not None and entry.due_ms != OWED_MS
    if entry is not None and timed and (pace is None or not pace.fire(entry)):
        return []
    entries: list[PassedGate] = []
    if stored.present():
        kinds = zip(permits.kinds(keys), allowed.numbers, reads.held, strict=True)
        some: list[Permit] = [Permits(tr, rows, gate, limit, those) for rows, limit, those in kinds]
        some += [] if pace is None else [pace]
        line = _line(tr, scope, gate, list(reads.first), reads.most)
        entries = _hand_over(tr, scope, gate, some, line)
        if len(entries) < len(line.rows):
            known = Backlog.unpack(stored.value)
            settled = allowed if allowed.rate or permits.exhausted(some) else None
            # Written only where it differs: every enqueue to the key reads BACKLOG with a conflict.
            if known.settled != settled:
                known = Backlog(known.since_ms, settled)
                tr[keys.backlog(gate)] = known.pack()
            last, level = (line.first[-1].scope, line.level) if line.first else (scope, 0)
            lacking = next((each for each in some if not each.left), None)
            if lacking is None:
                # The others come at once, in another transaction.
                _owe(tr, last, gate, level, known)
            elif len(entries) == len(line.first):  # Nobody has come to what is used up.
                lacking.rely(last, level)
    if timed and pace is not None:
        pace.rest()
    return entries


class _Line(NamedTuple):
    """The first that wait: those that may become ready, and all rows that were read, one more than
    these if there are so many. gone: how many rows led to no message, and were removed."""

    first: list[_WaitingMessage]
    rows: list[fdb.KeyValue]
    gone: int = 0

    @property
    def level(self) -> int:
        """That of the last of the first, and probably of the next."""
        return self.first[-1].position.level


def _line(
    tr: fdb.Transaction, scope: Scope, gate: Gate, rows: list[fdb.KeyValue], count: int
) -> _Line:
    """Open the first ``count`` that wait, of rows that were read; those of a limit in their queues,
    in another round trip."""
    if isinstance(gate, str):
        first = [_waiting(scope, kv.key, kv.key, kv.value) for kv in rows[:count]]
        return _Line(first, rows)
    gone = 0
    while True:
        found = [_issued(tr, scope, kv) for kv in rows[:count]]
        first = []
        for kv, each in zip(rows, found, strict=False):
            value = None if each is None else each[2].value
            if each is None or value is None:
                # Its queue was removed without ``delete``.
                tr.add_read_conflict_key(kv.key)
                del tr[kv.key]
                gone += 1
                continue
            first.append(_waiting(each[0], kv.key, each[1], value))
        if len(first) == len(found):
            return _Line(first, rows, gone)
        rows = backlog.first(tr, scope.root.limits, gate, count + 1).to_list()


def _waiting(scope: Scope, in_line: bytes, row: bytes, value: bytes) -> _WaitingMessage:
    _, _, random = scope.keys.waiting.parse(row)
    one = Delayed.opened(value, scope.lost(random))
    return _WaitingMessage(scope, in_line, row, one.position, one.envelope)


def _issued(
    tr: fdb.Transaction, scope: Scope, kv: fdb.KeyValue
) -> tuple[Scope, bytes, fdb.Value] | None:
    """Issue the read of a message that waits for a slot of a limit, in its queue; None if that is
    gone."""
    try:
        of = catalogue.other(tr, scope, Limited.unpack(kv.value).queue)
    except QueueNotFound:
        return None
    row = of.keys.waiting(*scope.root.limits.waiting.parse(kv.key))
    return of, row, tr.get(row)


def _hand_over(
    tr: fdb.Transaction,
    scope: Scope,
    gate: Gate,
    some: Sequence[Permit],
    line: _Line,
    waited: int = 0,
) -> list[PassedGate]:
    """Let the first that wait become ready, as the permits last; returns them. One that cannot be
    read needs none: whoever is to take it makes a dead letter of it.

    waited: how many have ended while they waited, already removed.
    """
    readable = [each for each in line.first if each.envelope.readable]
    those = [(each.scope, each.position.level, each.envelope.id or "") for each in readable]
    given = iter(permits.give(some, those))
    entries = []
    for each in line.first:
        envelope = each.envelope
        if envelope.readable:
            numbers = next(given, None)
            if numbers is None:
                break
            envelope = envelope.passed(gate, *numbers)
        # A set: of a key, both are the same row.
        for row in {each.in_line, each.row}:
            tr.add_read_conflict_key(row)
            del tr[row]
        entries.append(PassedGate(each.scope, gate, StoredMessage(each.position, envelope)))
    waited += line.gone
    if entries or waited or not line.rows:  # Some may have ended of which nobody saw the last.
        keys = gates.keys(scope, gate)
        backlog.shrink(tr, keys, gate, len(entries) + waited, line.rows[len(entries) :])
    return entries
