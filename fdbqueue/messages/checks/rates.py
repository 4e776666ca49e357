"""Checks of the rates of keys, page by page: each RATE has its TIMER, and the reverse; and of the
queue's own rate."""

from __future__ import annotations

from functools import partial

from ...errors import CorruptData
from ...schema.keys import QueueKeys
from ...schema.records import Paced, Reached
from .audit import Audit


def rates(audit: Audit, begin: bytes) -> bytes:
    """Something looks at every rate when it is due."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.rate, begin)
    found = []
    for kv in rows:
        key = str(keys.rate.parse(kv.key)[0])
        timer = keys.timer(*Paced.unpack(kv.value).timer, key)
        found.append((key, timer, audit.reads.get(timer)))
    for key, timer, there in found:
        if not there.present():
            repair = partial(audit.tr.set, timer, b"")
            audit.report("rate astray", key, "nothing looks at it when it is due", repair)
    return following


def pace(audit: Audit) -> None:
    """It can be read how far the queue has come by its rate. To repair it is to begin anew."""
    key = audit.scope.keys.pace
    value = audit.reads.get(key)
    if value.present():
        try:
            Reached.unpack(value.value or b"")
        except CorruptData:
            repair = partial(audit.tr.clear, key)
            audit.report("pace unreadable", "", "how far the queue has come by its rate", repair)


def timers(audit: Audit, begin: bytes) -> bytes:
    """Every timer is that of a rate, but those of keys that are owed slots."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.timer, begin)
    found = [(kv.key, keys.timer.parse(kv.key)) for kv in rows]
    found = [one for one in found if one[1][1]]
    stored = [audit.reads.get(keys.rate(key)) for _, (*_, key) in found]
    for (timer, (*named, key)), value in zip(found, stored, strict=True):
        known = _opened(value.value) if value.present() else None
        if value.present() and known is None:
            continue  # ``rates`` reports it.
        if known is None or list(known.timer) != named:
            repair = partial(audit.tr.clear, timer)
            audit.report("timer astray", str(key), "the rate of the key does not name it", repair)
    return following


def _opened(value: bytes | None) -> Paced | None:
    try:
        return Paced.unpack(value or b"")
    except CorruptData:
        return None
