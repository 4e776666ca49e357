"""``fdbq sweep``: housekeeping now."""

from __future__ import annotations

from dataclasses import asdict

from ...errors import QueueNotFound
from .. import context, terminal
from ..parameters import AnyQueueNames, AsJson


def sweep(names: AnyQueueNames = None, as_json: AsJson = False) -> None:
    """Run housekeeping now: reclaim expired leases, promote due messages, drop expired ones.

    Also removes rows that were staged a week ago and never enqueued, and deletes unused queues that
    have the option auto_delete. Consumers do all of this in passing, so you rarely need it.

    \b
    Examples:
      fdbq sweep orders
      fdbq sweep
    """
    db = context.connect()
    for name in names or context.queue_names(db):
        try:
            swept = context.queue(name).admin.sweep(db)
        except QueueNotFound:
            if names:
                raise
            continue  # it was deleted a moment ago
        staged = f", {swept.staged:,} staged rows removed" if swept.staged else ""
        deleted = "; the queue was unused and is deleted" if swept.deleted else ""
        terminal.print_result(
            as_json,
            {"queue": name, **asdict(swept)},
            f"{name}: {terminal.count(swept.promoted, 'message')} became ready, "
            f"{swept.expired:,} expired{staged}{deleted}",
        )
