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


PARTS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("message", "name", "group", "unique", "dedup id"), str),
    **dict.fromkeys(("random", "claim", "session", "consumer", "token", "chunks"), bytes),
    **dict.fromkeys(("level", "index", "n", "version", "state", "-priority", "since"), int),
    **dict.fromkeys(("minute", "window", "rests", "due", "time", "batch", "part", "hash"), int),
    "0": int,
    "attempt": bytes,
    "gate": (str, tuple),
    "stamp": fdb.tuple.Versionstamp,
    "value": object,
}
"""The types of the elements of keys, by their names. A gate is a key, or a limit."""


_GROUP = "record; nothing; counters; nothing", "a group, when to look at it, its ends, who is left"


class Kind(IntEnum):
    """The kinds of keys in a queue's subspace: the one table of what a queue stores.

    forms: the names of the elements that follow the kind, for each form of its keys. holds: what is
    stored there. use: what for. The consumers of a subscription have lists of their own under its
    name, those of the queue under "".
    """

    forms: tuple[tuple[str, ...], ...]
    types: tuple[tuple[Any, ...], ...]
    holds: str
    use: str

    def __new__(cls, number: int, forms: str, holds: str, use: str) -> Kind:
        """A row of the table."""
        kind = int.__new__(cls, number)
        kind._value_ = number
        split = (form.split(",") for form in forms.split(";"))
        kind.forms = tuple(tuple(filter(None, map(str.strip, form))) for form in split)
        kind.types = tuple(tuple(map(PARTS.__getitem__, form)) for form in kind.forms)
        kind.holds, kind.use = holds, use
        return kind

    @property
    def keys(self) -> list[str]:
        """The forms of its keys in words."""
        return [f"({', '.join([str(int(self)), *form])})" for form in self.forms]

    META = 0, "", "options, identity", "by who creates the queue or changes its options"
    READY = 1, "level, index, random", "envelope, or block", "a message that may be taken"
    TAIL = 2, "level", "u64", "the highest index ever removed or passed, by MAX: not used again"
    FENCE = 3, "level, index", "never written", "cursors that pass conflict with enqueues there"
    LEASE = 4, "level, index, random; claim, n", "lease", "a message in hands; (claim, n) of a plan"
    MOVED = 5, "message", "place", "of a message that is not where its id says"
    SUBSCRIPTION = 8, "name", "definition", "by who opens or changes a subscription"
    CURSOR = 9, "name; name, level", "holder; place", "who holds it; up to where it has passed"
    CONSUMER = 10, "session, consumer", "record", "without a session also its sign of life"
    STATE = 11, "name, state, -priority, consumer", "session, time", "on which list a consumer is"
    SLEEPER = 12, "name, -priority, since, consumer", "session", "who sleeps; removed to wake it"
    COUNT = 13, "level", "nine counters", "of the messages in each state, by ADD"
    CHANGE = 14, "; name", "u64", "what becomes ready, by ADD: guards and browsers watch it"
    ONCE = 15, "minute, token", "number of an attempt", "whether a transaction has committed"
    GUARD = 16, "name", "consumer, session", "the sleeper that watches CHANGE, and wakes others"
    DEDUP = 17, "window, dedup id", "id, expiry", "what was enqueued under an id in a window"
    DEAD = 18, "version, random", "envelope, reason, history", "dead letters, by their deaths"
    CHUNK = 19, "chunks, n", "bytes", "of a payload too large for one value, named by its envelope"
    # These follow each other: a receiver that reads the first of their keys learns that none of
    # those before it exists.
    TIMER = 20, "rests, due, gate", "", "when to look at a rate: messages wait (0) or rest (1)"
    DELAYED = 21, "due, random", "position, envelope", "a message that is due later"
    LEADER = 22, "; 0", "version; claim", "until when the line has a leader, and who that is"
    REQUEST = 23, "version, claim", "request", "of a consumer in line, until it is answered"
    EXPIRY = 24, "version, claim", "time, places", "of the leases of a claim that end then"
    UNIQUE = 25, "unique", "id", "of the message that has the key, as long as it lives"
    MORTAL = 26, "time, message", "", "when the time to live of a message ends"
    IDLE = 27, "", "count, time", "since when a queue that deletes itself has been drained"
    IMPORT = 31, "name", "bytes", "how far an import has come, in the importer's terms"
    WAITING = 32, "gate, n, random", "position, envelope", "a message that waits for a slot"
    SLOT = 33, "gate, n", "id", "of the message that holds the slot"
    BACKLOG = 34, "gate; gate, 0", "time; u64", "since when messages wait; how many, by ADD"
    LIMITS = 35, "gate", "limits", "of a key that has its own, or of a limit"
    PLANNER = 36, "name", "progress, run", "of the plans of a consumer"
    PLAN = 37, "name, batch", "claims", "of the leases of a batch"
    WINDOW = 38, "gate, n", "id", "of the ready message that holds a place in its key's window"
    SINK = 40, "name; name, n", "progress; attempts", "of the batches of a sink; those that count"
    STAGED = 41, "name, batch, attempt, n", "rows", "to be enqueued when the batch is published"
    UNTIL = 42, "claim", "ends by place", "of leases that were extended, or given in line"
    ATTEMPT = 43, "name, batch, attempt", "count, time", "how much a task has staged so far"
    LATEST = 44, "value; value, message", "id; nothing", "the newest of its value; those replaced"
    LINE = 45, "name; name, 0; name, version, claim", "as LEADER", "the line of a subscription"
    SCHEDULE = 46, "name; name, 0", "definition; ticks", "of a schedule; its next, and its last"
    RATE = 47, "gate", "time", "when its next message may become ready"
    EVENT = 48, "stamp, n", "transitions", "the delivery history, a line for each transaction"
    IN_FLIGHT = 49, "; 0", "u64; never written", "leases that ended; takers conflict there"
    PACE = 50, "", "time", "when the next message may be taken, by the queue's rate"
    CANCELS = 51, "", "u64", "leased messages that were cancelled: who holds any watches it"
    RESULT = 55, "message", "how it ended", "of one that keeps its result"
    RESULT_END = 56, "time, message", "", "when to remove a result"
    GROUP = 57, "group; time, group; group, part, n; group, 0, hash, message", *_GROUP


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

    @classmethod
    def of(cls, prefix: bytes, kind: Kind, form: int = -1) -> Any:
        """Those of a form of a kind, by default the last, and of the shorter ones that it extends;
        to be annotated with its types."""
        types = kind.types[form]
        least = len(kind.types[0]) if form == -1 else len(types)
        return cls(prefix, *types, least=least)

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
