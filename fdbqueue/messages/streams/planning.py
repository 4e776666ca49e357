"""Planning a batch: the first messages become leases of a plan, a claim in each transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...errors import CorruptData, FormatTooNew
from ...schema.codec.atomic import pack_index
from ...schema.codec.delayed import open_delayed
from ...schema.codec.envelopes import open_envelope, peek_envelope, unpack_envelope
from ...schema.codec.leases import pack_planned_lease
from ...schema.codec.lookup import PlannedPlace, Turn
from ...schema.codec.plans import Claimed, Planned, Stage, pack_plan
from ...schema.keys import QueueKeys
from ...schema.scope import Scope, StoredMessage
from ...store.binding import fdb, transactional
from ...values.model import Position
from ...values.records import record
from ...values.states import LEASE, State
from .. import lookup, time_to_live, transitions
from ..enqueue import index_allocation
from ..transaction_budget import STEP_BYTES
from . import plans
from .plans import OpenPlans

CLAIM_MESSAGES = 5_000
"""Messages that one transaction plans at most."""
CLAIM_BYTES = STEP_BYTES
CLAIM_WATCHED = 1_000
"""The same where the queue keeps a history: a claim ends in one transaction, too."""
WEIGHT = 4
"""How many of those a message counts for to which something belongs elsewhere."""
MAX_CLAIMS = 2_000
"""Claims of one plan: they have to fit into one value."""

PLAN_BYTES = 80_000
LOOK_AHEAD = 20
"""Messages with something beside their envelopes, of which the lines are read at once."""

_LEASE_BYTES = 150
_PREFIXES = 3
"""About what a lease adds to an envelope in the transaction that makes it, and how often that has
the queue's prefix in it."""


@record
class Limits:
    """What a batch may hold: messages, and bytes of envelopes and payloads; no bound where None.

    One message at least, whatever its size. ends: the indexes, by level, at which to stop: what is
    there at some moment.
    """

    messages: int | None = None
    size: int | None = None
    ends: Mapping[int, int] | None = None


@dataclass(slots=True)
class Taken:
    """Messages that one transaction has read, to take them.

    leases: the positions and the stored envelopes of those that go into the plan, of ``size``
    bytes with their chunks. spans: the first and the last key of all that were read, and the index
    of that, by level. tallies: how many, and how many bytes of payloads, by level, of those that
    nobody need look at; the others are ``watched``, ``expired`` or ``unreadable``. turns: the keys
    of those that waited under their ordering keys. joined: those of the leases, by number, that
    continue the key of the one before. key: the ordering key of the last, if more waits under it.
    plain: whether nothing belongs to any of them elsewhere. ended: whether nothing more is there,
    or fits in.
    """

    leases: list[tuple[Position, bytes]] = field(default_factory=list)
    size: int = 0
    spans: dict[int, tuple[bytes, bytes, int]] = field(default_factory=dict)
    tallies: dict[int, tuple[int, int]] = field(default_factory=dict)
    watched: list[StoredMessage] = field(default_factory=list)
    expired: list[StoredMessage] = field(default_factory=list)
    unreadable: list[StoredMessage] = field(default_factory=list)
    turns: list[bytes] = field(default_factory=list)
    joined: dict[int, StoredMessage] = field(default_factory=dict)
    key: str | None = None
    plain: bool = True
    ended: bool = False


def ends(tr: fdb.Transaction, scope: Scope) -> dict[int, int]:
    """The indexes behind all messages that are ready now, by level. One round trip, snapshot."""
    looks = {
        level: index_allocation.look(tr, scope.keys, level) for level in range(scope.options.levels)
    }
    return {level: index_allocation.next_index(scope.keys, *look) for level, look in looks.items()}


@transactional
def fill(
    tr: fdb.Transaction,
    scope: Scope,
    book: OpenPlans,
    limits: Limits,
    claim: bytes,
    at_most: int = CLAIM_MESSAGES,
) -> bool:
    """Add the first ready messages to the plan of the next batch, as one claim, and seal it where
    there are no more, or no more fit in. Returns whether there is nothing more to do.

    claim: 16 random bytes. at_most: messages to take.

    The messages are the first ones at the moment at which the transaction began: what is more
    urgent and comes in meanwhile goes into the next batch. What waits for one of them under its
    ordering key follows it, in order. One round trip for some hundred messages, one more for some
    with ordering keys. Conflicts with whoever takes one of the messages or adds one among them;
    not with enqueues behind them, but for those of the same ordering keys.
    """
    batch, plan = book.current or (book.state.last + 1, Planned(scope.now_ms(tr)))
    taken = _take(tr, scope, limits, plan, at_most)
    _remove(tr, scope, taken)
    time_to_live.expire(tr, scope, State.READY, taken.expired)
    time_to_live.reject_unreadable(tr, scope, State.READY, taken.unreadable)
    if taken.tallies:
        transitions.record_counts(tr, scope, LEASE, taken.tallies)
    transitions.record(
        tr, scope, LEASE, [replace(each, consumer=book.consumer) for each in taken.watched]
    )
    if taken.leases:
        levels: dict[int, int] = {}
        for n, (position, envelope) in enumerate(taken.leases):
            levels[position.level] = levels.get(position.level, 0) + 1
            tr[scope.keys.planned(claim, n)] = pack_planned_lease(position, book.consumer, envelope)
        for n, message in taken.joined.items():
            place = PlannedPlace(claim, n)
            lookup.point(tr, scope.keys, replace(message, turn=None), place)
        plan = plan._replace(
            messages=plan.messages + len(taken.leases),
            size=plan.size + taken.size,
            claims=(*plan.claims, Claimed(claim, levels, taken.plain, _bits(taken.joined))),
        )
    plan = plan._replace(key=taken.key)
    full = plan.messages == limits.messages or len(plan.claims) == MAX_CLAIMS
    full = full or len(pack_plan(plan)) > PLAN_BYTES
    if plan.claims and (taken.ended or full):
        plan = plan._replace(stage=Stage.SEALED, key=None)
    if plan.claims:
        plans.write(tr, scope, book, batch, plan)
    return taken.ended or full


def _weigh(value: bytes) -> tuple[int, bool]:
    """As ``peek_envelope``; one that cannot be read is to be looked at whole."""
    try:
        return peek_envelope(value)
    except (CorruptData, FormatTooNew):
        return 0, False


def _take(tr: fdb.Transaction, scope: Scope, limits: Limits, plan: Planned, at_most: int) -> Taken:
    """Read the first messages at snapshot isolation, as many as fit in.

    What waits for one of them under its ordering key follows it.
    """
    taken = Taken()
    if scope.options.paused:
        taken.ended = True
        return taken
    now_ms = scope.now_ms(tr)
    silent = scope.options.history_seconds is None
    count = at_most if limits.messages is None else min(at_most, limits.messages - plan.messages)
    each = _LEASE_BYTES + _PREFIXES * len(scope.keys.all().start)
    room = _Room(taken, limits, plan, count, each)
    if plan.key and not _join(tr, scope, room, plan.key, _line(tr, scope.keys, plan.key), now_ms):
        return taken
    read = 0
    for row in _ahead(tr, scope, _ready(tr, scope, limits, count), silent):
        key, value, payload, plain, standing, line = row
        size = len(value) + (standing.envelope.chunk_bytes if standing else 0)
        if room.full or not room.takes(len(value), size):
            return taken
        read += 1
        position = scope.keys.parse_ready(key)
        level = position.level
        first = taken.spans[level][0] if level in taken.spans else key
        taken.spans[level] = (first, key, position.index)
        if standing is not None and not time_to_live.deliverable(standing, now_ms):
            ended = taken.expired if standing.envelope.opaque is None else taken.unreadable
            ended.append(standing)
            continue
        room.add(position, value, size, plain)
        if standing is None:
            number, payloads = taken.tallies.get(level, (0, 0))
            taken.tallies[level] = number + 1, payloads + payload
            continue
        taken.watched.append(standing)
        room.weight += 1 if plain else WEIGHT
        ordering = standing.envelope.key
        if ordering and not _join(tr, scope, room, ordering, line, now_ms):
            return taken
    taken.ended = read < count
    return taken


class _Room:
    """What still fits into a claim."""

    def __init__(self, taken: Taken, limits: Limits, plan: Planned, count: int, each: int) -> None:
        self.taken = taken
        self._each = each
        self.weight = 0
        self._limit = None if limits.size is None else limits.size - plan.size
        self._begun = plan.messages > 0
        self._left = count
        self._bytes = CLAIM_BYTES
        self._any = False

    @property
    def full(self) -> bool:
        """Whether nothing fits, whatever its size."""
        return self._left <= 0 or self.weight >= CLAIM_WATCHED

    def takes(self, length: int, size: int) -> bool:
        """Whether a message fits whose envelope has so many bytes, and so many with its chunks."""
        taken = self.taken
        if self._limit is not None and taken.size + size > self._limit:
            taken.ended = self._begun or bool(taken.leases)
            if taken.ended:
                return False
        self._bytes -= length + self._each
        if self._bytes < 0 and self._any:
            return False
        self._any = True
        return True

    def add(self, position: Position, value: bytes, size: int, plain: bool) -> None:
        """Take a message in."""
        taken = self.taken
        taken.leases.append((position, value))
        taken.size += size
        taken.plain = taken.plain and plain
        self._left -= 1


def _line(tr: fdb.Transaction, keys: QueueKeys, ordering: str) -> fdb.FDBRange:
    """Issue a read of what waits under an ordering key, the first of it at first."""
    line = keys.line(ordering)
    return tr.snapshot.get_range(line.start, line.stop)


def _join(
    tr: fdb.Transaction,
    scope: Scope,
    room: _Room,
    ordering: str,
    line: Iterable[fdb.KeyValue],
    now_ms: int,
) -> bool:
    """Take what waits under an ordering key, as much as fits in; returns whether that is all.

    Messages that never had a place in the queue: their leases have the index 0.
    """
    taken = room.taken
    for kv in line:
        try:
            position, value = open_delayed(kv.value)
            envelope = unpack_envelope(value)
        except (CorruptData, FormatTooNew):
            return True  # what cannot be read is for whoever finds it ready
        size = len(value) + envelope.chunk_bytes
        if room.full or not room.takes(len(value), size):
            taken.key = ordering
            return False
        taken.turns.append(kv.key)
        waited = StoredMessage(position, envelope, turn=Turn(*scope.keys.parse_line(kv.key)))
        if envelope.expired(now_ms):
            taken.expired.append(waited)
            continue
        taken.joined[len(taken.leases)] = waited
        room.add(replace(position, index=0), value, size, False)
        taken.watched.append(waited)
        room.weight += WEIGHT
    return True


_Row = tuple[bytes, bytes, int, bool, StoredMessage | None, Iterable[fdb.KeyValue]]


def _ahead(
    tr: fdb.Transaction, scope: Scope, rows: Iterable[tuple[bytes, bytes]], silent: bool
) -> Iterator[_Row]:
    """Ready messages, and what waits for them, which is read some messages ahead."""
    ahead: deque[_Row] = deque()
    for key, value in rows:
        payload, plain = _weigh(value)
        standing: StoredMessage | None = None
        line: Iterable[fdb.KeyValue] = ()
        if not (plain and silent):
            standing = StoredMessage(scope.keys.parse_ready(key), open_envelope(value))
        if standing and standing.envelope.key:
            line = _line(tr, scope.keys, standing.envelope.key)
        ahead.append((key, value, payload, plain, standing, line))
        if plain or len(ahead) > LOOK_AHEAD:
            yield ahead.popleft()
    yield from ahead


def _bits(numbers: Iterable[int]) -> bytes:
    """A bit for each number, as in ``Claimed.joined``."""
    bits = sum(1 << n for n in numbers)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _remove(tr: fdb.Transaction, scope: Scope, taken: Taken) -> None:
    """Remove all that was read, by level: with the conflict, there is nothing else in between."""
    for level, (first, last, index) in taken.spans.items():
        tr.add_read_conflict_range(first, last + b"\x00")
        tr.clear_range(first, last + b"\x00")
        # As ``dequeue.remove``: its index is never used again.
        tr.max(scope.keys.tail(level), pack_index(index))
    for turn in taken.turns:
        # Nobody comes before them: whoever is out under the key is in this plan.
        tr.add_read_conflict_key(turn)
        del tr[turn]


def _ready(
    tr: fdb.Transaction, scope: Scope, limits: Limits, count: int
) -> Iterator[tuple[bytes, bytes]]:
    """The first ready messages up to the ends, ``count`` of them at most."""
    keys, mode = scope.keys, fdb.StreamingMode.want_all
    begin, end = keys.ready_range().start, keys.ready_range().stop
    while count:
        behind = None
        for kv in tr.snapshot.get_range(begin, end, limit=count, streaming_mode=mode):
            if limits.ends is not None:
                position = keys.parse_ready(kv.key)
                if position.index >= limits.ends[position.level]:
                    behind = position.level
                    break
            count -= 1
            yield kv.key, kv.value
        if behind is None:
            return
        # The rest of the level came later; go on with the next one.
        begin = keys.ready_level(behind).stop
