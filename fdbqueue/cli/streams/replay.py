"""``fdbq message retry --where``: redrives dead letters that match a condition in SQL."""

from __future__ import annotations

from .. import context, terminal
from ..output import Result
from ..parameters import ChangeOptions
from . import spark_session


def replay(
    name: str, where: str, schema: str | None, header_columns: str | None, change: ChangeOptions
) -> Result:
    """Deliver dead letters again that match a condition, once the user has confirmed it."""
    db, queue = context.open_queue(name)
    found = queue.depth(db).dead
    if not change.dry_run:
        change.confirm(f"Retry the matching of {found:,} dead letters of queue {name!r}?")
    with spark_session.job("replay", "dead letters") as (spark, run):
        done = spark.replay(
            db,
            queue,
            where,
            payload_schema=schema,
            header_columns=header_columns,
            dry_run=change.dry_run,
            **run,
        )
    count = done.matched if change.dry_run else done.replayed
    of = "" if change.dry_run else f", {done.matched:,} matched"
    return Result(
        {
            "queue": name,
            **change.counted("retried", count),
            "matched": done.matched,
            "seconds": round(done.seconds, 3),
        },
        f"{change.verb('retry', 'retried')} {terminal.count(count, 'message')} of queue {name}{of}",
    )
