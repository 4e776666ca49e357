"""Searches: what people look for among the messages of a queue, whatever their state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from ..model import HeaderValue, Message
from . import PROPERTIES, Selector
from .grammar import names

PAYLOAD = "payload."
MORE: dict[str, Callable[[Message], HeaderValue]] = {
    "key": lambda message: message.key,
    "unique": lambda message: message.unique,
    "error": lambda message: message.last_error,
    "reason": lambda message: None if message.death is None else message.death.reason,
}
"""The names that a search has beside headers and the reserved names of selectors."""


class Search:
    """A condition in the syntax of selectors, that also knows ``MORE`` names, and the fields of a
    JSON payload: ``payload.order = 'x' AND error LIKE '%timeout%'``. A header comes first.

    It notes which of its names any message had. Raises ``InvalidSelector``.
    """

    def __init__(self, text: str) -> None:
        self._test = Selector(text).test
        self._unseen = names(text, quoted=True) - PROPERTIES.keys() - MORE.keys()
        self.payloads = any(name.startswith(PAYLOAD) for name in self._unseen)
        """Whether it looks into payloads."""
        self._headers: set[str] = set()
        self._fields: set[str] = set()

    def matches(self, message: Message, now_ms: int) -> bool:
        """Whether a message matches at ``now_ms``, the wall clock in milliseconds."""
        fields = _Fields(message)
        # A misspelt name finds nothing and says nothing; a name that no message has is told to the
        # user.
        self._unseen -= {name for name in self._unseen if fields.get(name) is not None}
        if self._unseen and len(self._headers) < MOST_NAMED:
            self._headers.update(message.headers)
            self._fields.update(fields.names())
        return self._test(replace(message, headers=fields), now_ms) is True

    @property
    def unknown(self) -> str | None:
        """What is wrong with a name that no message had; None if each of them was seen."""
        if not self._unseen:
            return None
        name = min(self._unseen)
        if name.startswith(PAYLOAD):
            return f"no payload is JSON with {name.removeprefix(PAYLOAD)!r}"
        if name in self._fields:
            return f"no message has a header {name!r}: write {PAYLOAD}{name} for what payloads have"
        known = ", ".join(sorted(self._headers)[:MOST_NAMED])
        has = f": they have {known}" if known else ""
        return f"no message has a header {name!r}{has} (a text is written '{name}')"


MOST_NAMED = 20


class _Fields:
    """What a search sees in place of the headers of a message."""

    __slots__ = ("_message", "_payload")

    def __init__(self, message: Message) -> None:
        self._message = message
        # Not None, which a payload that is no JSON becomes: it is parsed once.
        self._payload: Any = _UNREAD

    def get(self, name: str) -> Any:
        """The value of a name; None if the message has none."""
        value = self._message.headers.get(name)
        if value is not None:
            return value
        if name in MORE:
            return MORE[name](self._message)
        return self._field(name) if name.startswith(PAYLOAD) else None

    def names(self) -> Iterable[str]:
        """The names of the fields of the payload."""
        found = self._read()
        return found if isinstance(found, dict) else ()

    def _read(self) -> Any:
        if self._payload is _UNREAD:
            try:
                self._payload = json.loads(self._message.payload)
            except (ValueError, RecursionError):
                self._payload = None
        return self._payload

    def _field(self, name: str) -> HeaderValue:
        found = self._read()
        for part in name.removeprefix(PAYLOAD).split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, str | int | float | bool) else None


_UNREAD = object()
