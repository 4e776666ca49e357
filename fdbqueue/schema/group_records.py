"""Groups: what each is, and how it ended."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import msgspec

from ..values.groups import Outcome, ThenOn
from .codec import Stored
from .codec.atomic import pack_counters, unpack_counters
from .codec.envelopes import Envelope


class Callback(msgspec.Struct, frozen=True, array_like=True, gc=False):
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
    """How many members are done, are dead, and ended in another way."""

    done: int = 0
    dead: int = 0
    failed: int = 0

    def plus(self, other: Tally) -> Tally:
        """The sum of both."""
        return Tally(*(a + b for a, b in zip(self, other, strict=True)))


class End(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a group ended. message_id: that of the callback; empty where there is none (yet).

    at_ms: when. Where it is blocked, a minute before the callback is tried again.
    """

    outcome: Outcome
    at_ms: int
    message_id: str
    tally: Tally


class Record(Stored, frozen=True):
    """A group. members: how many there are so far. sealed: whether no more come."""

    kind: ClassVar[str] = "a group"

    then_on: ThenOn
    members: int
    sealed: bool
    created_ms: int
    callback: Callback
    end: End | None = None

    def left(self, counted: Tally) -> int:
        """For how many members the callback waits, where others have been counted."""
        gone = counted.done + counted.failed
        return self.members - gone - (counted.dead if self.then_on == "settled" else 0)

    def same(self, other: Record) -> bool:
        """Whether both are to do the same, however far they have come."""
        return (self.then_on, self.callback) == (other.then_on, other.callback)


class Pause(Stored, frozen=True):
    """How long a blocked group waits until its callback is tried again."""

    kind: ClassVar[str] = "a pause"

    ms: int


def pack_tally(tally: Tally) -> bytes:
    """The operand of ADD; see ``pack_counters``."""
    return pack_counters(tally)


def unpack_tally(value: bytes | None) -> Tally:
    """What has been added; zeros where nothing was."""
    return Tally(*unpack_counters(value, len(Tally._fields)))
