"""Lines of history: a transition of messages, and each of them as an event."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from . import Stored


class Moved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message in a line.

    attempt: how many deliveries it had. place: the id that names where it stands, if that is not
    its own; empty while it waits for others of its ordering key.
    """

    id: str
    level: int
    attempt: int
    place: str | None = None


EventFields = tuple[str, str, int, int, str, int, str]
"""An event without its stamp: transition, id, level, attempt, consumer, at ms, place."""


class Line(Stored, frozen=True):
    """A transition that messages made together."""

    kind: ClassVar[str] = "a line of history"

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
