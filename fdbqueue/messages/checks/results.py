"""Checks of results, page by page: each can be read, and goes in time."""

from __future__ import annotations

from functools import partial

from ...schema import due
from ...schema.keys import QueueKeys, What
from ...schema.records import Kept
from .verification import Audit


def results(audit: Audit, begin: bytes) -> bytes:
    """Every result has an entry in the order in which they end. Entries may be older than that."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.result, begin)
    found = []
    for kv in rows:
        (message_id,) = keys.result.parse(kv.key)
        end = keys.tidying(Kept.unpack(kv.value).until_ms, What.RESULT, message_id)
        found.append((message_id, end, audit.reads.get(end)))
    for message_id, end, there in found:
        if not there.present():
            repair = partial(due.add, audit.tr, keys, end)
            audit.report("result astray", message_id, "nobody would remove it", repair)
    return following
