"""Which subscriptions of a queue want a message, found without asking each of them.

A subscription whose selector demands ``header = constant`` is looked up by the header's value, so a
thousand of them cost about as much as one. The others are evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ..values.model import HeaderValue, Message
from ..values.selector import Test, type_of
from .subscription_definitions import Definition

MAX_TESTS = 20_000
"""Selectors that one transaction evaluates: some hundredths of a second. What it has not come to
counts as wanted; at worst that wakes a consumer for nothing."""


class SubscriptionIndex:
    """The subscriptions of a queue, by what they want. Made once for a value of META.

    names: of all. everything: of those that want every message.
    """

    __slots__ = ("_by_header", "_others", "everything", "names")

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self.names = frozenset(one.name for one in definitions)
        self.everything = frozenset(one.name for one in definitions if one.selector is None)
        self._by_header: dict[str, dict[tuple[type, HeaderValue], list[tuple[str, Test]]]] = {}
        self._others: list[tuple[str, Test]] = []
        for one in definitions:
            if one.selector is None:
                continue
            tests = self._others
            if one.selector.equalities:
                header, kind, value = one.selector.equalities[0]
                tests = self._by_header.setdefault(header, {}).setdefault((kind, value), [])
            tests.append((one.name, one.selector.test))

    @property
    def selective(self) -> bool:
        """Whether any subscription has a selector."""
        return len(self.everything) < len(self.names)

    def wanting(self, messages: Iterable[Message], now_ms: int) -> set[str]:
        """The subscriptions that want at least one of some messages, at ``now_ms`` of the wall
        clock. Reads no more messages than it needs."""
        found = set(self.everything)
        if not self.selective:
            return found
        tests = self._tests(messages, found)
        for message, name, test in islice(tests, MAX_TESTS):
            if test(message, now_ms) is True:
                found.add(name)
        return found if next(tests, None) is None else set(self.names)

    def _tests(
        self, messages: Iterable[Message], found: set[str]
    ) -> Iterator[tuple[Message, str, Test]]:
        """What may want which message, but for those that were found before."""
        for message in messages:
            for header, value in message.headers.items():
                values = self._by_header.get(header)
                for name, test in values.get((type_of(value), value), ()) if values else ():
                    if name not in found:
                        yield message, name, test
            for name, test in self._others:
                if name not in found:
                    yield message, name, test
            if len(found) == len(self.names):
                return
