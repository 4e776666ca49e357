"""Planning a batch: the first messages become leases of a plan, a claim in each transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..binding import fdb
from ..codec import (
    Claimed,
    Planned,
    Stage,
    open_envelope,
    pack_index,
    pack_planned_lease,
    peek_envelope,
)
from ..errors import CorruptData, FormatTooNew
from ..keys import lease_token
from ..model import Position
from ..states import LEASE, State
from . import expiring, life, placing, plans
from .plans import Book
from .portion import ALONE_BYTES
from .scope import Scope, Standing

CLAIM_MESSAGES = 5_000
"""Messages that one transaction plans at most."""
CLAIM_BYTES = ALONE_BYTES
CLAIM_WATCHED = 1_000
"""The same where the queue keeps a history: a claim ends in one transaction, too."""
WEIGHT = 4
"""How many of those a message counts for to which something belongs elsewhere."""
MAX_CLAIMS = 2_000
"""Claims of one plan: they have to fit into one value."""

_LEASE_BYTES = 150
_PREFIXES = 3
"""About what a lease adds to an envelope in the transaction that makes it, and how often that has
the queue's prefix in it."""


@dataclass(frozen=True, slots=True)
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
    nobody need look at; the others are ``watched``, ``expired`` or
    ``unreadable``. plain: whether nothing belongs to any of them elsewhere. ended:
    whether nothing more is there, or fits in.
    """

    leases: list[tuple[Position, bytes]] = field(default_factory=list)
    size: int = 0
    spans: dict[int, tuple[bytes, bytes, int]] = field(default_factory=dict)
    tallies: dict[int, tuple[int, int]] = field(default_factory=dict)
    watched: list[Standing] = field(default_factory=list)
    expired: list[Standing] = field(default_factory=list)
    unreadable: list[Standing] = field(default_factory=list)
    plain: bool = True
    ended: bool = False


def ends(tr: fdb.Transaction, scope: Scope) -> dict[int, int]:
    """The indexes behind all messages that are ready now, by level. One round trip, snapshot."""
    looks = {level: placing.look(tr, scope.keys, level) for level in range(scope.options.levels)}
    return {level: placing.next_index(scope.keys, *look) for level, look in looks.items()}


@fdb.transactional
def fill(
    tr: fdb.Transaction,
    scope: Scope,
    book: Book,
    limits: Limits,
    claim: bytes,
    at_most: int = CLAIM_MESSAGES,
) -> bool:
    """Add the first ready messages to the plan of the next batch, as one claim, and seal it where
    there are no more, or no more fit in. Returns whether there is nothing more to do.

    claim: 16 random bytes. at_most: messages to take.

    The messages are the first ones at the moment at which the transaction began: what is more
    urgent and comes in meanwhile goes into the next batch. One round trip for some hundred
    messages. Conflicts with whoever takes one of the messages or adds one among them; not with
    enqueues behind them.
    """
    batch, plan = book.current or (book.state.last + 1, Planned(scope.now_ms(tr)))
    taken = _take(tr, scope, limits, plan, at_most)
    _remove(tr, scope, taken)
    expiring.dispose(tr, scope, State.READY, taken.expired)
    expiring.bury_unreadable(tr, scope, State.READY, taken.unreadable)
    if taken.tallies:
        life.tallied(tr, scope, LEASE, taken.tallies)
    life.moved(tr, scope, LEASE, [replace(each, consumer=book.consumer) for each in taken.watched])
    if taken.leases:
        levels: dict[int, int] = {}
        for n, (position, envelope) in enumerate(taken.leases):
            levels[position.level] = levels.get(position.level, 0) + 1
            key = scope.keys.lease(lease_token(claim, n))
            tr[key] = pack_planned_lease(position, book.consumer, envelope)
        plan = replace(
            plan,
            messages=plan.messages + len(taken.leases),
            size=plan.size + taken.size,
            claims=(*plan.claims, Claimed(claim, levels, taken.plain)),
        )
    full = plan.messages == limits.messages or len(plan.claims) == MAX_CLAIMS
    if plan.claims and (taken.ended or full):
        plan = replace(plan, stage=Stage.SEALED)
    if plan.claims:
        plans.put(tr, scope, book, batch, plan)
    return taken.ended or full


def _weigh(value: bytes) -> tuple[int, bool]:
    """As ``peek_envelope``; one that cannot be read is to be looked at whole."""
    try:
        return peek_envelope(value)
    except (CorruptData, FormatTooNew):
        return 0, False


def _take(tr: fdb.Transaction, scope: Scope, limits: Limits, plan: Planned, at_most: int) -> Taken:
    """Read the first messages at snapshot isolation, as many as fit in."""
    taken = Taken()
    if scope.options.paused:
        taken.ended = True
        return taken
    keys, now_ms = scope.keys, scope.now_ms(tr)
    silent = scope.options.history_seconds is None
    count = at_most if limits.messages is None else min(at_most, limits.messages - plan.messages)
    room, read, weight = CLAIM_BYTES, 0, 0
    each = _LEASE_BYTES + _PREFIXES * len(keys.all().start)
    for key, value in _ready(tr, scope, limits, count):
        payload, plain = _weigh(value)
        position = keys.parse_ready(key)
        size, standing = len(value), None
        if not (plain and silent):
            standing = Standing(position, open_envelope(value))
            size += standing.envelope.chunk_bytes
        if limits.size is not None and plan.size + taken.size + size > limits.size:
            taken.ended = bool(plan.messages or taken.leases)
            if taken.ended:
                return taken
        room -= len(value) + each
        if room < 0 and read:
            return taken
        read += 1
        level = position.level
        first = taken.spans[level][0] if level in taken.spans else key
        taken.spans[level] = (first, key, position.index)
        if standing is not None and not expiring.deliverable(standing, now_ms):
            ended = taken.expired if standing.envelope.opaque is None else taken.unreadable
            ended.append(standing)
            continue
        taken.leases.append((position, value))
        taken.size += size
        taken.plain = taken.plain and plain
        if standing is not None:
            taken.watched.append(standing)
            weight += 1 if plain else WEIGHT
            if weight >= CLAIM_WATCHED:
                return taken
        else:
            number, payloads = taken.tallies.get(level, (0, 0))
            taken.tallies[level] = number + 1, payloads + payload
    taken.ended = read < count
    return taken


def _remove(tr: fdb.Transaction, scope: Scope, taken: Taken) -> None:
    """Remove all that was read, by level: with the conflict, there is nothing else in between."""
    for level, (first, last, index) in taken.spans.items():
        tr.add_read_conflict_range(first, last + b"\x00")
        tr.clear_range(first, last + b"\x00")
        # As ``dequeue.remove``: its index is never used again.
        tr.max(scope.keys.tail(level), pack_index(index))


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
