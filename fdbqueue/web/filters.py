"""Which messages a page lists, and an action takes: those of a state that a filter matches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from ..values.model import DeadMessage, Message, MessageState
from ..values.selector import Selector

T = TypeVar("T", MessageState, DeadMessage)
Query: TypeAlias = Mapping[str, str]

STEP = 200
"""How many messages a filter checks in one transaction."""
MAX_CHECKED, MAX_SECONDS = 2_000, 2.0
"""How many messages a filter checks for one page, and for how long."""


class Filter(Struct, frozen=True):
    """Which messages: those that match all of what is given.

    selector: in the syntax of JMS. reason, error: parts of a dead letter's reason and last error.
    """

    selector: str = ""
    reason: str = ""
    error: str = ""

    @classmethod
    def of(cls, query: Query) -> Filter:
        """The filter of a query or a form; raises ``InvalidSelector``."""
        found = cls(*(query.get(name, "").strip() for name in cls.__struct_fields__))
        if found.selector:
            Selector(found.selector)
        return found

    def __bool__(self) -> bool:
        return bool(self.selector or self.reason or self.error)

    @classmethod
    def given(cls, query: Query) -> bool:
        """Whether a query has a filter, right or wrong."""
        return any(query.get(name, "").strip() for name in cls.__struct_fields__)

    def query(self) -> dict[str, str]:
        """The filter as a part of a query."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    def predicate(self) -> Callable[[Message], bool]:
        """Whether a message matches; that of a dead letter has its ``death``."""
        selector = Selector(self.selector) if self.selector else None
        now_ms = round(1000 * time.time())

        def matches(message: Message) -> bool:
            reason = message.death.reason if message.death is not None else ""
            return (
                self.reason in reason
                and self.error in (message.last_error or "")
                and (selector is None or selector.matches(message, now_ms))
            )

        return matches


class ListingPage(Struct, Generic[T], frozen=True):
    """One page of a listing.

    after: the id of the last message that was checked, to continue behind it; None at the end.
    checked: how many messages were checked.
    """

    found: Sequence[T]
    after: str | None
    checked: int


def page(
    read: Callable[[int, str | None], Sequence[T]],
    matches: Callable[[T], bool] | None,
    limit: int,
    after: str | None,
) -> ListingPage[T]:
    """A page of what ``read`` lists, and ``matches`` wants; bounded even if nothing matches.

    read: lists up to so many behind an id.
    """
    found: list[T] = []
    checked, until = 0, time.monotonic() + MAX_SECONDS
    while True:
        # One more than a page has tells whether others follow.
        some = read(limit + 1 if matches is None else STEP, after)
        for each in some:
            if len(found) == limit or (matches and checked and time.monotonic() > until):
                return ListingPage(found, after, checked)
            after = each.id
            checked += 1
            if matches is None or matches(each):
                found.append(each)
        if not some:
            return ListingPage(found, None, checked)
        if checked >= MAX_CHECKED:
            return ListingPage(found, after, checked)
