"""``fdbq pipeline load``: files of Parquet, JSON or CSV become messages."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from .. import durations, home, terminal
from ..declarations import Argument, Option
from ..parameters import AsJson, QueueName
from . import session as pipeline_session


class BadRows(Enum):
    """What to do with a row that is no message."""

    FAIL = "fail"
    SKIP = "skip"


def load(
    name: QueueName,
    paths: Annotated[list[str], Argument(metavar="PATH…", help="Files or directories.")],
    format: Annotated[
        str | None,
        Option(metavar="FORMAT", help="parquet, json, csv or orc; else by the ending."),
    ] = None,
    payload: Annotated[
        str | None,
        Option(
            metavar="SQL",
            help="The payload: an expression on the columns. Else the column payload, or, where "
            "there is none, the whole row as JSON.",
        ),
    ] = None,
    priority: Annotated[
        str | None, Option(metavar="SQL", help="The priority, like 'IF(delay > 60, 9, 4)'.")
    ] = None,
    header: Annotated[
        list[str] | None,
        Option(metavar="NAME=SQL", help="A header; can be given several times."),
    ] = None,
    delay: Annotated[
        str | None, Option(metavar="SQL", help="Seconds before which it is not delivered.")
    ] = None,
    ttl: Annotated[
        str | None, Option(metavar="SQL", help="Seconds after which it is delivered no more.")
    ] = None,
    key: Annotated[str | None, Option(metavar="SQL", help="The ordering key.")] = None,
    dedup_id: Annotated[str | None, Option(metavar="SQL", help="The dedup id.")] = None,
    unique: Annotated[str | None, Option(metavar="SQL", help="The unique key.")] = None,
    schema: Annotated[
        str | None,
        Option(metavar="COLUMNS", help="Of the files, like 'carrier STRING, delay INT'."),
    ] = None,
    option: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Of Spark's reader, like 'sep=;'."),
    ] = None,
    load_id: Annotated[
        str | None,
        Option(
            "--id",
            metavar="NAME",
            help="A name of the load: loads of one name enqueue once, and one that was "
            "interrupted is gone on with.",
        ),
    ] = None,
    bad_rows: Annotated[
        BadRows,
        Option(metavar="WHAT", help="At a row that is no message: fail, or skip it."),
    ] = BadRows.FAIL,
    timeout: Annotated[
        float,
        Option(
            metavar="DURATION",
            parser=durations.at_least(0),
            help="How long to wait for room in the queue.",
        ),
    ] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Enqueue every row of files, each once: Parquet, JSON (an object to a line), CSV or ORC.

    The rows are staged first, and become messages only when all were read: a row that is no
    message ends the load, and nothing is enqueued. With --bad-rows skip, such rows are left out
    and counted.

    \b
    Examples:
      fdbq pipeline load orders orders.parquet
      fdbq pipeline load orders orders.csv --payload body --priority 'IF(late, 9, 4)'
      fdbq pipeline load flights flights.jsonl --header carrier=carrier --id flights-2013
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
    headers = dict(_pair("--header", each, "NAME=SQL") for each in header or [])
    options = dict(_pair("--option", each, "NAME=VALUE") for each in option or [])
    db = home.opened()
    queue = home.queue(name)
    queue.options(db)
    spark, session = pipeline_session.start("load")
    with pipeline_session.told("rows") as tell:
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
            bad_rows=bad_rows.value,
            timeout=timeout,
            spark=session,
            progress=tell,
        )
    for sample in done.samples:
        terminal.complain(f"left out: {sample}")
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
        print(f"load {terminal.visible(done.id)} was complete before: nothing was enqueued")
    else:
        known = done.rows - done.new
        print(
            f"loaded {pipeline_session.rate(done.rows, 'row', done.size, done.seconds)}"
            + (f"; {terminal.count(known, 'row')} were there before" if known else "")
            + (f"; {terminal.count(done.rejected, 'row')} left out" if done.rejected else "")
        )


def _pair(option: str, text: str, shape: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise terminal.Refused(f"{option} {text}: write {shape}")
    return name, value
