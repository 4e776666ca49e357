"""Selectors: conditions on a message's headers and properties, in the syntax of JMS.

The language is that of section 3.8 of the JMS 2.0 specification, a subset of SQL-92's conditions
with three-valued logic. What it leaves open, or asks for, is decided thus:

- A name that no header has, a header that is None, a division by zero and exact arithmetic that
  leaves 64 bits are NULL. What compares with NULL is unknown; a message matches only what is true.
- A comparison of unlike types is false, also with ``<>``; strings and booleans have no order.
  A header that is used as a condition and is no boolean is unknown, and so is its arithmetic
  unless it is a number. Exact and approximate numbers compare by their values.
- ``LIKE`` and ``IN`` of a header of another type are false; ``NOT IN`` and ``NOT LIKE`` are the
  negations of ``IN`` and ``LIKE``, while ``NOT BETWEEN`` asks for one side or the other.
- Two additions: ``IN`` takes numbers too, and a name in double quotes always names a header,
  whatever its characters.

Reserved names stand for properties of the message: see ``PROPERTIES``.
"""

from __future__ import annotations

from functools import lru_cache

from ...errors import InvalidSelector
from ..model import Message
from ..records import record
from .grammar import names, parse
from .meaning import MAX_DEPTH, PROPERTIES, Test, condition

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "PROPERTIES", "Selector"]

MAX_LENGTH = 8_000
"""Characters of a selector at most."""


@record
class Selector:
    """A condition that messages match or not: ``Selector("region = 'eu' AND priority > 6")``.

    A value: two with one text are equal, and it can be pickled. Raises ``InvalidSelector``.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            kind = type(self.text).__name__
            raise InvalidSelector(position=0, problem=f"it must be a str, not {kind}")
        _compiled(self.text)

    def __str__(self) -> str:
        return self.text

    @property
    def timed(self) -> bool:
        """Whether it reads the age of messages: what does not match now may match later."""
        return _timed(self.text)

    def matches(self, message: Message, now_ms: int) -> bool:
        """Whether the condition is true of a message at ``now_ms``, the wall clock in ms.

        No input or output, no errors; the time it takes is bounded by the length of the text
        times the size of the message's headers.
        """
        return _compiled(self.text)(message, now_ms) is True


@lru_cache(maxsize=256)
def _timed(text: str) -> bool:
    return "age" in names(text)


@lru_cache(maxsize=256)
def _compiled(text: str) -> Test:
    if len(text) > MAX_LENGTH:
        raise InvalidSelector(
            position=MAX_LENGTH, problem=f"it has {len(text):,} characters; at most {MAX_LENGTH:,}"
        )
    return condition(parse(text)).test
