"""Selectors: conditions on a message's headers and properties, in the syntax of JMS.

The language is that of section 3.8 of the JMS 2.0 specification, a subset of SQL-92's conditions
with three-valued logic. Where the specification leaves a choice:

- A missing header, a header that is None, a division by zero and exact arithmetic beyond 64 bits
  are NULL. A comparison with NULL is unknown; a message matches only if the condition is true.
- A comparison of different types is false, also with ``<>``; strings and booleans have no order.
  A header used as a condition is unknown unless it is a boolean, and arithmetic on a header is
  NULL unless it is a number. Exact and approximate numbers compare by value.
- ``LIKE`` and ``IN`` of a header of another type are false. ``NOT IN`` and ``NOT LIKE`` negate
  them, while ``NOT BETWEEN`` asks for one side or the other.
- Two additions: ``IN`` takes numbers too, and a name in double quotes is always a header's.

Reserved names stand for properties of the message: see ``PROPERTIES``.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from ...errors import InvalidSelector
from ..model import Message
from .grammar import names, parse
from .meaning import MAX_DEPTH, PROPERTIES, Equality, Node, Test, condition, type_of

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "PROPERTIES", "Equality", "Selector", "Test", "type_of"]

MAX_LENGTH = 8_000
"""The most characters of a selector."""
MAX_COMPILED = 2_000
"""Selectors that a process keeps ready to use."""


class Selector(Struct, frozen=True):
    """A condition on messages: ``Selector("region = 'eu' AND priority > 6")``.

    A value: equal to any other with the same text, and picklable. Raises ``InvalidSelector``.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            kind = type(self.text).__name__
            raise InvalidSelector(position=0, problem=f"it must be a str, not {kind}")
        # Raises what is wrong with the text now, not in a consumer.
        _compiled(self.text)

    def __str__(self) -> str:
        return self.text

    @property
    def timed(self) -> bool:
        """Whether it reads the age of messages, so that a message may match later."""
        return _timed(self.text)

    def matches(self, message: Message, now_ms: int) -> bool:
        """Whether a message matches at ``now_ms``, the wall clock in milliseconds.

        Never raises. Takes at most the length of the text times the size of the headers.
        """
        return self.test(message, now_ms) is True

    @property
    def test(self) -> Test:
        """The condition as a function, for callers that keep it: it is true of what matches."""
        return _compiled(self.text).test

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """Headers that have a constant value in every message that matches."""
        return _compiled(self.text).equal


@lru_cache(maxsize=MAX_COMPILED)
def _timed(text: str) -> bool:
    return "age" in names(text)


@lru_cache(maxsize=MAX_COMPILED)
def _compiled(text: str) -> Node:
    if len(text) > MAX_LENGTH:
        raise InvalidSelector(
            position=MAX_LENGTH, problem=f"it has {len(text):,} characters; at most {MAX_LENGTH:,}"
        )
    return condition(parse(text))
