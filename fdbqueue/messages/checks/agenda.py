"""The check of the agenda, at one version: whoever looks when it says so misses nothing."""

from __future__ import annotations

from functools import partial

from ...schema import due
from ...schema.codec import pack_time
from ...schema.keys import AgendaKeys
from .verification import Audit


def earliest(audit: Audit, keys: AgendaKeys) -> None:
    """No entry of a rank is due before the rank is looked at.

    keys: those of the queue, or of the limits of its root.
    """
    every = keys.delayed.rows
    known = {one.rank: one.from_ms for one in due.ranks(keys, audit.whole(keys.earliest.rows))}
    begin = every.start
    # The first entry of each rank is enough, and skips the others.
    while row := next(audit.whole(slice(begin, every.stop), 1), None):
        rank, due_ms = due.parse(keys, row.key)
        begin = keys.delayed.under(rank).stop
        if due_ms < known.get(rank, due_ms + 1):
            lower = partial(audit.tr.byte_min, keys.earliest(rank), pack_time(due_ms))
            audit.report("agenda too late", f"rank {rank}", f"one is due at {due_ms} ms", lower)
