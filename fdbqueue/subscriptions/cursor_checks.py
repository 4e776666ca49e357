"""Checks of cursors, for ``verify``."""

from __future__ import annotations

from functools import partial

from ..messages import place
from ..messages.checks.verification import Audit
from ..schema.codec import unpack_index
from ..schema.keys import QueueKeys


def cursors(audit: Audit, begin: bytes) -> bytes:
    """Every cursor belongs to a subscription, and is not beyond TAIL, or a message could be
    enqueued behind it."""
    keys = audit.scope.keys
    names = {definition.name for definition in audit.scope.subscriptions}
    rows, following = audit.page(QueueKeys.cursor, begin)
    tails = {
        level: audit.reads.get(keys.tail(level)) for level in range(audit.scope.options.levels)
    }
    for kv in rows:
        name, *rest = keys.cursor.parse(kv.key)
        level = rest[0] if rest else None
        if name not in names:
            detail = "there is no such subscription"
            audit.report("cursor orphaned", name, detail, partial(audit.tr.clear, kv.key))
        elif level is not None and kv.value > keys.place_after(unpack_index(tails[level].value)):
            index = keys.parse_place(kv.value)
            detail = f"in level {level} it is at {index}, beyond TAIL"
            raised = partial(place.leave, audit.tr, keys.levels[level], index)
            audit.report("tail behind cursor", name, detail, raised)
    return following
