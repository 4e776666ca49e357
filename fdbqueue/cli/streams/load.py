"""``fdbq stream load``: enqueues the rows of files."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument, Option

from .. import context, durations, terminal
from ..parameters import AsJson, QueueName, pair
from . import spark_session


def load(
    name: QueueName,
    paths: Annotated[list[str], Argument(metavar="PATH…", help="Files or directories.")],
    format: Annotated[
        str | None,
        Option(metavar="FORMAT", help="parquet, json, csv or orc; by default from the file names."),
    ] = None,
    payload: Annotated[
        str | None,
        Option(
            metavar="SQL", help="The payload; by default the column payload, or the row as JSON."
        ),
    ] = None,
    priority: Annotated[
        str | None,
        Option(metavar="SQL", help="The priority, such as 'IF(delay > 60, 9, 4)'."),
    ] = None,
    header: Annotated[
        list[str] | None, Option(metavar="NAME=SQL", help="A header. Repeatable.")
    ] = None,
    delay: Annotated[
        str | None, Option(metavar="SQL", help="Seconds until the message is delivered.")
    ] = None,
    ttl: Annotated[str | None, Option(metavar="SQL", help="Time to live in seconds.")] = None,
    key: Annotated[str | None, Option(metavar="SQL", help="The ordering key.")] = None,
    dedup_id: Annotated[str | None, Option(metavar="SQL", help="The dedup id.")] = None,
    unique: Annotated[str | None, Option(metavar="SQL", help="The unique key.")] = None,
    schema: Annotated[
        str | None, Option(metavar="COLUMNS", help="The files' schema, such as 'delay INT'.")
    ] = None,
    option: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="For Spark's reader, such as 'sep=;'. Repeatable."),
    ] = None,
    load_id: Annotated[
        str | None,
        Option(
            "--id", metavar="NAME", help="Load once under this name; an interrupted load resumes."
        ),
    ] = None,
    bad_rows: Annotated[
        Literal["fail", "skip"],
        Option(metavar="WHAT", help="For an invalid row: fail, or skip it."),
    ] = "fail",
    room: Annotated[
        float, durations.option("How long to wait for room in a full queue.", 0)
    ] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Enqueue every row of files exactly once.

    The files are Parquet, JSON (one object per line), CSV or ORC. Rows are staged first and become
    messages once all of them have been read, so an invalid row ends the load with nothing enqueued.
    With --bad-rows skip, invalid rows are skipped and counted.

    \b
    Examples:
      fdbq stream load orders orders.parquet
      fdbq stream load orders orders.csv --payload body --priority 'IF(late, 9, 4)'
      fdbq stream load flights flights.jsonl --header carrier=carrier --id flights-2013
    """
    columns = {
        "payload": payload,
        "priority": priority,
        "delay": delay,
        "ttl": ttl,
        "key": key,
        "dedup_id": dedup_id,
        "unique": unique,
    }
    headers = dict(pair("--header", each, "NAME=SQL") for each in header or [])
    options = dict(pair("--option", each) for each in option or [])
    db, queue = context.open_queue(name)
    queue.options(db)
    with spark_session.job("load", "rows") as (spark, run):
        done = spark.load(
            db,
            queue,
            paths,
            format=format,
            columns={column: text for column, text in columns.items() if text is not None},
            headers=headers,
            schema=schema,
            options=options,
            id=load_id,
            bad_rows=bad_rows,
            room=room,
            **run,
        )
    for sample in done.samples:
        terminal.print_error(f"skipped: {sample}")
    if as_json:
        terminal.print_json(
            {
                "queue": name,
                "id": done.id,
                "rows": done.rows,
                "enqueued": done.new,
                "bytes": done.size,
                "rejected": done.rejected,
                "seconds": round(done.seconds, 3),
                "before": done.before,
            }
        )
    elif done.before:
        print(f"load {terminal.visible(done.id)} was complete already; nothing was enqueued")
    else:
        known = done.rows - done.new
        print(
            f"loaded {spark_session.rate(done.rows, 'row', done.size, done.seconds)}"
            + (f"; {terminal.count(known, 'row')} existed already" if known else "")
            + (f"; {terminal.count(done.rejected, 'row')} skipped" if done.rejected else "")
        )
