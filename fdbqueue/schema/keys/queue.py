"""The keys of one queue."""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType
from typing import Any

from ...errors import CorruptData
from ...store.binding import fdb
from ...store.client import pack_bytes, pack_int, parse_int, parse_last_bytes
from ...values.model import Position
from .groups import GroupKeys
from .kinds import Kind, KindKeys, unpacked, within
from .levels import Levels
from .line import LineKeys
from .once import OnceKeys
from .slots import SlotKeys

CLAIM_BYTES = 16
LOWEST = b"\x00"
"""The cursor before all messages of a level."""

_LEASE_BYTES = 370
_PREFIXES = 16


class QueueKeys(SlotKeys):
    """The keys of one queue, below its prefix.

    Most kinds have an attribute of their name, which packs and parses their keys. Keys that many
    operations need are prepared here, and those of messages and leases have methods of their own.

    lease_bytes: about how many bytes a lease, or its end, adds to each message: counters, keys and
        conflict ranges, each with the queue's prefix.
    place_begin: where the elements of a READY key begin.
    freed, taking: a counter of ended leases, and where takers conflict (see ``limits``). pace:
        how far the queue has come by its rate. cancels: a counter of cancelled leases.
    recount: never written; two repairs of counters at once conflict here. Before all levels.
    """

    def __init__(self, prefix: bytes, timeout: float | None = None) -> None:
        self.prefix = prefix
        self._kinds = begin = {kind: prefix + packed for kind, packed in _KINDS.items()}
        super().__init__(begin)
        self.lease_bytes = _LEASE_BYTES + _PREFIXES * len(prefix)
        self.levels = Levels(prefix)
        self.once = OnceKeys(begin[Kind.ONCE], timeout)
        # Keys without elements.
        self.meta = begin[Kind.META]
        self.meta_end = self.meta + b"\x00"
        self.change = begin[Kind.CHANGE]
        self.idle = begin[Kind.IDLE]
        self.freed = begin[Kind.IN_FLIGHT]
        self.taking = self.freed + pack_int(0)
        self.pace = begin[Kind.PACE]
        self.cancels = begin[Kind.CANCELS]
        self.recount = begin[Kind.COUNT]
        # Hot keys, packed by methods.
        self.ready_prefix = begin[Kind.READY]
        self.place_begin = len(self.ready_prefix)
        self.lease_prefix = begin[Kind.LEASE]
        self.expiry_prefix = begin[Kind.EXPIRY]
        self.until_prefix = begin[Kind.UNTIL]
        self.line = LineKeys(begin[Kind.LEADER], begin[Kind.REQUEST])
        self._event = begin[Kind.EVENT]
        # Where a receiver reads.
        self.ready_begin = self.ready_prefix + b"\x00"
        self.first_ready = fdb.KeySelector.first_greater_or_equal(self.ready_begin)
        self.ready_stop = fdb.KeySelector.first_greater_or_equal(self.ready_prefix + b"\xff")
        self.first_expiry = fdb.KeySelector.first_greater_or_equal(self.expiry_prefix)
        self.expiry_end = self.expiry_prefix + b"\xff"
        self.first_delayed = fdb.KeySelector.first_greater_or_equal(begin[Kind.DELAYED])
        self.delayed_end = begin[Kind.DELAYED] + b"\xff"
        self.first_in_line = fdb.KeySelector.first_greater_or_equal(begin[Kind.LEADER])
        self.line_end = self.line.requests.stop

        # All other kinds.
        def rows(kind: Kind, form: int = -1) -> Any:
            return KindKeys.of(begin[kind], kind, form)

        self.planned: KindKeys[bytes, int] = rows(Kind.LEASE, 1)
        self.subscription: KindKeys[str] = rows(Kind.SUBSCRIPTION)
        self.holder: KindKeys[str] = rows(Kind.CURSOR, 0)
        self.cursor: KindKeys[str, int] = rows(Kind.CURSOR)
        self.consumer: KindKeys[bytes, bytes] = rows(Kind.CONSUMER)
        self._state: KindKeys[str, int, int, bytes] = rows(Kind.STATE)
        self._sleeper: KindKeys[str, int, int, bytes] = rows(Kind.SLEEPER)
        self.guard: KindKeys[str] = rows(Kind.GUARD)
        self._line: KindKeys[str, int, bytes] = rows(Kind.LINE)
        self._count: KindKeys[int] = rows(Kind.COUNT)
        self.dedup: KindKeys[int, str] = rows(Kind.DEDUP)
        self.dead: KindKeys[int, bytes] = rows(Kind.DEAD)
        self.chunk: KindKeys[bytes, int] = rows(Kind.CHUNK)
        self.delayed: KindKeys[int, bytes] = rows(Kind.DELAYED)
        self.moved: KindKeys[str] = rows(Kind.MOVED)
        self.unique: KindKeys[str] = rows(Kind.UNIQUE)
        self.mortal: KindKeys[int, str] = rows(Kind.MORTAL)
        self.imported: KindKeys[str] = rows(Kind.IMPORT)
        self.planner: KindKeys[str] = rows(Kind.PLANNER)
        self.plan: KindKeys[str, int] = rows(Kind.PLAN)
        self.sink: KindKeys[str] = rows(Kind.SINK, 0)
        self.counting: KindKeys[str, int] = rows(Kind.SINK)
        self.staged: KindKeys[str, int, bytes, int] = rows(Kind.STAGED)
        self.attempt: KindKeys[str, int, bytes] = rows(Kind.ATTEMPT)
        self.latest: KindKeys[object] = rows(Kind.LATEST, 0)
        self.replaced: KindKeys[object, str] = rows(Kind.LATEST)
        self.schedule: KindKeys[str] = rows(Kind.SCHEDULE, 0)
        self.progress: KindKeys[str, int] = rows(Kind.SCHEDULE)
        self.result: KindKeys[str] = rows(Kind.RESULT)
        self.result_end: KindKeys[int, str] = rows(Kind.RESULT_END)
        self.groups = GroupKeys(begin[Kind.GROUP])

    def __reduce__(self) -> tuple[type[QueueKeys], tuple[bytes, float | None]]:
        return QueueKeys, (self.prefix, self.once.timeout)

    def all(self) -> slice:
        """Everything that belongs to the queue."""
        return slice(self.prefix, fdb.impl.strinc(self.prefix))

    def of(self, kind: Kind) -> slice:
        """All keys of a kind."""
        begin = self._kinds[kind]
        return slice(begin, fdb.impl.strinc(begin))

    def strays(self) -> list[slice]:
        """What belongs to the queue, and to no kind: nothing may stand there."""
        known = [self.of(kind) for kind in sorted(Kind)]
        edges = [self.prefix, *(edge for each in known for edge in (each.start, each.stop))]
        edges.append(self.all().stop)
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [slice(*pair) for pair in pairs if pair[0] < pair[1]]

    def kind(self, kind: Kind) -> slice:
        """All keys of a kind that has elements."""
        return within(self._kinds[kind])

    # -- ready messages ----------------------------------------------------------------------

    def ready(self, position: Position) -> bytes:
        """(level, index, random)."""
        level = self.levels[position.level]
        return level.ready + pack_int(position.index) + pack_bytes(position.random)

    def ready_range(self) -> slice:
        """All ready messages, in the order of delivery."""
        return within(self.ready_prefix)

    def ready_level(self, level: int) -> slice:
        """The ready messages of one level."""
        return within(self.levels[level].ready)

    def ready_end(self, level: int, index: int) -> bytes:
        """Where the ready messages of a level end that have a smaller index."""
        return self.levels[level].ready + pack_int(index)

    def parse_ready(self, key: bytes) -> Position:
        """The position that a READY key names. Raises ``CorruptData``."""
        level, begin = parse_int(key, self.place_begin)
        index, begin = parse_int(key, begin)
        position = Position(level, index, parse_last_bytes(key, begin))
        if self.ready(position) != key:  # Somebody else's, which would never be removed.
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

    def tail(self, level: int) -> bytes:
        """(level)."""
        return self.levels[level].tail

    def fence(self, level: int, index: int) -> bytes:
        """(level, index)."""
        return self.levels[level].fence + pack_int(index)

    def count(self, level: int) -> bytes:
        """(level)."""
        return self.levels[level].count

    def parse_count(self, key: bytes) -> int:
        """The level that a COUNT key names."""
        return self._count.parse(key)[0]

    # -- leases ------------------------------------------------------------------------------

    def token(self, claim: bytes, ready: bytes) -> bytes:
        """The token of a lease: the claim, then the elements of the message's READY key."""
        return claim + ready[self.place_begin :]

    def until(self, claim: bytes) -> bytes:
        """(claim)."""
        return self.until_prefix + pack_bytes(claim)

    def parse_until(self, key: bytes) -> bytes:
        """The claim that an UNTIL key names."""
        return parse_last_bytes(key, len(self.until_prefix))

    def expiry(self, version: int, claim: bytes) -> bytes:
        """(version, claim)."""
        return self.expiry_prefix + pack_int(version) + pack_bytes(claim)

    def parse_expiry(self, key: bytes) -> tuple[int, bytes]:
        """The version and the claim that an EXPIRY key names."""
        version, begin = parse_int(key, len(self.expiry_prefix))
        return version, parse_last_bytes(key, begin)

    # -- consumers ---------------------------------------------------------------------------

    def line_of(self, subscription: str) -> LineKeys:
        """The line of a subscription's consumers; of those of the queue itself for ""."""
        if not subscription:
            return self.line
        begin = self._line.begin(subscription)
        return LineKeys(begin, begin)

    def lines(self, subscription: str | None = None) -> slice:
        """What is stored of the line of a subscription, or of those of all subscriptions."""
        if subscription is None:
            return within(self._line.prefix)
        begin = self._line.begin(subscription)
        return slice(begin, within(begin).stop)

    def parse_line(self, key: bytes) -> tuple[str, int | None, bytes | None]:
        """The subscription that a LINE key names, with the index and the claim of a request."""
        found = self._line.parse(key)
        return found if len(found) == 3 else (found[0], None, None)

    def changes(self, subscription: str) -> bytes:
        """(subscription), or () without one."""
        return fdb.tuple.pack((subscription,), self.change) if subscription else self.change

    def state(self, subscription: str, state: int, priority: int, consumer: bytes) -> bytes:
        """(subscription, state, -priority, consumer): a higher priority stands first."""
        return self._state(subscription, state, -priority, consumer)

    def states(self, subscription: str) -> slice:
        """The consumers of a subscription that are on a list."""
        return self._state.under(subscription)

    def in_state_above(self, subscription: str, state: int, priority: int) -> slice:
        """The consumers in one state whose priority is higher than ``priority``."""
        return self._state.before(subscription, state, -priority)

    def parse_state(self, key: bytes) -> tuple[str, int, int, bytes]:
        """The subscription, the state, the priority and the consumer that a STATE key names."""
        subscription, state, negative, consumer = self._state.parse(key)
        return subscription, state, -negative, consumer

    def sleeper(self, subscription: str, priority: int, since: int, consumer: bytes) -> bytes:
        """(subscription, -priority, since, consumer): a higher priority first, then the longest
        wait."""
        return self._sleeper(subscription, -priority, since, consumer)

    def sleepers(self, subscription: str) -> slice:
        """The sleeping consumers of a subscription."""
        return self._sleeper.under(subscription)

    def parse_sleeper(self, key: bytes) -> tuple[str, int, int, bytes]:
        """The subscription, the priority, since when, and the consumer that a SLEEPER key names."""
        subscription, negative, since, consumer = self._sleeper.parse(key)
        return subscription, -negative, since, consumer

    # -- cursors -----------------------------------------------------------------------------

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

    # -- history -----------------------------------------------------------------------------

    EVENT_VERSION = slice(1, 9)
    """Where in an event's stamp the version of its commit stands, the highest byte first."""

    def new_line(self, last: int) -> bytes:
        """(versionstamp, n of the last event), the operand of SET_VERSIONSTAMPED_KEY."""
        return fdb.tuple.pack_with_versionstamp((fdb.tuple.Versionstamp(), last), self._event)

    def stamps(self, key: bytes, events: int) -> list[bytes]:
        """The stamps of the events in a line: what an EVENT key of each would add to its kind."""
        commit, last = unpacked(key, self._event, fdb.tuple.Versionstamp, int)
        first = last - events + 1
        return [fdb.tuple.pack((commit, n)) for n in range(first, last + 1)]

    def lines_after(self, stamp: bytes) -> slice:
        """The lines with events that follow a stamp; all lines after an empty one."""
        lines = within(self._event)
        return slice(self._event + stamp + b"\x00" if stamp else lines.start, lines.stop)

    def lines_before(self, version: int) -> slice:
        """The history that was committed before a version."""
        return slice(within(self._event).start, self._event + self.stamp_before(version))

    @staticmethod
    def stamp_before(version: int) -> bytes:
        """A stamp behind those of what was committed before a version, and before all others."""
        stamp = fdb.tuple.Versionstamp(version.to_bytes(8, "big") + bytes(2))
        return bytes(fdb.tuple.pack((stamp,)))


_KINDS = {kind: fdb.tuple.pack((int(kind),)) for kind in Kind}
