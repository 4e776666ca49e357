"""Planning a batch: each transaction leases the first messages for a plan, under one claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...errors import CorruptData
from ...schema.envelope import Envelope
from ...schema.records import BacklogPlace, Delayed, PlannedPlace
from ...schema.scope import Scope, StoredMessage
from ...schema.streams import Claimed, Planned, Stage
from ...store.binding import fdb, transactional
from ...values.states import LEASE, State
from .. import lookup, place, run, settle, transitions
from ..delivery import queue_limits
from ..run import MessageRun
from ..settle import Leaving
from ..slots import backlog
from ..transaction_budget import STEP_BYTES
from . import plans, ready_rows
from .plans import OpenPlans
from .ready_rows import ReadyPart

CLAIM_MESSAGES = 10_000
"""The most messages that one transaction plans."""
CLAIM_BYTES = STEP_BYTES
CLAIM_WATCHED = 1_000
"""The same for a queue with history, since one transaction also has to end the claim."""
WEIGHT = 4
"""How many such messages one with side records counts for."""
MAX_CLAIMS = 2_000
"""The most claims of a plan, which is one value."""

PLAN_BYTES = 80_000
_LEASE_BYTES = 150
_PREFIXES = 3
"""About what a lease adds to an envelope in its transaction: bytes, and prefixes of the queue."""


class BatchLimits(Struct, frozen=True):
    """How many messages, and bytes of envelopes and payloads, a batch may hold; None for no bound.

    A batch holds at least one message, whatever its size. ends: the index, by level, to stop at.
    """

    messages: int | None = None
    size: int | None = None
    ends: Mapping[int, int] | None = None


class LevelSpan(NamedTuple):
    """What was read of a level: the rows of the first and of the last message, and which of their
    messages these are."""

    first_row: MessageRun
    first: int
    row: MessageRun
    last: int


@dataclass(slots=True)
class TakenPiece:
    """Messages of a row that are taken one after the other."""

    row: MessageRun
    begin: int
    end: int


@dataclass(slots=True)
class TakenMessages:
    """Messages that one transaction has read in order to take them.

    pieces: those for the plan, with ``count`` messages of ``size`` bytes with chunks. spans: what
    was read, by level. numbers, sizes: by level, how many of those to count only, and bytes of
    their payloads; the others are ``watched`` or ``unfit``. turns: the keys of those that waited
    for their ordering keys. seen: those, and the keys of others that waited and have expired: a key
    that had more slots may have several ready messages, which lead to the same ones. joined: by
    number, the leases that continue the ordering key of the one before. key: the ordering key of
    the last, if more messages wait for it. plain: whether none has side records. ended: whether no
    more messages exist, or fit.
    """

    pieces: list[TakenPiece] = field(default_factory=list)
    count: int = 0
    size: int = 0
    spans: dict[int, LevelSpan] = field(default_factory=dict)
    numbers: Counter[int] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    watched: list[StoredMessage] = field(default_factory=list)
    unfit: list[Leaving] = field(default_factory=list)
    turns: list[bytes] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    joined: dict[int, StoredMessage] = field(default_factory=dict)
    key: str | None = None
    plain: bool = True
    ended: bool = False


def ends(tr: fdb.Transaction, scope: Scope) -> dict[int, int]:
    """The index behind all messages that are ready now, by level. One round trip, snapshot."""
    ends = {level: place.reads(tr, scope.keys, level) for level in range(scope.options.levels)}
    levels = scope.keys.levels
    return {level: place.next_index(levels[level], *end) for level, end in ends.items()}


@transactional
def fill(
    tr: fdb.Transaction,
    scope: Scope,
    opened: OpenPlans,
    limits: BatchLimits,
    claim: bytes,
    at_most: int = CLAIM_MESSAGES,
) -> bool:
    """Add the first ready messages to the plan of the next batch, under one claim, and seal the
    plan if no more exist or fit. Returns whether the batch is complete.

    claim: 16 random bytes. at_most: how many messages to take.

    Takes the first messages as of the start of the transaction; more urgent ones that arrive
    meanwhile go into the next batch. Messages that wait for the ordering key of one of them follow
    it. One round trip for some hundred messages, one more if some have ordering keys. Conflicts
    with takers of the same messages and with messages added among them; not with enqueues behind
    them, except of the same ordering keys.
    """
    batch, plan = opened.current or (opened.state.last + 1, Planned(scope.now_ms(tr)))
    taken = _take(tr, scope, opened.state.begins, limits, plan, at_most)
    if taken.pieces:
        queue_limits.count(tr, scope, taken.count)
    _remove(tr, scope, taken)
    settle.carry_out(tr, scope, State.READY, taken.unfit)
    watched = [replace(each, consumer=opened.consumer) for each in taken.watched]
    transitions.record(tr, scope, LEASE, watched, taken.numbers, taken.sizes)
    if taken.pieces:
        levels: dict[int, int] = {}
        for piece in taken.pieces:
            level = piece.row.position.level
            levels[level] = levels.get(level, 0) + piece.end - piece.begin
        leased = (piece.row.part(piece.begin, piece.end) for piece in taken.pieces)
        # Under one random claim: if the commit's outcome is unknown, the repeated transaction finds
        # it in the plan.
        run.plan(tr, scope.keys, claim, opened.consumer, leased)
        for n, message in taken.joined.items():
            place = PlannedPlace(claim, n)
            lookup.point(tr, scope.keys, message, place)
        plan = replace(
            plan,
            messages=plan.messages + taken.count,
            size=plan.size + taken.size,
            claims=(*plan.claims, Claimed(claim, levels, taken.plain, _bits(taken.joined))),
        )
    plan = replace(plan, key=taken.key)
    enough = limits.messages is not None and plan.messages >= limits.messages
    full = enough or len(plan.claims) == MAX_CLAIMS
    full = full or len(plan.pack()) > PLAN_BYTES
    if plan.claims and (taken.ended or full):
        # A sealed plan never changes: a batch that is repeated has the same messages.
        plan = replace(plan, stage=Stage.SEALED, key=None)
    if plan.claims:
        plans.write(tr, scope, opened, batch, plan)
    return taken.ended or full


def _take(
    tr: fdb.Transaction,
    scope: Scope,
    begins: Mapping[int, bytes],
    limits: BatchLimits,
    plan: Planned,
    at_most: int,
) -> TakenMessages:
    """Read as many of the first messages as fit, at snapshot isolation."""
    taken = TakenMessages()
    if scope.options.paused:
        taken.ended = True
        return taken
    now_ms = scope.now_ms(tr)
    # A run before, which has died, may have planned more than this one wants.
    left = at_most if limits.messages is None else max(0, limits.messages - plan.messages)
    count = queue_limits.room(tr, scope, min(at_most, left))
    if not count:
        taken.ended = True
        return taken
    each = _LEASE_BYTES + _PREFIXES * len(scope.keys.all().start)
    room = _Room(taken, limits, plan, count, each)
    if plan.key:
        # The transaction before ended within the messages of an ordering key: nothing may come
        # between them.
        rest = ready_rows.run_of(tr, scope, plan.key)
        if not _join(tr, scope, room, plan.key, rest, now_ms):
            return taken
    read = 0
    for part, line in ready_rows.first_parts(tr, scope, begins, limits.ends, count):
        message = part.message
        chunk_bytes = message.envelope.chunk_bytes if message else 0
        fits = room.fitting(part.values, chunk_bytes)
        if not fits:
            return taken
        read += fits
        last = part.row.at(part.begin + fits - 1)
        _pass(taken, part, fits)
        if message is None:
            taken.numbers[last.level] += fits
            taken.sizes[last.level] += sum(part.payloads[:fits])
            room.add(part.row, part.begin, part.begin + fits)
            if fits < len(part.values):
                return taken
            continue
        unfit = settle.unfit(message, now_ms)
        if unfit is not None:
            taken.unfit.append(unfit)
            continue
        room.add(part.row, part.begin, part.begin + 1, message)
        taken.watched.append(message)
        room.weight += 1 if part.plain else WEIGHT
        ordering = message.envelope.key
        if ordering and not _join(tr, scope, room, ordering, line, now_ms):
            return taken
    taken.ended = read < count
    return taken


def _pass(taken: TakenMessages, part: ReadyPart, count: int) -> None:
    """Note that the first messages of a part were read."""
    level = part.row.position.level
    before = taken.spans.get(level)
    first = (part.row, part.begin) if before is None else (before.first_row, before.first)
    taken.spans[level] = LevelSpan(*first, part.row, part.begin + count - 1)


class _Room:
    """The room left in a claim."""

    def __init__(
        self, taken: TakenMessages, limits: BatchLimits, plan: Planned, count: int, each: int
    ) -> None:
        self.taken = taken
        self._each = each
        self.weight = 0
        self._limit = None if limits.size is None else limits.size - plan.size
        self._begun = plan.messages > 0
        self._left = count
        self._bytes = CLAIM_BYTES
        self._any = False

    def fitting(self, values: Sequence[bytes], chunk_bytes: int = 0) -> int:
        """How many of the first messages with these envelopes fit.

        chunk_bytes: of a message that comes alone.
        """
        if self._left <= 0 or self.weight >= CLAIM_WATCHED:
            return 0
        taken, size = self.taken, self.taken.size
        length = sum(map(len, values))
        rest = self._bytes - length - len(values) * self._each
        within = self._limit is None or size + length + chunk_bytes <= self._limit
        if len(values) <= self._left and within and rest >= 0:
            self._bytes, self._any = rest, True
            return len(values)
        for fits, value in enumerate(values[: self._left]):
            size += len(value) + chunk_bytes
            if self._limit is not None and size > self._limit:
                # A single message above the limit is a batch of its own: it would otherwise never
                # be planned.
                taken.ended = self._begun or taken.count > 0 or fits > 0
                if taken.ended:
                    return fits
            self._bytes -= len(value) + self._each
            if self._bytes < 0 and self._any:
                return fits
            self._any = True
        return min(len(values), self._left)

    def add(
        self, row: MessageRun, begin: int, end: int, message: StoredMessage | None = None
    ) -> None:
        """Add messages of a row that fit; one that was opened, if ``message`` is given."""
        taken, size = self.taken, sum(map(len, row.values[begin:end]))
        last = taken.pieces[-1] if taken.pieces else None
        if last is not None and last.row is row and last.end == begin:
            last.end = end
        else:
            taken.pieces.append(TakenPiece(row, begin, end))
        taken.count += end - begin
        envelope = message.envelope if message else None
        taken.size += size + (envelope.chunk_bytes if envelope else 0)
        taken.plain = taken.plain and (envelope is None or envelope.plain)
        self._left -= end - begin


def _join(
    tr: fdb.Transaction,
    scope: Scope,
    room: _Room,
    ordering: str,
    line: Iterable[fdb.KeyValue],
    now_ms: int,
) -> bool:
    """Take as many messages that wait for an ordering key as fit; returns whether that is all.

    They never had an index, so their leases have the index 0.
    """
    taken = room.taken
    for kv in line:
        if kv.key in taken.seen:
            continue
        try:
            waiting = Delayed.unpack(kv.value)
            position, value = waiting.position, waiting.packed
            envelope = Envelope.unpack(value)
        except CorruptData:
            return True  # it is dealt with once it is ready
        if envelope.limits:
            return True  # it needs slots of these, too, and those that follow do not overtake it
        if not room.fitting([value], envelope.chunk_bytes):
            taken.key = ordering
            return False
        taken.seen.add(kv.key)
        waited = StoredMessage(
            position, envelope, turn=BacklogPlace(*scope.keys.waiting.parse(kv.key))
        )
        if (unfit := settle.unfit(waited, now_ms)) is not None:
            # Its end counts it out of the backlog.
            tr.add_read_conflict_key(kv.key)
            del tr[kv.key]
            taken.unfit.append(unfit)
            continue
        taken.turns.append(kv.key)
        taken.joined[taken.count] = waited
        outside = replace(position, index=0)
        room.add(MessageRun(kv.key, outside, [value]), 0, 1, waited)
        taken.watched.append(waited)
        room.weight += WEIGHT
    return True


def _bits(numbers: Iterable[int]) -> bytes:
    """A bit for each number, as in ``Claimed.joined``."""
    bits = sum(1 << n for n in numbers)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _remove(tr: fdb.Transaction, scope: Scope, taken: TakenMessages) -> None:
    """Remove everything that was read; the conflict keeps other messages out of these ranges."""
    for level, span in taken.spans.items():
        first_row, first, row, last = span
        begin, end = first_row.span.start, row.span.stop
        # Read at snapshot isolation, which keeps long reads from failing; here that becomes a claim
        # on all that was taken, and on nothing behind it.
        tr.add_read_conflict_range(begin, end)
        # As a range: ten thousand single clears would not fit into the transaction.
        tr.clear_range(begin, end)
        place.leave(tr, scope.keys.levels[level], row.position.index)
        # The first and the last row may have been taken in part.
        if first_row is not row:
            run.leave(tr, first_row, range(first, len(first_row)))
            first = 0
        run.leave(tr, row, range(first, last + 1))
    for turn in taken.turns:
        # They are next: the message ahead of them is in this plan.
        tr.add_read_conflict_key(turn)
        del tr[turn]
    if taken.turns:
        of_key = (scope.keys.waiting.parse(turn)[0] for turn in taken.turns)
        backlog.leave(tr, scope.keys, Counter(of_key))
