"""What is stored beside messages: where they are, what they wait for, and what follows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from ..errors import CorruptData
from ..values.groups import Outcome, ThenOn
from ..values.limits import Allowed, Gate, OwnLimits
from ..values.model import Death, Due, Failure, Position, parse_id
from ..values.rates import Rate, parse
from ..values.schedules import CatchUp, Overlap, Timing
from ..values.states import State
from .codec import Part, Stored, unpack
from .envelope import Envelope, open_envelope


class DeadRecord(NamedTuple):
    """The place of a dead letter: the version at which it died, and a random part."""

    version: int
    random: bytes


class BacklogPlace(NamedTuple):
    """The place of a message that waits for a slot of its key or its limit: its number in the
    backlog of that, and random bytes, as in a position."""

    gate: Gate
    n: int
    random: bytes


class PlannedPlace(NamedTuple):
    """Where a message is that joined a plan without ever being ready: the n-th of a claim."""

    claim: bytes
    n: int


Place = Position | Due | DeadRecord | BacklogPlace | PlannedPlace


class DedupRecord(Stored, frozen=True):
    """Of which message a dedup id is, and until when that is remembered."""

    id: str
    until_ms: int

    def __post_init__(self) -> None:
        """Refuse what is no id. Raises ``InvalidArgument``."""
        parse_id(self.id)


class EmptySince(Stored, frozen=True):
    """Since when a queue has no message, and how many it ever had."""

    enqueued: int
    since_ms: int


def unpack_id(value: bytes) -> str:
    """The id of a message, from a value that is nothing else. Raises ``CorruptData``."""
    try:
        stored = value.decode()
        parse_id(stored)
        return stored
    except ValueError as error:
        raise CorruptData(what="an id", problem=str(error)) from None


class Delayed(Stored, frozen=True):
    """A message that is not ready; ``packed`` is its envelope."""

    position: Position
    packed: bytes

    @property
    def envelope(self) -> Envelope:
        """Its envelope."""
        return open_envelope(self.packed)

    @classmethod
    def opened(cls, value: bytes, otherwise: Position) -> Self:
        """What ``pack`` stored; a value that cannot be read becomes the unreadable envelope of a
        message at the position ``otherwise``."""
        try:
            return cls.unpack(value)
        except CorruptData:
            return cls(otherwise, value)


class DeadLetter(Delayed, frozen=True):
    """A message that is delivered no more, why, and since when (wall clock)."""

    reason: str = ""
    died_at_ms: int = 0

    def death(self, queue: str, message_id: str) -> Death:
        """How it died, in a queue."""
        attempts = self.envelope.attempts
        return Death(self.reason, self.died_at_ms, attempts, queue, message_id)


class Kept(Stored, frozen=True):
    """How a message ended.

    state: DONE, DEAD, EXPIRED or PURGED. until_ms: until when to keep it, by the wall clock.
    content_type, result: what its consumer has given for the message; None if nothing. reason: why
    it is dead. queue, id: where it went, if it did.
    """

    state: State
    until_ms: int
    content_type: str | None = None
    result: bytes | None = None
    reason: str = ""
    queue: str = ""
    id: str = ""


def unpack_failure(value: bytes) -> Failure:
    """What a failed attempt has left. Raises ``CorruptData``."""
    return unpack(value, Failure)


class Moved(Part, frozen=True):
    """A message in a line of history.

    attempt: how many deliveries it had. place: the id that names where it stands, if that is not
    its own; empty while it waits for others of its ordering key.
    """

    id: str
    level: int
    attempt: int
    place: str | None = None


EventFields = tuple[str, str, int, int, str, int, str]
"""An event without its stamp: transition, id, level, attempt, consumer, at ms, place."""


class HistoryLine(Stored, frozen=True):
    """A transition that messages made together, in the history."""

    transition: str
    consumer: str
    at_ms: int
    moved: list[Moved]

    @property
    def events(self) -> list[EventFields]:
        """Each of them as an event."""
        terms = (self.consumer, self.at_ms)
        return [
            (
                self.transition,
                one.id,
                one.level,
                one.attempt,
                *terms,
                one.id if one.place is None else one.place,
            )
            for one in self.moved
        ]


class AuditLine(Stored, frozen=True):
    """What an operator did, or began.

    at_ms: the wall clock. who: the operator; empty for somebody at the machine itself. action: such
    as "redrive". queue: its name. what: the terms of the action, such as a filter. run: the same in
    all lines of one action. state: "begun", "done" or "failed". count: of how many messages or
    consumers; when it begins, how many are expected. stamp: orders lines by commit; from its key.
    """

    at_ms: int
    who: str
    action: str
    queue: str
    what: Mapping[str, str]
    run: str
    state: str
    count: int
    stamp: bytes = b""


class Backlog(Stored, frozen=True):
    """The backlog of a key: since when its messages wait, by the wall clock in milliseconds.

    settled: the limits at which no other message could become ready, since all slots were taken, or
    all places of the window, and no others; None if that is not known. Of a key with a rate, the
    limits that were applied last, whatever the messages wait for.
    """

    since_ms: int
    settled: Allowed | None


class Limited(Stored, frozen=True):
    """A message that holds a slot of a limit, or waits for one: its queue, and its id."""

    queue: str
    id: str


def unpack_limits(value: bytes | None) -> OwnLimits:
    """The stored limits of a key; no limits where nothing is stored."""
    what = "limits of a key"
    own: OwnLimits = {} if value is None else unpack(value, OwnLimits, what)
    rate = own.get("rate")
    if rate is not None:
        try:
            parse(rate)
        except ValueError as error:
            raise CorruptData(what=what, problem=f"rate {rate!r}: {error}") from None
    return own


class Timer(NamedTuple):
    """The entry of the agenda with which somebody looks at the rate of a key again: that of REST
    where no message waits."""

    rank: int
    due_ms: int


class Reached(Stored, frozen=True):
    """How far the messages of a queue have come by its rate.

    tat_us: the theoretical arrival time of the next one, by the wall clock in microseconds. rate:
    at which it was found.
    """

    tat_us: int
    rate: Rate


class Paced(Reached, frozen=True):
    """How far the messages of a key have come by its rate. timer: when to look again."""

    timer: Timer


class Callback(Part, frozen=True):
    """The message that follows a group.

    root: the prefix of the root of its queue; empty if that is the group's own. delay_ms, ttl_ms:
    from when the group ends. envelope: of the message, without all that is known only then.
    """

    root: bytes
    queue: str
    delay_ms: int
    ttl_ms: int | None
    envelope: Envelope


class Tally(NamedTuple):
    """How many members are done, are dead, and ended in another way: counters, added by ADD."""

    done: int = 0
    dead: int = 0
    failed: int = 0

    def plus(self, other: tuple[int, ...]) -> Tally:
        """The sum of both."""
        return Tally(*(a + b for a, b in zip(self, other, strict=True)))


class GroupEnd(Part, frozen=True):
    """How a group ended. message_id: that of the callback; empty where there is none (yet).

    at_ms: when. Where it is blocked, a minute before the callback is tried again.
    """

    outcome: Outcome
    at_ms: int
    message_id: str
    tally: Tally


class GroupRecord(Stored, frozen=True):
    """A group. members: how many there are so far. sealed: whether no more come."""

    then_on: ThenOn
    members: int
    sealed: bool
    created_ms: int
    callback: Callback
    end: GroupEnd | None = None

    def left(self, counted: Tally) -> int:
        """For how many members the callback waits, where others have been counted."""
        gone = counted.done + counted.failed
        return self.members - gone - (counted.dead if self.then_on == "settled" else 0)

    def same(self, other: GroupRecord) -> bool:
        """Whether both are to do the same, however far they have come."""
        return (self.then_on, self.callback) == (other.then_on, other.callback)


class Pause(Stored, frozen=True):
    """How long a blocked group waits until its callback is tried again."""

    ms: int


class ScheduleRecord(Stored, frozen=True):
    """A schedule as it was set. envelope: what its messages have in common. ttl_ms: how long each
    lives after its tick."""

    timing: Timing
    overlap: Overlap
    catch_up: CatchUp
    paused: bool
    ttl_ms: int | None
    envelope: Envelope


class ScheduleProgress(Stored, frozen=True):
    """How far a schedule has come.

    next_ms, next_id: the tick that waits, and its message; None, and empty, if none does. last_ms,
    last_id: the same of what was enqueued last. passed_ms: the last tick that has come or was left
    out, which no other clock brings again. fired, skipped: how many ticks were enqueued, and
    how many were left out.
    """

    next_ms: int | None = None
    next_id: str = ""
    last_ms: int | None = None
    last_id: str = ""
    fired: int = 0
    skipped: int = 0
    passed_ms: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no id. Raises ``InvalidArgument``."""
        if self.next_id:
            parse_id(self.next_id)
