"""``fdbq pipeline replay``: dead letters that match a condition are delivered again."""

from __future__ import annotations

from typing import Annotated

from .. import home, terminal
from ..declarations import Option
from ..parameters import AsJson, DryRun, QueueName, Yes
from . import session as pipeline_session


def replay(
    name: QueueName,
    where: Annotated[
        str | None,
        Option(metavar="SQL", help="Which ones: a condition on the columns of the dead letters."),
    ] = None,
    every: Annotated[bool, Option("--all", help="All dead letters of the queue.")] = False,
    schema: Annotated[
        str | None,
        Option(
            metavar="COLUMNS",
            help="Of payloads that are JSON, so that the condition can name payload.delay.",
        ),
    ] = None,
    header_columns: Annotated[
        str | None,
        Option(metavar="COLUMNS", help="Headers as columns, like 'region, tries BIGINT'."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Deliver dead letters again that match a condition in SQL, on what is in their payloads, too.

    The columns are those of the table of dead letters: id, payload (as text), headers, priority,
    level, attempts, enqueued_at, last_error, reason, died_at and so on. Where a selector is
    enough, fdbq dead redrive needs no Spark.

    \b
    Examples:
      fdbq pipeline replay orders --where "reason LIKE '%timeout%' AND died_at > '2026-05-01'"
      fdbq pipeline replay flights --schema 'delay INT' --where 'payload.delay > 60' --dry-run
    """
    if (where is None) is not every:
        raise terminal.Refused("say which dead letters: with --where, or with --all")
    db = home.opened()
    queue = home.queue(name)
    found = queue.depth(db).dead
    if not dry_run:
        which = f"the dead letters that match, of {found:,}" if where else f"all {found:,} of them"
        terminal.confirm(f"Deliver dead letters of queue {name!r} again: {which}?", yes)
    spark, session = pipeline_session.start("replay")
    with pipeline_session.told("dead letters") as tell:
        done = spark.replay(
            db,
            queue,
            where,
            payload_schema=schema,
            header_columns=header_columns,
            dry_run=dry_run,
            spark=session,
            progress=tell,
        )
    if as_json:
        terminal.print_json(
            {
                "queue": name,
                "matched": done.matched,
                "replayed": done.replayed,
                "seconds": round(done.seconds, 3),
            }
        )
    elif dry_run:
        print(f"would replay {terminal.count(done.matched, 'dead letter')}")
    else:
        letters = terminal.count(done.replayed, "dead letter")
        print(f"replayed {letters} of queue {terminal.visible(name)}, of {done.matched:,} matching")
