"""The options of the data source.

Spark hands options over as texts with lower-case names. ``Options`` parses and checks them;
readers and writers keep the result in small frozen values, which are pickled to the executors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from ...errors import InvalidOptions
from ...values.records import record

D = TypeVar("D", int, None)
R = TypeVar("R")

LOCATION = ("queue", "store", "root")
"""Options that name the queue: of every read and write."""
LAYOUT = (
    "table",
    "payload",
    "payloadSchema",
    "badPayloads",
    "headers",
    "headerColumns",
    "unreadable",
)
"""Options that shape rows: of every read."""
BATCH = (*LOCATION, *LAYOUT, "levels", "since", "until", "selector", "partitionBytes", "pushdown")
LIMITS = ("maxMessagesPerBatch", "maxBytesPerBatch", "partitions", "failOnDataLoss")
STREAM = (*LOCATION, *LAYOUT, *LIMITS, "mode", "consumer", "startingPosition")
WRITE = (*LOCATION, "id", "timeout", "badRows", "contentType", "summary")
SPARKS = ("checkpointLocation",)
"""Spark's own options, which it also passes to stream writers."""

_SIZE = re.compile(r"(\d+)\s*([kKmMgG]?)[bB]?")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_TRUTH = {"true": True, "false": False}


class Options:
    """The options that the user set, all of them among ``known``.

    Raises ``InvalidOptions`` for any other. ``path``, which Spark sets for ``load("orders")`` and
    ``save("orders")``, is another name of ``queue``.
    """

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        self._texts = {name.lower(): str(text) for name, text in options.items()}
        self._known = sorted(set(known))
        path = self._texts.pop("path", None)
        if path is not None and self._texts.setdefault("queue", path) != path:
            raise InvalidOptions(
                option="queue", problem=f"it is {self._texts['queue']!r}, but the path is {path!r}"
            )
        spelled = {name.lower() for name in self._known}
        for name in self._texts:
            if name not in spelled:
                raise InvalidOptions(
                    option=name, problem=f"unknown; the options are {', '.join(self._known)}"
                )

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text, or the default."""
        assert name in self._known, name
        return self._texts.get(name.lower(), default)

    def required(self, name: str) -> str:
        """A text that must be set and not empty."""
        found = self.text(name)
        if not found:
            raise InvalidOptions(option=name, problem="it is required")
        return found

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """One of the choices."""
        found = (self.text(name) or default).lower()
        words = list(choices)
        if found not in words:
            raise InvalidOptions(
                option=name, problem=f"{found!r} is not one of {', '.join(map(repr, words))}"
            )
        return found

    def truth(self, name: str, default: bool = False) -> bool:
        """``true`` or ``false``."""
        return _TRUTH[self.choice(name, _TRUTH, str(default).lower())]

    def integer(
        self,
        name: str,
        default: D,
        low: int,
        high: int,
        parse: Callable[[str], int] = int,
        form: str = "an integer",
    ) -> int | D:
        """An integer from ``low`` to ``high``. form: of what ``parse`` takes, in words."""
        found = self.text(name)
        if found is None:
            return default
        number = _parsed(name, found, parse, form)
        if not low <= number <= high:
            raise InvalidOptions(
                option=name, problem=f"{number:,} is not between {low:,} and {high:,}"
            )
        return number

    def size(self, name: str, default: D, low: int, high: int) -> int | D:
        """A number of bytes, like ``8000000`` or ``8 MB``."""
        return self.integer(name, default, low, high, _bytes, "a size like 8000000 or 8 MB")

    def time(self, name: str) -> int | None:
        """A time like ``2026-05-01T12:00:00Z`` in milliseconds since the epoch; UTC by default."""
        found = self.text(name)
        if found is None:
            return None
        time = _parsed(name, found, datetime.fromisoformat, "a time like 2026-05-01T12:00:00Z")
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)

    def numbers(self, name: str) -> frozenset[int] | None:
        """Integers like ``0, 2, 5-9``, or None."""
        found = self.text(name)
        if found is None:
            return None
        numbers: set[int] = set()
        for part in found.split(","):
            first, dash, last = part.partition("-")
            ends = (first, last if dash else first)
            low, high = (_parsed(name, each, int, "an integer") for each in ends)
            if low > high:
                raise InvalidOptions(option=name, problem=f"{part.strip()!r} is an empty range")
            numbers.update(range(low, min(high, low + 1_000) + 1))
        return frozenset(numbers)


@record
class Location:
    """Where a queue is.

    store: None for each process's default. root: the prefix of the subspace of queues; None for
    the package's own.
    """

    queue: str
    store: str | None
    root: bytes | None

    @classmethod
    def of(cls, options: Options) -> Location:
        """From the options ``queue``, ``store`` and ``root``, which is in hexadecimal."""
        root, form = options.text("root"), "the prefix of a subspace in hexadecimal"
        prefix = None if root is None else _parsed("root", root, bytes.fromhex, form)
        return cls(options.required("queue"), options.text("store"), prefix)


def _parsed(name: str, text: str, parse: Callable[[str], R], form: str) -> R:
    """What ``parse`` makes of a text. form: of what it takes, in words."""
    try:
        return parse(text.strip())
    except ValueError:
        raise InvalidOptions(option=name, problem=f"{text.strip()!r} is not {form}") from None


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2].lower()]
