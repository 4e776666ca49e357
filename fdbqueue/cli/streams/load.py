"""``fdbq stream load``: enqueues the rows of files."""

from __future__ import annotations

from typing import Literal

from .. import context, durations, terminal
from ..output import Done, Result
from ..parameters import QueueName, argument, option, pairs
from . import spark_session


def load(
    name: QueueName,
    paths: list[str] = argument("PATH…", "Files or directories."),
    format: str | None = option(
        "FORMAT", "parquet, json, csv or orc; by default from the file names."
    ),
    payload: str | None = option(
        "SQL", "The payload; by default the column payload, or the row as JSON."
    ),
    priority: str | None = option("SQL", "The priority, such as 'IF(delay > 60, 9, 4)'."),
    header: list[str] | None = option("NAME=SQL", "A header. Repeatable."),
    delay: str | None = option("SQL", "Seconds until the message is delivered."),
    ttl: str | None = option("SQL", "Time to live in seconds."),
    key: str | None = option("SQL", "The ordering key."),
    dedup_id: str | None = option("SQL", "The dedup id."),
    unique: str | None = option("SQL", "The unique key."),
    schema: str | None = option("COLUMNS", "The files' schema, such as 'delay INT'."),
    option: list[str] | None = option(
        "NAME=VALUE", "For Spark's reader, such as 'sep=;'. Repeatable."
    ),
    load_id: str | None = option(
        "NAME", "Load once under this name; an interrupted load resumes.", None, "--id"
    ),
    bad_rows: Literal["fail", "skip"] = option(
        "WHAT", "For an invalid row: fail, or skip it.", "fail"
    ),
    room: float = durations.option("How long to wait for room in a full queue.", 3600.0, least=0),
) -> Done:
    """Enqueue every row of files exactly once.

    The files are Parquet, JSON (one object per line), CSV or ORC. Rows are staged first and become
    messages once all of them have been read, so an invalid row ends the load with nothing enqueued.
    With --bad-rows skip, invalid rows are skipped and counted.

    Examples:
      fdbq stream load orders orders.parquet
      fdbq stream load orders orders.csv --payload body --priority 'IF(late, 9, 4)'
      fdbq stream load flights flights.jsonl --header carrier=carrier --id flights-2013
    """
    columns = {"payload": payload, "priority": priority, "delay": delay, "ttl": ttl, "key": key}
    columns |= {"dedup_id": dedup_id, "unique": unique}
    headers = pairs("--header", header, "NAME=SQL")
    options = pairs("--option", option)
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
    value = {
        "queue": name,
        "id": done.id,
        "rows": done.rows,
        "enqueued": done.new,
        "bytes": done.size,
        "rejected": done.rejected,
        "seconds": round(done.seconds, 3),
        "before": done.before,
    }
    if done.before:
        return Result(value, f"load {done.id} was complete already; nothing was enqueued")
    known, rejected = done.rows - done.new, done.rejected
    return Result(
        value,
        f"loaded {spark_session.rate(done.rows, 'row', done.size, done.seconds)}"
        + (f"; {terminal.count(known, 'row')} existed already" if known else "")
        + (f"; {terminal.count(rejected, 'row')} skipped" if rejected else ""),
    )
