"""Checks of staged rows, page by page; see ``verification``."""

from __future__ import annotations

from functools import partial

from ...schema.keys import QueueKeys
from ...schema.streams import SinkState, StagedAttempt
from ...store.binding import fdb
from ..streams import staging
from .verification import Audit

PAGE_ATTEMPTS = 100


def attempts(audit: Audit, begin: bytes) -> bytes:
    """Every attempt has all its pieces, and none is left of a published batch.

    Counts the undecided rows.
    """
    keys = audit.scope.keys
    rows, following = audit.page(QueueKeys.attempt, begin)
    reads = []
    for kv in rows:
        sink, batch, name = keys.attempt.parse(kv.key)
        every = keys.staged.under(sink, batch, name)
        last = audit.tr.snapshot.get_key(fdb.KeySelector.last_less_than(every.stop))
        reads.append((kv, sink, batch, name, audit.reads.get(keys.sink(sink)), last))
    for kv, sink, batch, name, state, last in reads:
        subject, repair = f"{sink}, batch {batch}", partial(_remove, audit, sink, batch, name)
        told, found = StagedAttempt.unpack(kv.value), SinkState.unpack(state.value)
        if batch <= found.done:
            audit.report("staged and done", subject, "its rows are enqueued already", repair)
        elif last.wait() != keys.staged(sink, batch, name, told.pieces - 1):
            missing = f"{told.rows:,} rows are staged, but some of their pieces are missing"
            audit.report("staged rows missing", subject, missing)
        if not staging.fixed(found, batch):
            audit.rows += told.rows
    return following


def pieces(audit: Audit, begin: bytes) -> bytes:
    """Every staged piece belongs to a recorded attempt."""
    keys = audit.scope.keys
    every = keys.staged.rows
    place = begin or every.start
    for _ in range(PAGE_ATTEMPTS):
        key = audit.reads.get_key(fdb.KeySelector.first_greater_or_equal(place)).wait()
        if not every.start <= key < every.stop:
            return b""
        sink, batch, name, _ = keys.staged.parse(key)
        if not audit.reads.get(keys.attempt(sink, batch, name)).present():
            audit.report(
                "staged without attempt",
                f"{sink}, batch {batch}",
                "no attempt records these rows, so they cannot be published",
                partial(_remove, audit, sink, batch, name),
            )
        place = keys.staged.under(sink, batch, name).stop
    return place


def _remove(audit: Audit, sink: str, batch: int, name: bytes) -> None:
    staging.remove(audit.tr, audit.scope.keys, sink, batch, name)
