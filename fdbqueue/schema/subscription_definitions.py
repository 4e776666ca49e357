"""What the subscriptions of a queue are, as they are stored.

They lie below the operations because whoever puts a message back has to know whose cursor may
have passed it: they are read with META, cached with it, and a change of them is one of META.
"""

from __future__ import annotations

import json
import logging
from enum import Enum
from typing import NamedTuple

from ..errors import CorruptData, FormatTooNew
from ..store.binding import fdb
from ..values.model import Message
from ..values.selector import Selector
from .keys import Kind, QueueKeys

log = logging.getLogger("fdbqueue")

FORMAT_VERSION = 1


class Mode(Enum):
    """What a subscription does with a message: takes it, or looks at it."""

    ACQUIRE = "acquire"
    BROWSE = "browse"


class Definition(NamedTuple):
    """A subscription as it is stored.

    selector: which messages it is about; all where None.
    exclusive: whether it serves one consumer at a time.
    auto_close: whether it removes itself once it has seen the end of the queue.
    """

    name: str
    mode: Mode = Mode.ACQUIRE
    selector: Selector | None = None
    exclusive: bool = False
    auto_close: bool = False

    @property
    def skips(self) -> bool:
        """Whether it takes messages and leaves others: then its cursor must not pass a match."""
        return self.mode is Mode.ACQUIRE and self.selector is not None

    @property
    def timed(self) -> bool:
        """Whether a message that does not match now may match later, where it stands."""
        return self.selector is not None and self.selector.timed

    def matches(self, message: Message, now_ms: int) -> bool:
        """Whether it is about a message, at ``now_ms`` of the wall clock."""
        return self.selector is None or self.selector.matches(message, now_ms)


def reads(tr: fdb.Transaction, keys: QueueKeys) -> fdb.FDBRange:
    """Issue a snapshot read of all definitions; a conflict on META covers them."""
    stored = keys.kind(Kind.SUBSCRIPTION)
    return tr.snapshot.get_range(stored.start, stored.stop)


def parse(keys: QueueKeys, looked: fdb.FDBRange) -> tuple[Definition, ...]:
    """Definitions in the order of their names, without those that this release cannot read: no
    other subscription depends on them, nor does the queue."""
    found = []
    for kv in looked:
        try:
            found.append(_parse(keys.parse_subscription(kv.key), kv.value))
        except (CorruptData, FormatTooNew) as error:
            log.warning("left out: %s", error)
    return tuple(found)


def pack(definition: Definition) -> bytes:
    """The stored form of a definition; its name is in its key."""
    selector = definition.selector
    stored = {
        "format": FORMAT_VERSION,
        "mode": definition.mode.value,
        "selector": None if selector is None else selector.text,
        "exclusive": definition.exclusive,
        "auto_close": definition.auto_close,
    }
    return json.dumps(stored, sort_keys=True).encode()


def _parse(name: str, value: bytes) -> Definition:
    what = f"subscription {name!r}"
    try:
        stored = json.loads(value)
        found = int(stored["format"])
        if found > FORMAT_VERSION:
            raise FormatTooNew(what=what, found=found, known=FORMAT_VERSION)
        selector = stored["selector"]
        return Definition(
            name,
            Mode(stored["mode"]),
            None if selector is None else Selector(selector),
            bool(stored["exclusive"]),
            bool(stored["auto_close"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(what=what, problem=repr(error)) from None
