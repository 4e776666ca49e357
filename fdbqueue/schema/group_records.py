"""Groups: what each is, and how it ended."""

from __future__ import annotations

from typing import NamedTuple

from ..values.groups import Outcome, ThenOn
from .codec import pack, unpack_fields
from .codec.atomic import pack_counters, unpack_counters
from .codec.envelopes import Envelope, pack_envelope, unpack_envelope


class Callback(NamedTuple):
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


class End(NamedTuple):
    """How a group ended. message_id: that of the callback; empty where there is none (yet).

    at_ms: when. Where it is blocked, a minute before the callback is tried again.
    """

    outcome: Outcome
    at_ms: int
    message_id: str
    tally: Tally


class Record(NamedTuple):
    """A group. members: how many there are so far. sealed: whether no more come."""

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


def pack_record(record: Record) -> bytes:
    callback, end = record.callback, record.end
    return pack(
        [
            *(record.then_on, record.members, record.sealed, record.created_ms),
            *(callback.root, callback.queue, callback.delay_ms, callback.ttl_ms),
            pack_envelope(callback.envelope),
            None if end is None else [end.outcome, end.at_ms, end.message_id, *end.tally],
        ]
    )


def unpack_record(value: object) -> Record:
    return unpack_fields(
        value,
        "a group",
        lambda then_on, members, sealed, created, root, queue, delay, ttl, packed, end: Record(
            then_on,
            members,
            sealed,
            created,
            Callback(root, queue, delay, ttl, unpack_envelope(packed)),
            None if end is None else End(end[0], end[1], end[2], Tally(*end[3:])),
        ),
    )


def pack_pause(pause_ms: int) -> bytes:
    return pack([pause_ms])


def unpack_pause(value: object) -> int:
    return unpack_fields(value, "a pause", int)


def pack_tally(tally: Tally) -> bytes:
    """The operand of ADD; see ``pack_counters``."""
    return pack_counters(tally)


def unpack_tally(value: bytes | None) -> Tally:
    """What has been added; zeros where nothing was."""
    return Tally(*unpack_counters(value, len(Tally._fields)))
