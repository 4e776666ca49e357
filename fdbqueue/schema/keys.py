"""Where everything is stored: the one module that builds and parses keys.

One queue is one subspace. The first element of a key is its kind, a small integer, so that keys
stay short; the elements that follow are listed at each kind. Values are described in ``codec``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from types import NoneType
from typing import Any

from ..errors import CorruptData
from ..store.binding import fdb
from ..store.tuple_elements import INT_SIZES, pack_bytes, pack_int, parse_int, parse_last_bytes
from ..values.model import RANDOM_BYTES, Due, Position

DEFAULT_ROOT = fdb.Subspace(("fdbqueue",))


class Kind(IntEnum):
    """The kinds of keys in a queue's subspace."""

    META = 0  # () -> options and format version
    READY = 1  # (level, index, random) -> envelope
    TAIL = 2  # (level) -> highest index ever removed or passed, by atomic MAX
    FENCE = 3  # (level, index): never written, only conflict ranges
    LEASE = 4  # (level, index, random) -> lease; (claim, n) -> one of a plan, which never expires
    EXPIRY = 5  # (version, level, index, random) -> wall clock of the expiry, and claim
    SUBSCRIPTION = 8  # (name) -> definition
    CURSOR = 9  # (subscription, level) -> next position to inspect; (subscription) -> its holder
    CONSUMER = 10  # (session, id) -> record; an empty session: it gives its own sign of life
    STATE = 11  # (state, -priority, id) -> session, since when; () -> the guard and its session
    SLEEPER = 12  # (-priority, since, id) -> session; it goes when the consumer is woken
    COUNT = 13  # (level) -> counters, by atomic ADD
    CHANGE = 14  # () -> counter of what becomes ready; the guard and browsers watch it
    ONCE = 15  # (minute, token) -> number of the attempt that committed
    DEDUP = 17  # (window, id) -> message id and expiry
    DEAD = 18  # (index, random) -> envelope, reason, history
    CHUNK = 19  # (name, n) -> piece of a payload; the envelope has the name
    EVENT = 20  # (versionstamp, n) -> one line of delivery history
    # These three follow each other, so that one read tells a receiver that there are none.
    DELAYED = 21  # (due, random) -> position and envelope
    LEADER = 22  # () -> version until which somebody leads; (0) -> claim of who does
    REQUEST = 23  # (read version, claim) -> what the waiting consumer asks for
    MOVED = 24  # (message id) -> where the message is, where that is not what its id names
    UNIQUE = 25  # (unique key) -> id of the message that has it
    MORTAL = 26  # (expiry, message id) -> empty; messages with a time to live
    IDLE = 27  # () -> since when the queue has been drained
    IMPORT = 31  # (name) -> how far an import has come
    GROUP = 32  # (ordering key, n) -> position and envelope of a message that waits for its turn
    GROUP_HEAD = 33  # (ordering key) -> id of the message of the key that is out
    PLANNER = 36  # (consumer) -> how far its plans have come, and the run that may go on with them
    PLAN = 37  # (consumer, batch) -> the claims of the leases that the batch consists of
    SINK = 40  # (sink) -> how far its batches have come; (sink, n) -> attempts that count
    STAGED = 41  # (sink, batch, attempt, n) -> rows that are to be enqueued
    UNTIL = 42  # (claim, level, index, random) -> end of a lease extended or given in line
    ATTEMPT = 43  # (sink, batch, attempt) -> how many rows it has staged, and when


_LEASE_BYTES = 370
_PREFIXES = 16
_KINDS = {kind: fdb.tuple.pack((int(kind),)) for kind in Kind}


class RootKeys:
    """The keys beside the queues: the catalogue, and the sessions of processes.

    timeout: as of ``OnceKeys``, here and in the queues.
    """

    def __init__(self, root: fdb.Subspace, timeout: float | None = None) -> None:
        self._names = root.subspace((0,))
        self._queues = root.subspace((1,))
        self.once = OnceKeys(root.pack((2,)), timeout)
        self._sessions = root.pack((3,))
        self._session_expiry = root.pack((4,))
        self._session_queues = root.pack((5,))

    def name(self, queue: str) -> bytes:
        """The catalogue's entry of a queue."""
        return self._names.pack((queue,))

    def names(self) -> slice:
        """All entries of the catalogue."""
        return self._names.range()

    def parse_name(self, key: bytes) -> str:
        """The queue that an entry of the catalogue names."""
        return str(_unpacked(key, self._names.key(), str)[0])

    def queue(self, name: str) -> QueueKeys:
        """The keys of one queue."""
        return QueueKeys(self._queues.pack((name,)), self.once.timeout)

    def session(self, session: bytes) -> bytes:
        """(session): the process, and its last sign of life."""
        return self._sessions + pack_bytes(session)

    def sessions(self) -> slice:
        """All sessions."""
        return _within(self._sessions)

    def parse_session(self, key: bytes) -> bytes:
        """The session that such a key names."""
        return parse_last_bytes(key, len(self._sessions))

    def session_expiry(self, version: int, session: bytes) -> bytes:
        """(version, session): the sessions in the order in which they expire."""
        return self._session_expiry + pack_int(version) + pack_bytes(session)

    def session_expiries(self, first: int = 0, end: int | None = None) -> slice:
        """The sessions that expire at the version ``first`` or later, and before ``end``."""
        stop = b"\xff" if end is None else pack_int(end)
        return slice(self._session_expiry + pack_int(first), self._session_expiry + stop)

    def parse_session_expiry(self, key: bytes) -> tuple[int, bytes]:
        """The version and the session that an entry of that order names."""
        version, begin = parse_int(key, len(self._session_expiry))
        return version, parse_last_bytes(key, begin)

    def session_queue(self, session: bytes, queue: str) -> bytes:
        """(session, queue): the session has, or has had, consumers there."""
        return fdb.tuple.pack((session, queue), self._session_queues)

    def session_queues(self, session: bytes) -> slice:
        """The queues in which a session has, or has had, consumers."""
        return _within(fdb.tuple.pack((session,), self._session_queues))

    def parse_session_queue(self, key: bytes) -> tuple[bytes, str]:
        """The session and the queue that such a key names."""
        session, queue = _unpacked(key, self._session_queues, bytes, str)
        return session, queue


class OnceKeys:
    """The records of commits, below a prefix: (minute, token).

    timeout: seconds that each operation recorded here may take; None for no limit.
    """

    __slots__ = ("latest", "prefix", "timeout")

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        self.prefix = prefix
        self.timeout = timeout
        self.latest = (-1, b"")
        """The last minute that a key was asked for, and what the keys of its records begin with."""

    def key(self, minute: int, token: bytes) -> bytes:
        """(minute, token)."""
        return self.minute(minute) + pack_bytes(token)

    def minute(self, minute: int) -> bytes:
        """What the keys of a minute's records begin with; kept as ``latest``."""
        begin = self.prefix + pack_int(minute)
        self.latest = (minute, begin)
        return begin

    def before(self, minute: int) -> slice:
        """All records of earlier minutes."""
        return slice(self.prefix + b"\x00", fdb.tuple.pack((minute,), self.prefix))

    def since(self, minute: int) -> slice:
        """All records of a minute and those after it."""
        return slice(fdb.tuple.pack((minute,), self.prefix), self.prefix + b"\xff")


class LevelKeys:
    """What the keys of one level of a queue begin with, prepared for who enqueues.

    first, end: where its ready messages begin and end. label: what ids of its messages begin with.
    """

    __slots__ = ("count", "end", "fence", "first", "label", "ready", "size", "tail")

    def __init__(self, keys: QueueKeys, level: int) -> None:
        ready = keys.ready_level(level)
        self.first = fdb.KeySelector.first_greater_or_equal(ready.start)
        self.end = fdb.KeySelector.first_greater_or_equal(ready.stop)
        self.ready = ready.start[:-1]
        self.size = len(self.ready)
        self.tail = keys.tail(level)
        self.fence = keys.fence(level, 0)[:-1]  # 0 is a single byte
        self.count = keys.count(level)
        self.label = f"{level:02x}-"


class _Levels(dict[int, LevelKeys]):
    """The keys of the levels of a queue that were asked for."""

    __slots__ = ("keys_of",)

    def __init__(self, keys: QueueKeys) -> None:
        self.keys_of = keys

    def __missing__(self, level: int) -> LevelKeys:
        found = self[level] = LevelKeys(self.keys_of, level)
        return found


Leasing = tuple[int, int, bytes, bytes, bytes, bytes]


class QueueKeys:
    """The keys of one queue, below its prefix."""

    __slots__ = (
        "__weakref__",
        "_count",
        "_expiry",
        "_fence",
        "_kinds",
        "_lease",
        "_lease_until",
        "_ready",
        "_request",
        "_tail",
        "change",
        "delayed_end",
        "expiry_end",
        "first_delayed",
        "first_expiry",
        "first_in_line",
        "first_ready",
        "guard",
        "idle",
        "leader",
        "lease_bytes",
        "led",
        "levels",
        "line_end",
        "meta",
        "meta_end",
        "once",
        "prefix",
        "ready_begin",
        "ready_stop",
        "recount",
    )

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        self.prefix = prefix
        self._kinds = {kind: prefix + packed for kind, packed in _KINDS.items()}
        self.meta = self._kinds[Kind.META]
        self.meta_end = self.meta + b"\x00"
        self.levels = _Levels(self)
        self.change = self._kinds[Kind.CHANGE]
        self.idle = self._kinds[Kind.IDLE]
        self.guard = self._kinds[Kind.STATE]
        self.led = self._kinds[Kind.LEADER]
        self.leader = self.led + _packed(0)
        self.once = OnceKeys(self._kinds[Kind.ONCE], timeout)
        # Never written: two repairs of counters at once conflict here. Before all levels.
        self.recount = self._kinds[Kind.COUNT]
        self._ready = self._kinds[Kind.READY]
        self._tail = self._kinds[Kind.TAIL]
        self._lease = self._kinds[Kind.LEASE]
        self._expiry = self._kinds[Kind.EXPIRY]
        self._lease_until = self._kinds[Kind.UNTIL]
        self._request = self._kinds[Kind.REQUEST]
        self._fence = self._kinds[Kind.FENCE]
        self._count = self._kinds[Kind.COUNT]
        # About how many bytes a lease, or its end, adds to each message: counters, keys and
        # conflict ranges, each of these with the queue's prefix.
        self.lease_bytes = _LEASE_BYTES + _PREFIXES * len(prefix)
        # What a receiver reads: the first ready messages, and the first keys of what it minds.
        self.ready_begin, end = self._ready + b"\x00", self._ready + b"\xff"
        self.first_ready = fdb.KeySelector.first_greater_or_equal(self.ready_begin)
        self.ready_stop = fdb.KeySelector.first_greater_or_equal(end)
        self.first_expiry = fdb.KeySelector.first_greater_or_equal(self._expiry)
        self.expiry_end = self._expiry + b"\xff"
        self.first_delayed = fdb.KeySelector.first_greater_or_equal(self._kinds[Kind.DELAYED])
        self.delayed_end = self._kinds[Kind.DELAYED] + b"\xff"
        self.first_in_line = fdb.KeySelector.first_greater_or_equal(self.led)
        self.line_end = self._request + b"\xff"

    def __reduce__(self) -> tuple[type[QueueKeys], tuple[bytes, float | None]]:
        return QueueKeys, (self.prefix, self.once.timeout)

    def all(self) -> slice:
        """Everything that belongs to the queue."""
        return slice(self.prefix, fdb.impl.strinc(self.prefix))

    def kind(self, kind: Kind) -> slice:
        """All keys of a kind that has elements."""
        return _within(self._kinds[kind])

    # -- ready messages ----------------------------------------------------------------------

    def ready(self, position: Position) -> bytes:
        """(level, index, random)."""
        return (
            self._ready
            + _packed(position.level)
            + pack_int(position.index)
            + pack_bytes(position.random)
        )

    def ready_keys(self, level: int, index: int, randoms: bytes) -> list[bytes]:
        """(level, index, random) of messages that follow each other from an index on.

        randoms: the random parts of all, one after the other.
        """
        prefix = self._ready + _packed(level)
        return [
            prefix + pack_int(n) + pack_bytes(randoms[begin : begin + RANDOM_BYTES])
            for n, begin in enumerate(range(0, len(randoms), RANDOM_BYTES), index)
        ]

    def ready_range(self) -> slice:
        """All ready messages, in the order of delivery."""
        return _within(self._ready)

    def ready_level(self, level: int) -> slice:
        """The ready messages of one level."""
        return _within(self._ready + _packed(level))

    def ready_end(self, level: int, index: int) -> bytes:
        """Where the ready messages of a level end that have a smaller index."""
        return fdb.tuple.pack((level, index), self._ready)

    @staticmethod
    def packed_version(version: int) -> bytes:
        """A version as an element of a key."""
        size = (version.bit_length() + 7) >> 3
        return INT_SIZES[size] + version.to_bytes(size, "big")

    def leasing(self, key: bytes, claim: bytes, version: bytes) -> Leasing:
        """What a lease of a ready message needs of its READY key: level, index, random, the token,
        and the keys LEASE and EXPIRY.

        version: packed, of the expiry.
        """
        place = key[len(self._ready) :]
        middle = place[0] - 0x13
        end = middle + place[middle] - 0x13
        return (
            int.from_bytes(place[1:middle], "big"),
            int.from_bytes(place[middle + 1 : end], "big"),
            place[end + 1 : -1].replace(b"\x00\xff", b"\x00"),
            claim + place,
            self._lease + place,
            self._expiry + version + place,
        )

    def parse_ready(self, key: bytes) -> Position:
        """The position that a READY key names."""
        level, begin = parse_int(key, len(self._ready))
        index, begin = parse_int(key, begin)
        return Position(level, index, parse_last_bytes(key, begin))

    def ready_ids(self, keys: Iterable[bytes]) -> tuple[list[int], list[str]]:
        """The levels of READY keys, and the ids that name their positions, for many at once."""
        levels, ids = [], []
        # Neighbours are of one level, so its part is looked at once.
        head, level, label = b"", -1, ""
        for key in keys:
            if level < 0 or not key.startswith(head):
                level, end = parse_int(key, len(self._ready))
                head, label = key[:end], f"{level:02x}-"
            index, end = parse_int(key, len(head))
            levels.append(level)
            ids.append(f"{label}{index:012x}-{parse_last_bytes(key, end).hex()}")
        return levels, ids

    def tail(self, level: int) -> bytes:
        """(level)."""
        return self._tail + _packed(level)

    def fence(self, level: int, index: int) -> bytes:
        """(level, index)."""
        return self._fence + _packed(level) + pack_int(index)

    # -- leases ------------------------------------------------------------------------------

    def token(self, claim: bytes, ready: bytes) -> bytes:
        """The token of a lease: the claim, then where the message stands, as in its READY key."""
        return claim + ready[len(self._ready) :]

    def lease(self, token: bytes) -> bytes:
        """(level, index, random)."""
        return self._lease + token[CLAIM_BYTES:]

    def lease_at(self, position: Position) -> bytes:
        """(level, index, random)."""
        return self._lease + self.ready(position)[len(self._ready) :]

    def leased_token(self, key: bytes, claim: bytes) -> bytes:
        """The token of the lease at a LEASE key."""
        return claim + key[len(self._lease) :]

    def planned(self, claim: bytes, n: int) -> bytes:
        """(claim, n)."""
        return self._lease + pack_bytes(claim) + pack_int(n)

    def planned_under(self, claim: bytes) -> slice:
        """All leases of a plan under one claim."""
        return _within(self._lease + pack_bytes(claim))

    def planned_between(self, claim: bytes, begin: int, end: int) -> slice:
        """The leases of a plan under one claim from the n-th to before another."""
        return slice(self.planned(claim, begin), self.planned(claim, end))

    def parse_planned(self, key: bytes) -> tuple[bytes, int]:
        """The claim and the number of a lease of a plan."""
        claim, n = _unpacked(key, self._lease, bytes, int)
        return claim, n

    def until(self, token: bytes) -> bytes:
        """(claim, level, index, random)."""
        claim = token[:CLAIM_BYTES].replace(b"\x00", b"\x00\xff")
        return self._lease_until + b"\x01" + claim + b"\x00" + token[CLAIM_BYTES:]

    def until_under(self, claim: bytes) -> slice:
        """The ends of the leases under one claim."""
        return _within(self._lease_until + pack_bytes(claim))

    def parse_until(self, key: bytes) -> bytes:
        """The token of the lease whose end an UNTIL key has."""
        claim, level, index, random = _unpacked(key, self._lease_until, bytes, int, int, bytes)
        return self.token(claim, self.ready(Position(level, index, random)))

    def expiry(self, version: int, token: bytes) -> bytes:
        """(version, level, index, random)."""
        return self._expiry + self.packed_version(version) + token[CLAIM_BYTES:]

    def leased_until(self, key: bytes, claim: bytes) -> tuple[int, bytes]:
        """The version that an EXPIRY key names, and the token of its lease, whose claim the value
        has."""
        version, begin = parse_int(key, len(self._expiry))
        return version, claim + key[begin:]

    # -- imports -----------------------------------------------------------------------------

    def imported(self, name: str) -> bytes:
        """(name)."""
        return fdb.tuple.pack((name,), self._kinds[Kind.IMPORT])

    # -- plans -------------------------------------------------------------------------------

    def planner(self, consumer: str) -> bytes:
        """(consumer)."""
        return fdb.tuple.pack((consumer,), self._kinds[Kind.PLANNER])

    def parse_planner(self, key: bytes) -> str:
        """The consumer that a PLANNER key names."""
        return str(_unpacked(key, self._kinds[Kind.PLANNER], str)[0])

    def plan(self, consumer: str, batch: int) -> bytes:
        """(consumer, batch)."""
        return fdb.tuple.pack((consumer, batch), self._kinds[Kind.PLAN])

    def plans(self, consumer: str) -> slice:
        """The plans of a consumer, by batch."""
        return _within(fdb.tuple.pack((consumer,), self._kinds[Kind.PLAN]))

    def parse_plan(self, key: bytes) -> tuple[str, int]:
        """The consumer and the batch that a PLAN key names."""
        consumer, batch = _unpacked(key, self._kinds[Kind.PLAN], str, int)
        return consumer, batch

    # -- sinks -------------------------------------------------------------------------------

    def sink(self, sink: str) -> bytes:
        """(sink)."""
        return fdb.tuple.pack((sink,), self._kinds[Kind.SINK])

    def counting(self, sink: str) -> slice:
        """The attempts that count in the batch that a sink publishes, in parts."""
        return _within(self.sink(sink))

    def counting_part(self, sink: str, n: int) -> bytes:
        """(sink, n)."""
        return fdb.tuple.pack((sink, n), self._kinds[Kind.SINK])

    def parse_sink(self, key: bytes) -> tuple[str, int | None]:
        """The sink that a SINK key names, and the number of a part of its attempts."""
        name, *part = _unpacked(key, self._kinds[Kind.SINK], str, int, least=1)
        return name, part[0] if part else None

    def staged(self, sink: str, batch: int, attempt: bytes, n: int) -> bytes:
        """(sink, batch, attempt, n)."""
        return fdb.tuple.pack((sink, batch, attempt, n), self._kinds[Kind.STAGED])

    def staged_by(self, sink: str, batch: int, attempt: bytes) -> slice:
        """What one attempt has staged."""
        return _within(fdb.tuple.pack((sink, batch, attempt), self._kinds[Kind.STAGED]))

    def staged_for(self, sink: str) -> slice:
        """All that is staged for a sink."""
        return _within(fdb.tuple.pack((sink,), self._kinds[Kind.STAGED]))

    def staged_until(self, sink: str, batch: int) -> slice:
        """What is staged for a batch of a sink and for those before it."""
        return slice(
            self.staged_for(sink).start, fdb.tuple.pack((sink, batch + 1), self._kinds[Kind.STAGED])
        )

    def attempt(self, sink: str, batch: int, attempt: bytes) -> bytes:
        """(sink, batch, attempt)."""
        return fdb.tuple.pack((sink, batch, attempt), self._kinds[Kind.ATTEMPT])

    def attempts_of(self, sink: str, batch: int) -> slice:
        """The attempts that have staged rows of a batch."""
        return _within(fdb.tuple.pack((sink, batch), self._kinds[Kind.ATTEMPT]))

    def attempts_for(self, sink: str) -> slice:
        """The attempts that have staged rows for a sink."""
        return _within(fdb.tuple.pack((sink,), self._kinds[Kind.ATTEMPT]))

    def attempts_until(self, sink: str, batch: int) -> slice:
        """Those of a batch of a sink and of the batches before it."""
        end = fdb.tuple.pack((sink, batch + 1), self._kinds[Kind.ATTEMPT])
        return slice(self.attempts_for(sink).start, end)

    def parse_attempt(self, key: bytes) -> tuple[str, int, bytes]:
        """The sink, the batch and the attempt that an ATTEMPT key names."""
        sink, batch, attempt = _unpacked(key, self._kinds[Kind.ATTEMPT], str, int, bytes)
        return sink, batch, attempt

    def parse_staged(self, key: bytes) -> tuple[str, int, bytes, int]:
        """The sink, the batch, the attempt and the number that a STAGED key names."""
        sink, batch, attempt, n = _unpacked(key, self._kinds[Kind.STAGED], str, int, bytes, int)
        return sink, batch, attempt, n

    def sinks_between(self, first: str, last: str) -> list[slice]:
        """All keys of the sinks with a name from ``first`` up to before ``last``."""
        kinds = (self._kinds[kind] for kind in (Kind.SINK, Kind.STAGED, Kind.ATTEMPT))
        return [
            slice(fdb.tuple.pack((first,), kind), fdb.tuple.pack((last,), kind)) for kind in kinds
        ]

    # -- the line of consumers ---------------------------------------------------------------

    def request(self, index: int, claim: bytes) -> bytes:
        """(index, claim)."""
        return self._request + pack_int(index) + pack_bytes(claim)

    def parse_request(self, key: bytes) -> tuple[int, bytes]:
        """The index and the claim that a REQUEST key names."""
        index, begin = parse_int(key, len(self._request))
        return index, parse_last_bytes(key, begin)

    # -- subscriptions -----------------------------------------------------------------------

    def subscription(self, name: str) -> bytes:
        """(name)."""
        return fdb.tuple.pack((name,), self._kinds[Kind.SUBSCRIPTION])

    def parse_subscription(self, key: bytes) -> str:
        """The name that a SUBSCRIPTION key has."""
        return str(_unpacked(key, self._kinds[Kind.SUBSCRIPTION], str)[0])

    def holder(self, subscription: str) -> bytes:
        """(subscription): stands before its cursors."""
        return fdb.tuple.pack((subscription,), self._kinds[Kind.CURSOR])

    def cursor(self, subscription: str, level: int) -> bytes:
        """(subscription, level)."""
        return fdb.tuple.pack((subscription, level), self._kinds[Kind.CURSOR])

    def cursors(self, subscription: str) -> slice:
        """The cursors of a subscription, by level."""
        return _within(self.holder(subscription))

    def parse_cursor(self, key: bytes) -> tuple[str, int | None]:
        """The subscription and the level that a CURSOR key names; no level for its holder."""
        name, *level = _unpacked(key, self._kinds[Kind.CURSOR], str, int, least=1)
        return name, level[0] if level else None

    @staticmethod
    def place(position: Position) -> bytes:
        """A position within its level, as a cursor holds it: in the order of the READY keys."""
        return fdb.tuple.pack((position.index, position.random))

    @staticmethod
    def place_after(index: int) -> bytes:
        """The first place behind all that have ``index``."""
        return fdb.tuple.pack((index + 1, b""))

    @staticmethod
    def parse_place(place: bytes) -> int:
        """The index that a cursor has come to; 0 at the lowest place."""
        return _unpacked(place, b"", (int, NoneType), bytes, NoneType, least=1)[0] or 0

    @staticmethod
    def passed(place: bytes) -> int:
        """The last index that a cursor at a place has passed; 0 if none."""
        found = _unpacked(place, b"", (int, NoneType), bytes, NoneType, least=1)
        # A place behind a message has a third element (see subscriptions.cursor).
        return found[0] - (len(found) < 3) if found[0] else 0

    def ready_from(self, level: int, place: bytes) -> slice:
        """The ready messages of one level from a place on."""
        prefix = self._ready + _packed(level)
        return slice(prefix + place, prefix + b"\xff")

    # -- the rest ----------------------------------------------------------------------------

    def count(self, level: int) -> bytes:
        """(level)."""
        return self._count + _packed(level)

    def parse_count(self, key: bytes) -> int:
        """The level that a COUNT key names."""
        return parse_int(key, len(self._count))[0]

    def dead(self, index: int, random: bytes) -> bytes:
        """(index, random)."""
        return fdb.tuple.pack((index, random), self._kinds[Kind.DEAD])

    def parse_dead(self, key: bytes) -> tuple[int, bytes]:
        """The index and the random part of a DEAD key."""
        index, random = _unpacked(key, self._kinds[Kind.DEAD], int, bytes)
        return index, random

    def delayed(self, due: Due) -> bytes:
        """(due, random)."""
        return fdb.tuple.pack((due.due_ms, due.random), self._kinds[Kind.DELAYED])

    def delayed_until(self, now_ms: int) -> slice:
        """All messages whose delay is over at ``now_ms``."""
        return self._until(Kind.DELAYED, now_ms)

    def parse_delayed(self, key: bytes) -> Due:
        """The place that a DELAYED key names."""
        return Due(*_unpacked(key, self._kinds[Kind.DELAYED], int, bytes))

    def moved(self, message_id: str) -> bytes:
        """(message id)."""
        return fdb.tuple.pack((message_id,), self._kinds[Kind.MOVED])

    def parse_moved(self, key: bytes) -> str:
        """The message id that a MOVED key names."""
        return str(_unpacked(key, self._kinds[Kind.MOVED], str)[0])

    def unique(self, key: str) -> bytes:
        """(unique key)."""
        return fdb.tuple.pack((key,), self._kinds[Kind.UNIQUE])

    def parse_unique(self, key: bytes) -> str:
        """The unique key that a UNIQUE key names."""
        return str(_unpacked(key, self._kinds[Kind.UNIQUE], str)[0])

    def dedup(self, window_ms: int, dedup_id: str) -> bytes:
        """(begin of the window, id)."""
        return fdb.tuple.pack((window_ms, dedup_id), self._kinds[Kind.DEDUP])

    def dedup_before(self, window_ms: int) -> slice:
        """All dedup ids of the windows that began earlier."""
        return self._until(Kind.DEDUP, window_ms - 1)

    def mortal(self, expires_at_ms: int, message_id: str) -> bytes:
        """(expiry, message id)."""
        return fdb.tuple.pack((expires_at_ms, message_id), self._kinds[Kind.MORTAL])

    def mortal_until(self, now_ms: int) -> slice:
        """All messages whose time to live is over at ``now_ms``."""
        return self._until(Kind.MORTAL, now_ms)

    def parse_mortal(self, key: bytes) -> str:
        """The id of the message that a MORTAL key names."""
        return str(_unpacked(key, self._kinds[Kind.MORTAL], int, str)[1])

    def new_event(self, n: int) -> bytes:
        """(versionstamp, n), the operand of SET_VERSIONSTAMPED_KEY."""
        stamp = fdb.tuple.Versionstamp()
        return fdb.tuple.pack_with_versionstamp((stamp, n), self._kinds[Kind.EVENT])

    def event_stamp(self, key: bytes) -> bytes:
        """What an EVENT key adds to its kind: its place in history."""
        return key[len(self._kinds[Kind.EVENT]) :]

    EVENT_VERSION = slice(1, 9)
    """Where in an event's stamp the version of its commit stands, the highest byte first."""

    def events_after(self, stamp: bytes) -> slice:
        """The history that follows a stamp; all of it after an empty one."""
        events = _within(self._kinds[Kind.EVENT])
        return slice(
            self._kinds[Kind.EVENT] + stamp + b"\x00" if stamp else events.start, events.stop
        )

    def events_before(self, version: int) -> slice:
        """The history that was committed before a version."""
        stamp = fdb.tuple.Versionstamp(version.to_bytes(8, "big") + bytes(2))
        events = self._kinds[Kind.EVENT]
        return slice(_within(events).start, fdb.tuple.pack((stamp,), events))

    def _until(self, kind: Kind, last: int) -> slice:
        """All keys of a kind whose first element is at most ``last``."""
        return slice(
            _within(self._kinds[kind]).start, fdb.tuple.pack((last + 1,), self._kinds[kind])
        )

    def turn(self, key: str, n: int) -> bytes:
        """(ordering key, n)."""
        return fdb.tuple.pack((key, n), self._kinds[Kind.GROUP])

    def line(self, key: str) -> slice:
        """All messages that wait for their turn under an ordering key."""
        return _within(fdb.tuple.pack((key,), self._kinds[Kind.GROUP]))

    def parse_line(self, key: bytes) -> tuple[str, int]:
        """The ordering key and the number that a GROUP key names."""
        name, n = _unpacked(key, self._kinds[Kind.GROUP], str, int)
        return name, n

    def head(self, key: str) -> bytes:
        """(ordering key)."""
        return fdb.tuple.pack((key,), self._kinds[Kind.GROUP_HEAD])

    def parse_head(self, key: bytes) -> str:
        """The ordering key that a GROUP_HEAD key names."""
        return str(_unpacked(key, self._kinds[Kind.GROUP_HEAD], str)[0])

    def chunk(self, name: bytes, n: int) -> bytes:
        """(name, n)."""
        return fdb.tuple.pack((name, n), self._kinds[Kind.CHUNK])

    def chunks(self, name: bytes) -> slice:
        """All chunks of one payload."""
        return _within(fdb.tuple.pack((name,), self._kinds[Kind.CHUNK]))

    def parse_chunk(self, key: bytes) -> tuple[bytes, int]:
        """The name and the number that a CHUNK key names."""
        name, n = _unpacked(key, self._kinds[Kind.CHUNK], bytes, int)
        return name, n

    # -- consumers ---------------------------------------------------------------------------

    def consumer(self, session: bytes, consumer: bytes) -> bytes:
        """(session, consumer)."""
        return fdb.tuple.pack((session, consumer), self._kinds[Kind.CONSUMER])

    def consumers_of(self, session: bytes) -> slice:
        """The consumers of one session."""
        return _within(fdb.tuple.pack((session,), self._kinds[Kind.CONSUMER]))

    def parse_consumer(self, key: bytes) -> tuple[bytes, bytes]:
        """The session and the consumer that a CONSUMER key names."""
        session, consumer = _unpacked(key, self._kinds[Kind.CONSUMER], bytes, bytes)
        return session, consumer

    def state(self, state: int, priority: int, consumer: bytes) -> bytes:
        """(state, -priority, consumer): a higher priority stands first."""
        return fdb.tuple.pack((state, -priority, consumer), self._kinds[Kind.STATE])

    def in_state(self, state: int) -> slice:
        """The consumers in one state, by priority."""
        return _within(fdb.tuple.pack((state,), self._kinds[Kind.STATE]))

    def in_state_above(self, state: int, priority: int) -> slice:
        """The consumers in one state whose priority is higher than ``priority``."""
        return slice(
            self.in_state(state).start,
            fdb.tuple.pack((state, -priority), self._kinds[Kind.STATE]),
        )

    def parse_state(self, key: bytes) -> tuple[int, int, bytes]:
        """The state, the priority and the consumer that a STATE key names."""
        state, negative, consumer = _unpacked(key, self._kinds[Kind.STATE], int, int, bytes)
        return state, -negative, consumer

    def sleeper(self, priority: int, since: int, consumer: bytes) -> bytes:
        """(-priority, since, consumer): a higher priority first, then who has waited longest."""
        return fdb.tuple.pack((-priority, since, consumer), self._kinds[Kind.SLEEPER])

    def parse_sleeper(self, key: bytes) -> tuple[int, int, bytes]:
        """The priority, since when, and the consumer that a SLEEPER key names."""
        negative, since, consumer = _unpacked(key, self._kinds[Kind.SLEEPER], int, int, bytes)
        return -negative, since, consumer


LOWEST = b"\x00"
"""The place before all others."""

CLAIM_BYTES = 16


def _unpacked(
    key: bytes, prefix: bytes, *kinds: type | tuple[type, ...], least: int | None = None
) -> tuple[Any, ...]:
    """The elements that follow a prefix, which must be of these kinds; ``least``: so many of them.

    Raises ``CorruptData``: somebody else has written below the queue's subspace.
    """
    try:
        found: tuple[Any, ...] = fdb.tuple.unpack(key, len(prefix))
    except (ValueError, LookupError, TypeError, RecursionError, struct.error) as error:
        raise CorruptData(what="a key", problem=repr(error)) from None
    enough = len(found) >= (len(kinds) if least is None else least)
    if not enough or len(found) > len(kinds) or not all(map(isinstance, found, kinds)):
        raise CorruptData(what="a key", problem=f"it has other elements: {found!r}")
    return found


def _within(prefix: bytes) -> slice:
    """All keys that extend a packed prefix by whole elements."""
    return slice(prefix + b"\x00", prefix + b"\xff")


@lru_cache(maxsize=1024)
def _packed(level: int) -> bytes:
    return fdb.tuple.pack((level,))
