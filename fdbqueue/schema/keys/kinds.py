"""The kinds of keys in a queue, and the keys of one kind."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Generic, TypeVarTuple

from ...errors import CorruptData
from ...store.binding import fdb
from ...store.client import pack_bytes, pack_int, pack_text

Ts = TypeVarTuple("Ts")


_LARGE = 2**63
"""From here on, and below 0, integers are left to the bindings."""


class Kind(IntEnum):
    """The kinds of keys in a queue's subspace."""

    META = 0  # () -> options and format version
    READY = 1  # (level, index, random) -> envelope, or block
    TAIL = 2  # (level) -> highest index ever removed or passed, by atomic MAX
    FENCE = 3  # (level, index): never written, only conflict ranges
    LEASE = 4  # (level, index, random) -> lease; (claim, n) -> one of a plan, which never expires
    MOVED = 5  # (message id) -> the place of the message, unless its id names it
    SUBSCRIPTION = 8  # (name) -> definition
    CURSOR = 9  # (subscription, level) -> next position to inspect; (subscription) -> its holder
    CONSUMER = 10  # (session, id) -> record; with an empty session, also its own heartbeat
    # The consumers of a subscription have lists of their own, those of no subscription that of "".
    STATE = 11  # (subscription, state, -priority, id) -> session, since when
    SLEEPER = 12  # (subscription, -priority, since, id) -> session; removed to wake the consumer
    COUNT = 13  # (level) -> counters, by atomic ADD
    CHANGE = (
        14  # () or (subscription) -> counter of what becomes ready; guards and browsers watch it
    )
    ONCE = 15  # (minute, token) -> number of the last attempt that committed
    GUARD = 16  # (subscription) -> the guard of its sleepers, and its session
    DEDUP = 17  # (window, id) -> message id and expiry
    DEAD = 18  # (index, random) -> envelope, reason, history
    CHUNK = 19  # (name, n) -> piece of a payload; the envelope has the name
    # These follow each other: a receiver that reads the first of their keys learns that none of
    # those before it exists.
    TIMER = 20  # (0 if its messages wait for it, else 1, due, key) -> empty; when to look at it
    DELAYED = 21  # (due, random) -> position and envelope
    LEADER = 22  # () -> version until which the leader leads; (0) -> its claim, 01 if away
    REQUEST = 23  # (read version, claim) -> what a waiting consumer asks for
    EXPIRY = 24  # (version, claim) -> wall clock of the expiry, and places of the leases
    UNIQUE = 25  # (unique key) -> id of the message that has it
    MORTAL = 26  # (expiry, message id) -> empty; messages with a time to live
    IDLE = 27  # () -> since when the queue has been drained
    IMPORT = 31  # (name) -> progress of an import
    WAITING = 32  # (key or limit, n, random) -> position and envelope of one that waits for a slot
    SLOT = 33  # (key or limit, n) -> id of the message that holds the slot
    BACKLOG = 34  # (key) -> since when its messages wait; (key, 0) -> how many, by atomic ADD
    LIMITS = 35  # (key) -> its own limits
    PLANNER = 36  # (consumer) -> progress of its plans, and the run that owns them
    PLAN = 37  # (consumer, batch) -> claims of the batch's leases
    WINDOW = 38  # (key, n) -> id of the ready message that holds that place in the key's window
    SINK = 40  # (sink) -> progress of its batches; (sink, n) -> attempts that count
    STAGED = 41  # (sink, batch, attempt, n) -> rows to be enqueued
    UNTIL = 42  # (claim) -> ends of its leases that were extended, or given in line
    ATTEMPT = 43  # (sink, batch, attempt) -> number of rows staged so far, and when
    LATEST = 44  # (value) -> id of its newest message; (value, id) -> empty, one that was replaced
    # The line of a subscription: as LEADER and REQUEST, which are those of the queue's own.
    LINE = 45  # (subscription), (subscription, 0), (subscription, read version, claim) -> its line
    SCHEDULE = 46  # (name) -> definition; (name, 0) -> its next tick, and its last
    RATE = 47  # (key) -> when its next message may become ready, by its rate
    EVENT = 48  # (versionstamp, n) -> one line of delivery history
    IN_FLIGHT = 49  # () -> counter of leases that ended; (0): never written, takers conflict there
    PACE = 50  # () -> when the next message may be taken, by the rate of the queue
    CANCELS = 51  # () -> counter of leased messages that were cancelled; who holds any watches it
    RESULT = 55  # (message id) -> how it ended, and its result
    RESULT_END = 56  # (time, message id) -> empty; when to remove RESULT
    # Beside these three, (time, group) -> empty; when to look at the group.
    GROUP = 57  # (group) -> record; (group, 0, hash, id) -> member left; (group, 1, n) -> counters


class KindKeys(Generic[*Ts]):
    """The keys of one kind: call it with the elements of a key.

    elements: their types. least: how many of them every key has; all where None.
    """

    __slots__ = ("_elements", "_least", "prefix")

    def __init__(
        self, prefix: bytes, *elements: type | tuple[type, ...], least: int | None = None
    ) -> None:
        self.prefix = prefix
        self._elements = elements
        self._least = least

    def __call__(self, *elements: *Ts) -> bytes:
        return self.begin(*elements)

    def begin(self, *first: object) -> bytes:
        """What the keys with these first elements begin with."""
        packed = self.prefix
        for element in first:
            kind = type(element)
            if kind is str:
                packed += pack_text(element)  # type: ignore[arg-type]
            elif kind is bytes:
                packed += pack_bytes(element)  # type: ignore[arg-type]
            elif kind is int and 0 <= element < _LARGE:  # type: ignore[operator]
                packed += pack_int(element)  # type: ignore[arg-type]
            else:
                return bytes(fdb.tuple.pack(first, self.prefix))
        return packed

    def under(self, *first: object) -> slice:
        """The keys with these first elements, and at least one more."""
        return within(self.begin(*first))

    def before(self, *elements: object) -> slice:
        """The keys with these first elements, where that in the last place is smaller."""
        return slice(self.under(*elements[:-1]).start, self.begin(*elements))

    def since(self, first: object) -> slice:
        """The keys from this first element on."""
        return slice(self.begin(first), within(self.prefix).stop)

    def parse(self, key: bytes) -> tuple[*Ts]:
        """The elements of a key, perhaps fewer if ``least`` allows it. Raises ``CorruptData``."""
        found: Any = unpacked(key, self.prefix, *self._elements, least=self._least)
        return found  # type: ignore[no-any-return]


def unpacked(
    key: bytes, prefix: bytes, *types: type | tuple[type, ...], least: int | None = None
) -> tuple[Any, ...]:
    """The elements that follow a prefix. ``least``: how many there must be; all where None.

    Raises ``CorruptData`` for elements of other types: somebody else wrote below the prefix.
    """
    try:
        found: tuple[Any, ...] = fdb.tuple.unpack(key, len(prefix))
    except (ValueError, LookupError, TypeError, RecursionError, struct.error) as error:
        raise CorruptData(what="a key", problem=repr(error)) from None
    enough = len(found) >= (len(types) if least is None else least)
    if not enough or len(found) > len(types) or not all(map(isinstance, found, types)):
        raise CorruptData(what="a key", problem=f"it has other elements: {found!r}")
    return found


def within(prefix: bytes) -> slice:
    """All keys that extend a packed prefix by whole elements."""
    return slice(prefix + b"\x00", prefix + b"\xff")
