"""Where everything is stored: the one table of keys, and what is prepared of them.

One queue is one subspace. The first element of a key is a small integer, so that keys stay short.
A row of the table says what the other elements are, and what is stored; ``key_kinds`` packs and
parses by it. ``codec`` describes the values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from types import NoneType
from typing import Annotated, NamedTuple
from zlib import crc32

from ..errors import CorruptData, InvalidArgument
from ..store import world
from ..store.binding import fdb
from ..store.client import pack_bytes, pack_int, parse_int, parse_last_bytes
from ..values.limits import Gate as _Gate
from ..values.model import RANDOM_BYTES, HeaderValue, Position
from . import consumers, leases, records, streams
from .codec import unpack_index, unpack_time
from .key_kinds import KeyTable, Kind, KindKeys, Single, elements, unpacked, within

DEFAULT_ROOT = fdb.Subspace(("fdbqueue",))
TOKEN_BYTES = 12
"""Enough that no two of a minute are alike: of a billion, one pair in 10^11 minutes."""
LOWEST = b"\x00"
"""The cursor before all messages of a level."""
HASHES = 2**32
"""Members of groups stand by the hashes of their ids, which are below this."""
SHARDS = 16
"""Over how many keys the counters of a group are spread."""
WORK, TIDYING, SHARED = 256, 512, 1_024
"""The ranks of the agenda behind those of delayed messages, see ``AgendaKeys``."""
_LEASE_BYTES = 370
_PREFIXES = 16
_TUPLE = b"\x05"
"""What a tuple within a key begins with."""

Attempt = Annotated[bytes, "attempt"]
Batch = Annotated[int, "batch"]
Chunks = Annotated[bytes, "chunks"]
Claim = Annotated[bytes, "claim"]
Consumer = Annotated[bytes, "consumer"]
DedupId = Annotated[str, "dedup id"]
Due = Annotated[int, "due"]
Gate = Annotated[_Gate, "gate"]
Group = Annotated[str, "group"]
Hash = Annotated[int, "hash"]
Index = Annotated[int, "index"]
Level = Annotated[int, "level"]
Message = Annotated[str, "message"]
MinuteN = Annotated[int, "minute"]
N = Annotated[int, "n"]
Name = Annotated[str, "name"]
Part = Annotated[int, "part"]
Priority = Annotated[int, "-priority"]
Random = Annotated[bytes, "random"]
Rank = Annotated[int, "rank"]
SessionId = Annotated[bytes, "session"]
Since = Annotated[int, "since"]
Sort = Annotated[int, "what"]
Stamp = Annotated[fdb.tuple.Versionstamp, "stamp"]
State = Annotated[int, "state"]
Subject = Annotated[_Gate, "of"]
Token = Annotated[bytes, "token"]
Unique = Annotated[str, "unique"]
Value = Annotated[HeaderValue, "value"]
Version = Annotated[int, "version"]
Window = Annotated[int, "window"]
Zero = Annotated[int, "0"]


class Record:
    """A record, which one operation at a time writes to.

    minute: under which it stands. attempts: how many it has numbered.
    """

    __slots__ = ("attempts", "key", "minute")

    def __init__(self, key: bytes, minute: Minute) -> None:
        self.key, self.minute, self.attempts = key, minute, 0


class Minute(NamedTuple):
    """The minute under which new records of a database stand, until a time of the monotonic clock.

    process: the world of the process that may use the records: a forked child must not use those of
    its parent. free: records of operations that have ended.
    """

    database: fdb.Database | None
    process: world.World
    number: int
    until: float
    free: list[Record]


class OnceKeys(KindKeys[MinuteN, Token]):
    """The records of commits.

    timeout: seconds that each operation recorded here may take; None for no limit. latest: the
    minute that was read last; threads share it, so it is replaced as a whole.
    """

    timeout: float | None = None
    latest = Minute(None, world.current, 0, 0.0, [])

    @classmethod
    def unrecorded(cls, timeout: float | None) -> OnceKeys:
        """For operations that write nothing, and so record nothing."""
        keys = cls(0, "", "")
        keys.timeout = timeout
        return keys

    def keep(self, database: fdb.Database, minute: int, until: float) -> Minute:
        """Keep a minute that was read."""
        self.latest = found = Minute(database, world.current, minute, until, [])
        return found

    def new(self, minute: Minute) -> Record:
        """A record that nobody has used."""
        return Record(self(minute.number, world.urandom(TOKEN_BYTES)), minute)


class LogKeys(KindKeys[Stamp, N]):
    """The lines of a log, in the order of their commits; ``n`` tells those of one commit apart.

    A stamp is what the key of a line adds to those of the log.
    """

    VERSION = slice(1, 9)
    """Where in a stamp the version of its commit stands, the highest byte first."""

    def new(self, n: int) -> bytes:
        """The key of a new line, the operand of SET_VERSIONSTAMPED_KEY."""
        return fdb.tuple.pack_with_versionstamp((fdb.tuple.Versionstamp(), n), self.prefix)

    def stamp(self, key: bytes) -> bytes:
        """The stamp of a line."""
        return key[len(self.prefix) :]

    def stamps(self, key: bytes, events: int) -> list[bytes]:
        """The stamps of the last events up to a line: what the key of each would add."""
        commit, last = self.parse(key)
        first = last - events + 1
        return [fdb.tuple.pack((commit, n)) for n in range(first, last + 1)]

    def after(self, stamp: bytes) -> slice:
        """The lines that follow a stamp; all lines after an empty one."""
        begin = self.prefix + stamp + b"\x00" if stamp else self.rows.start
        return slice(begin, self.end)

    def until(self, version: int) -> slice:
        """The lines that were committed before a version."""
        return slice(self.rows.start, self.prefix + self.stamp_before(version))

    @staticmethod
    def stamp_before(version: int) -> bytes:
        """A stamp behind those of what was committed before a version, and before all others."""
        stamp = fdb.tuple.Versionstamp(version.to_bytes(8, "big") + bytes(2))
        return fdb.tuple.pack((stamp,))


class What(IntEnum):
    """What falls due beside delayed messages: the third element of such an entry."""

    EXPIRED = 0
    """The time to live of a message is over."""
    RESULT = 1
    """A result is kept no longer."""
    WINDOW = 2
    """The dedup ids of a window are remembered no longer."""
    GROUP = 3
    """A group is to be forgotten, or its callback is still to come."""
    GATE = 4
    """Messages may pass a key or a limit, by its rate or since it is owed."""
    REST = 5
    """What is known of the rate of a key or a limit has no meaning any more."""


class AgendaKeys(KeyTable):
    """The keys of an agenda: all that falls due by the wall clock, by rank and time.

    A rank says how urgent it is. The delayed messages of a level have its number, what may bring
    messages of a level has ``WORK`` more, and what brings none is ``TIDYING``, behind all levels.
    ``SHARED`` has no entries: EARLIEST has it, with a time that never comes, where messages of a
    queue count in limits, so that the agenda of the root matters, too.
    """

    earliest = KindKeys[Rank](
        21, unpack_time, "not later than that of any DUE of the rank, by BYTE_MIN"
    )
    delayed = KindKeys[Level, Due, Random](
        52, records.Delayed, "a message that is due later", "DUE"
    )

    entry = KindKeys[Rank, Due, Sort, Subject](52, "nothing", "what else falls due")

    def delayed_messages(self, level: int | None = None) -> slice:
        """The delayed messages of a level, or of all: by level, and then by time."""
        if level is not None:
            return self.delayed.under(level)
        return slice(self.delayed.rows.start, self.delayed.begin(WORK))

    def work(self) -> slice:
        """What is not a message, and may bring some."""
        return slice(self.entry.begin(WORK), self.entry.begin(TIDYING))

    def due(self, rank: int, time_ms: int) -> slice:
        """The entries of a rank that are due at a time."""
        return self.delayed.before(rank, time_ms + 1)

    def due_later(self, rank: int, time_ms: int) -> slice:
        """The entries of a rank that are due after a time."""
        return slice(self.delayed.begin(rank, time_ms + 1), self.delayed.under(rank).stop)

    def tidying(self, time_ms: int, what: What, name: str) -> bytes:
        """The key of an entry that brings no message."""
        return self.entry(TIDYING, time_ms, what, name)

    @staticmethod
    def urgency(rank: int) -> tuple[bool, int, bool]:
        """What sorts ranks: by level, and in a level what may bring messages first."""
        return rank >= TIDYING, rank % WORK, rank < WORK


class SlotKeys(AgendaKeys):
    """The keys of slots, of what waits for them, and of how many there are.

    Those of a queue's own keys have all that is stored of them in the queue. A limit has its slots,
    its line and what is known of it below the root; there WAITING and SLOT name the queue and the
    message, and the queue has a row of its own with the same elements for each.
    """

    waiting = KindKeys[Gate, N, Random](32, records.Delayed, "a message that waits for a slot")
    slot = KindKeys[Gate, N](33, "id", "of the message that holds the slot")
    backlog = KindKeys[Gate](34, records.Backlog, "since when messages wait")
    backlog_count = KindKeys[Gate, Zero](34, unpack_index, "how many messages wait, by ADD")
    limits = KindKeys[Gate](35, records.unpack_limits, "of a key that has its own, or of a limit")
    window = KindKeys[Gate, N](
        38, "id", "of the ready message that holds a place in its key's window"
    )
    rate = KindKeys[Gate](47, records.Paced, "when its next message may become ready")

    def of_limits(self, kind: KindKeys[Gate, N, Random] | KindKeys[Gate, N]) -> slice:
        """The rows of a kind that are those of limits, and not of keys."""
        begin = kind.prefix + _TUPLE
        return slice(begin, begin + b"\xff")


class GroupKeys(KeyTable):
    """The keys of the groups of a queue: which messages of each are left, and how many ended in
    which way."""

    group = KindKeys[Group](57, records.GroupRecord, "a group")
    group_ends = KindKeys[Group, Part, N](
        57, "counters", "its ends (1); whether a death is one (2)"
    )
    group_left = KindKeys[Group, Part, Hash, Message](57, "nothing", "members that are left (0)")

    def member(self, group: str, message_id: str) -> bytes:
        """(group, 0, hash, message): the hash spreads them evenly, whatever the ids."""
        return self.group_left(group, 0, crc32(message_id.encode()), message_id)

    def seal(self, group: str) -> bytes:
        """(group, 0, 2**32, ""): a member for as long as more are to come, behind all others."""
        return self.group_left(group, 0, HASHES, "")

    def tally(self, group: str, message_id: str) -> bytes:
        """(group, 1, shard): the counters to which a member adds."""
        return self.group_ends(group, 1, crc32(message_id.encode()) % SHARDS)

    def settles(self, group: str) -> bytes:
        """(group, 2, 0): there if a member leaves the group also as it dies. The record tells it,
        too, but is as large as the callback."""
        return self.group_ends(group, 2, 0)


class QueueKeys(SlotKeys, GroupKeys):
    """The keys of one queue, below its prefix.

    lease_bytes: about how many bytes a lease, or its end, adds to each message: counters, keys and
    conflict ranges, each with the queue's prefix. place_begin: where the elements of a READY key
    begin. line: that of the consumers that take any message.
    """

    meta = Single(
        0, "options, identity", "written when the queue is created, or its options change"
    )
    ready = KindKeys[Level, Index, Random](1, "envelope, or block", "a message that may be taken")
    tail = KindKeys[Level](
        2, unpack_index, "the highest index ever removed or passed, by MAX: not used again"
    )
    fence = KindKeys[Level, Index](
        3, "never written", "cursors that pass conflict with enqueues there"
    )
    lease = KindKeys[Level, Index, Random](4, leases.Lease, "a leased message")
    planned = KindKeys[Claim, N](4, leases.Lease, "the n-th of a claim of a plan")
    moved = KindKeys[Message](5, "place", "of a message that is not where its id says")
    subscription = KindKeys[Name](
        8, consumers.Definition, "written when a subscription is opened or changed"
    )
    cursor = KindKeys[Name, Level](9, "place", "up to where a subscription has passed")
    holder = KindKeys[Name](9, consumers.Holder, "the holder of an exclusive one")
    consumer = KindKeys[SessionId, Consumer](
        10, consumers.ConsumerRecord, "without a session also its sign of life"
    )
    state = KindKeys[Name, State, Priority, Consumer](
        11, consumers.Listed, "on which list a consumer is"
    )
    sleeper = KindKeys[Name, Priority, Since, Consumer](
        12, "session", "a sleeping consumer; removed to wake it"
    )
    count = KindKeys[Level](13, "nine counters", "of the messages in each state, by ADD")
    recount = Single(13, "never written", "two repairs of counters at once conflict there")
    change = Single(14, unpack_index, "what becomes ready, by ADD: guards and browsers watch it")
    changes = KindKeys[Name](14, unpack_index, "what of that a subscription wants")
    once = OnceKeys(15, "number of an attempt", "whether a transaction has committed")
    guard = KindKeys[Name](
        16, consumers.ConsumerRef, "the sleeper that watches CHANGE, and wakes others"
    )
    dedup = KindKeys[Window, DedupId](
        17, records.DedupRecord, "what was enqueued under an id in a window"
    )
    dead = KindKeys[Version, Random](18, records.DeadLetter, "dead letters, by their deaths")
    chunk = KindKeys[Chunks, N](
        19, "bytes", "of a payload too large for one value, named by its envelope"
    )
    # EARLIEST and these follow each other: a receiver that reads the first of their keys
    # learns that none of those before it exists.
    led = KindKeys[Name](22, unpack_index, "until when a line of consumers has a leader", "LINE")
    leader = KindKeys[Name, Zero](22, "claim", "who that is")
    request = KindKeys[Name, Version, Claim](
        22, consumers.Request, "of a consumer, until it is answered"
    )
    expiry = KindKeys[Version, Claim](
        24, leases.unpack_expiry, "of the leases of a claim that end then"
    )
    unique = KindKeys[Unique](25, "id", "of the message that has the key, as long as it lives")
    idle = Single(27, records.EmptySince, "since when a queue that deletes itself has been drained")
    imported = KindKeys[Name](31, "bytes", "how far an import has come, in the importer's terms")
    planner = KindKeys[Name](36, streams.PlannerState, "of the plans of a consumer")
    plan = KindKeys[Name, Batch](37, streams.Planned, "of the leases of a batch")
    sink = KindKeys[Name](40, streams.SinkState, "of the batches of a sink")
    counting = KindKeys[Name, N](40, "attempts", "those that count in the batch")
    staged = KindKeys[Name, Batch, Attempt, N](
        41, "rows", "to be enqueued when the batch is published"
    )
    until = KindKeys[Claim](
        42, leases.unpack_until, "of leases that were extended, or given in line"
    )
    attempt = KindKeys[Name, Batch, Attempt](
        43, streams.StagedAttempt, "how much a task has staged so far"
    )
    latest = KindKeys[Value](44, "id", "of the newest message of a value")
    replaced = KindKeys[Value, Message](
        44, "nothing", "a message that one of the same value replaces"
    )
    schedule = KindKeys[Name](46, records.ScheduleRecord, "written when a schedule is set")
    progress = KindKeys[Name, Zero](46, records.ScheduleProgress, "its next, and its last")
    event = LogKeys(48, records.HistoryLine, "the delivery history, a line for each transaction")
    in_flight = Single(49, unpack_index, "leases that ended, by ADD")
    taking = Single(49, "never written", "takes conflict there, so they take turns", 0)
    pace = Single(50, records.Reached, "when the next message may be taken, by the queue's rate")
    cancels = Single(51, unpack_index, "leased messages that were cancelled: workers watch it")
    result = KindKeys[Message](55, records.Kept, "of one that keeps its result")

    failure = KindKeys[Message, N](
        58, records.unpack_failure, "what the n-th failed attempt of a message has left"
    )

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        super().__init__(prefix)
        self.once.timeout = timeout
        self.lease_bytes = _LEASE_BYTES + _PREFIXES * len(prefix)
        self.place_begin = len(self.ready.prefix)
        self.levels = _Levels(prefix)
        self.line = LineKeys(self)

    def __reduce__(self) -> tuple[type[QueueKeys], tuple[bytes, float | None]]:
        return QueueKeys, (self.prefix, self.once.timeout)

    def all(self) -> slice:
        """Everything that belongs to the queue."""
        # Not ``prefix + b"\xff"``: everything goes, keys of unknown kinds too.
        return slice(self.prefix, fdb.impl.strinc(self.prefix))

    def kind(self, kind: Kind) -> slice:
        """All keys with the number of a row."""
        begin = self.prefix + pack_int(kind.number)
        return slice(begin, fdb.impl.strinc(begin))

    def holding(self, kind: Kind) -> slice:
        """The keys of a kind that hold messages."""
        return self.delayed_messages() if kind is QueueKeys.delayed else self.kind(kind)

    def read(self, kind: Kind, key: bytes, stored: bytes) -> tuple[tuple[object, ...], object]:
        """The elements of a key of a kind, and what is stored there. Raises ``CorruptData``."""
        found = elements(key, self.prefix + pack_int(kind.number))
        for form in kind.forms:
            if form.has(found):
                return found, form.read(stored)
        raise CorruptData(what="a key", problem=f"it has other elements: {found!r}")

    def named(self, kind: Kind, key: bytes) -> str:
        """The elements of a key of a kind, in words."""
        try:
            found = elements(key, self.prefix + pack_int(kind.number))
        except CorruptData:
            return key.hex()
        return ", ".join(each.hex() if isinstance(each, bytes) else str(each) for each in found)

    def strays(self) -> list[slice]:
        """What belongs to the queue, and to no kind: nothing may stand there."""
        known = map(self.kind, KINDS)
        edges = [self.prefix, *(edge for each in known for edge in (each.start, each.stop))]
        edges.append(self.all().stop)
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [slice(*pair) for pair in pairs if pair[0] < pair[1]]

    def ready_key(self, position: Position) -> bytes:
        """The READY key of a position."""
        level = self.levels[position.level]
        return level.ready + pack_int(position.index) + pack_bytes(position.random)

    def parse_ready(self, key: bytes) -> Position:
        """The position that a READY key names. Raises ``CorruptData``."""
        level, begin = parse_int(key, self.place_begin)
        index, begin = parse_int(key, begin)
        position = Position(level, index, parse_last_bytes(key, begin))
        if self.ready_key(position) != key:  # Somebody else's, which would never be removed.
            raise CorruptData(what="a key", problem=f"it is no position: {key.hex()}")
        return position

    def ready_ids(self, keys: Iterable[bytes]) -> tuple[list[int], list[str]]:
        """The levels of READY keys, and the ids that name their positions, for many at once."""
        levels, ids = [], []
        # Neighbours are of one level: parse its part once.
        head, level, label = b"", -1, ""
        for key in keys:
            if level < 0 or not key.startswith(head):
                level, end = parse_int(key, self.place_begin)
                head, label = key[:end], f"{level:02x}-"
            index, end = parse_int(key, len(head))
            levels.append(level)
            ids.append(f"{label}{index:012x}-{parse_last_bytes(key, end).hex()}")
        return levels, ids

    def token(self, claim: bytes, ready: bytes) -> bytes:
        """The token of a lease: the claim, then the elements of the message's READY key."""
        return claim + ready[self.place_begin :]

    def line_of(self, subscription: str) -> LineKeys:
        """The line of a subscription's consumers; of those of the queue itself for ""."""
        return LineKeys(self, subscription) if subscription else self.line

    def changes_of(self, subscription: str) -> bytes:
        """The key of CHANGE of a subscription; that of the queue itself for ""."""
        return self.changes(subscription) if subscription else self.change

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
        return unpacked(place, b"", (int, NoneType), bytes, NoneType, least=1)[0] or 0

    @staticmethod
    def passed(place: bytes) -> int:
        """The last index that a cursor at a place has passed; 0 if none."""
        found = unpacked(place, b"", (int, NoneType), bytes, NoneType, least=1)
        # A place behind a message has a third element (see subscriptions.cursor).
        return found[0] - (len(found) < 3) if found[0] else 0

    def ready_from(self, level: int, place: bytes) -> slice:
        """The ready messages of one level from a place on."""
        prefix = self.levels[level].ready
        return slice(prefix + place, prefix + b"\xff")


class LevelKeys:
    """What the keys of one level begin with, prepared once.

    ready: the READY keys. last: selects the last of them, or a key before ``ready``. fence: the
    FENCE keys.
    """

    __slots__ = ("count", "fence", "last", "ready", "tail")

    def __init__(self, prefix: bytes, level: int) -> None:
        rows = QueueKeys.ready, QueueKeys.fence, QueueKeys.tail, QueueKeys.count
        numbers = (prefix + pack_int(each.number) + pack_int(level) for each in rows)
        self.ready, self.fence, self.tail, self.count = numbers
        self.last = fdb.KeySelector.last_less_than(within(self.ready).stop)


class _Levels(dict[int, LevelKeys]):
    """The keys of each level of a queue, prepared when they are first asked for."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def __missing__(self, level: int) -> LevelKeys:
        # Packing costs more than looking up, and each operation needs several keys of its level.
        found = self[level] = LevelKeys(self._prefix, level)
        return found


class LineKeys:
    """The keys of the line of a subscription's consumers; of those of the queue itself for "".

    led: until when its leader leads. leader: who that is. requests: all requests, in their order.
    all: all of these.
    """

    __slots__ = ("_name", "_requests", "all", "leader", "led", "requests")

    def __init__(self, keys: QueueKeys, subscription: str = "") -> None:
        self._requests, self._name = keys.request, subscription
        self.led, self.leader = keys.led(subscription), keys.leader(subscription, 0)
        # Leader and requests stand behind the time in one range: one read tells whether anybody
        # stands in line, and who leads.
        self.requests = slice(self.leader + b"\x00", self.led + b"\xff")
        self.all = slice(self.led, self.requests.stop)

    def request(self, index: int, claim: bytes) -> bytes:
        """The key of a request."""
        return self._requests(self._name, index, claim)

    def parse(self, key: bytes) -> tuple[int, bytes]:
        """The index and the claim of a request."""
        _, index, claim = self._requests.parse(key)
        return index, claim


KINDS = tuple(each for each in QueueKeys.table() if each is each.forms[0])
"""The kinds of keys in a queue: of each number the first row."""


class RootKeys(KeyTable):
    """All keys of a root.

    limits: the limits that the queues share, with their slots and lines. known: what is remembered
    of queues by name, see ``catalogue.found``. timeout: as of ``OnceKeys``, here and in the queues.
    """

    name = KindKeys[Name](0, "", "the catalogue")
    _queues = KindKeys[Name](1, "a queue", "its prefix")
    once = OnceKeys(2, "number of an attempt", "whether a change of the catalogue has committed")
    session = KindKeys[SessionId](3, consumers.Session, "a process, and its last sign of life")
    session_expiry = KindKeys[Version, SessionId](4, "", "in the order in which sessions expire")
    session_queue = KindKeys[SessionId, Name](5, "", "where a session has, or has had, consumers")
    audit = LogKeys(6, records.AuditLine, "what operators did")

    def __init__(self, root: fdb.Subspace, timeout: float | None = None) -> None:
        if not isinstance(root, fdb.Subspace):
            problem = 'must be a subspace: fdb.Subspace(("shop",)), with fdb from fdbqueue'
            raise InvalidArgument(argument="root", value=root, problem=problem)
        super().__init__(root.key())
        self.once.timeout = timeout
        self.known: dict[str, object] = {}
        self.limits = SlotKeys(self.prefix + pack_int(7))

    def queue(self, name: str) -> QueueKeys:
        """The keys of one queue."""
        return QueueKeys(self._queues(name), self.once.timeout)


# All messages of a sorted level have one index. What tells them apart in its place, and so orders
# them, is random elsewhere. Here it begins with the value of the header and the number of the
# arrival, packed as a tuple, so the order of the keys is that of the values, and of arrival where
# they are equal. At least eleven bytes, which no position of an unsorted level has.

SORTED_INDEX = 1
MAX_SORTED_BYTES = 56
"""The longest value, as a key has it: the places of a thousand leases go into one value."""


def sorted_length(value: HeaderValue) -> int:
    """How many bytes a value takes in a key."""
    return len(pack_bytes(fdb.tuple.pack((value,)))) - len(pack_bytes(b""))


def sorted_position(level: int, value: HeaderValue, arrival: int) -> Position:
    """A new position among the messages with a value; ``arrival`` counts from 1."""
    # The number of arrival keeps equal values in order; random bytes tell apart those that two
    # transactions numbered alike, since TAIL is read at snapshot isolation.
    random = bytes(fdb.tuple.pack((value, arrival))) + world.urandom(RANDOM_BYTES)
    return Position(level, SORTED_INDEX, random)


def sorted_by(position: Position) -> tuple[HeaderValue, int]:
    """The value and the number of arrival in a position. Raises ``CorruptData``."""
    try:
        value, arrival = fdb.tuple.unpack(position.random[:-RANDOM_BYTES])
        if position.index == SORTED_INDEX and type(arrival) is int and arrival > 0:
            return value, arrival
    except (ValueError, LookupError, TypeError, struct.error):
        pass
    raise CorruptData(what="a position", problem=f"it is not sorted: {position.to_id()}")
