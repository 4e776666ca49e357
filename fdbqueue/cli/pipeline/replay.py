"""``fdbq pipeline replay``: redrives dead letters that match a condition in SQL."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from .. import context, terminal
from ..parameters import Change, QueueName, grouped
from . import session
from .session import HeaderColumns, Schema


@grouped
def replay(
    name: QueueName,
    where: Annotated[
        str | None,
        Option(metavar="SQL", help="A condition on the columns of the dead letters."),
    ] = None,
    every: Annotated[bool, Option("--all", help="All dead letters of the queue.")] = False,
    schema: Schema = None,
    header_columns: HeaderColumns = None,
    *,
    change: Change,
) -> None:
    """Deliver dead letters again that match a condition in SQL.

    With --schema, the condition may use fields of JSON payloads, such as payload.delay. The columns
    are those of the table of dead letters: id, payload (as text), headers, priority, level,
    attempts, enqueued_at, last_error, reason, died_at and others. Use fdbq dead redrive, which
    needs no Spark, where a selector is enough.

    \b
    Examples:
      fdbq pipeline replay orders --where "reason LIKE '%timeout%' AND died_at > '2026-05-01'"
      fdbq pipeline replay flights --schema 'delay INT' --where 'payload.delay > 60' --dry-run
    """
    if (where is None) is not every:
        raise terminal.CommandError("choose dead letters with --where, or with --all")
    db, queue = context.open_queue(name)
    found = queue.depth(db).dead
    if not change.dry_run:
        which = "matching dead letters, out of" if where else "all dead letters:"
        change.confirm(f"Replay {which} {found:,} of queue {name!r}?")
    with session.job("replay", "dead letters") as (spark, run):
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
    change.print_result(
        {
            "queue": name,
            "matched": done.matched,
            "replayed": done.replayed,
            "seconds": round(done.seconds, 3),
        },
        f"{change.verb('replay', 'replayed')} {terminal.count(count, 'dead letter')} "
        f"of queue {name}{of}",
    )
