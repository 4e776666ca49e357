"""The definitions of a queue's subscriptions, as they are stored.

Requeuing a message needs them, to find the cursors that are ahead of it. They are read and cached
with META, and changing one invalidates META.
"""

from __future__ import annotations

import json
import logging
from enum import Enum
from typing import NamedTuple

from ..errors import CorruptData
from ..store.binding import fdb
from ..values.model import Message
from ..values.selector import Selector
from .keys import Kind, QueueKeys

log = logging.getLogger("fdbqueue")

FORMAT_VERSION = 1


class Mode(Enum):
    """Whether a subscription takes messages or only reads them."""

    ACQUIRE = "acquire"
    BROWSE = "browse"


class Definition(NamedTuple):
    """A subscription as it is stored.

    selector: which messages it wants; None for all.
    exclusive: whether it serves one consumer at a time.
    auto_close: whether it removes itself at the end of the queue.
    """

    name: str
    mode: Mode = Mode.ACQUIRE
    selector: Selector | None = None
    exclusive: bool = False
    auto_close: bool = False

    @property
    def skips(self) -> bool:
        """Whether it takes some messages and leaves others; its cursor must not skip a match."""
        return self.mode is Mode.ACQUIRE and self.selector is not None

    @property
    def timed(self) -> bool:
        """Whether a waiting message may begin to match later."""
        return self.selector is not None and self.selector.timed

    def matches(self, message: Message, now_ms: int) -> bool:
        """Whether it wants a message, at ``now_ms`` of the wall clock."""
        return self.selector is None or self.selector.matches(message, now_ms)


def reads(tr: fdb.Transaction, keys: QueueKeys) -> fdb.FDBRange:
    """Issue a snapshot read of all definitions; a conflict on META covers them."""
    stored = keys.kind(Kind.SUBSCRIPTION)
    return tr.snapshot.get_range(stored.start, stored.stop)


def parse(keys: QueueKeys, reads: fdb.FDBRange) -> tuple[Definition, ...]:
    """Definitions in the order of their names, without any that cannot be read."""
    found = []
    for kv in reads:
        try:
            found.append(_parse(keys.subscription.parse(kv.key)[0], kv.value))
        except CorruptData as error:
            log.warning("ignoring a subscription: %s", error)
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
        found = stored["format"]
        if found != FORMAT_VERSION:
            raise CorruptData(what=what, problem=f"its format is {found}, not {FORMAT_VERSION}")
        selector = stored["selector"]
        return Definition(
            name,
            Mode(stored["mode"]),
            None if selector is None else Selector(selector),
            bool(stored["exclusive"]),
            bool(stored["auto_close"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(what=what, problem=repr(error)) from None
