"""Checks of results, page by page: each can be read, and a sweep finds it."""

from __future__ import annotations

from functools import partial

from ...errors import CorruptData
from ...schema.keys import QueueKeys
from ...schema.records import Kept
from .audit import Audit


def results(audit: Audit, begin: bytes) -> bytes:
    """Every result has an entry in the order in which they end. Entries may be older than that."""
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.result, begin)
    found = []
    for kv in rows:
        (message_id,) = keys.result.parse(kv.key)
        try:
            end = keys.result_end(Kept.unpack(kv.value).until_ms, message_id)
        except CorruptData as error:
            audit.report("unreadable", message_id, f"a result: {error}")
            continue
        found.append((message_id, end, audit.reads.get(end)))
    for message_id, end, there in found:
        if not there.present():
            repair = partial(audit.tr.set, end, b"")
            audit.report("result astray", message_id, "a sweep would miss it", repair)
    return following
