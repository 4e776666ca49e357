"""``fdbq pipeline drain``: writes ready messages to files."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Annotated

from .. import context, terminal
from ..declarations import Argument, Option
from ..parameters import AsJson, QueueName
from . import session
from .session import HeaderColumns

Format = Enum("Format", {"PARQUET": "parquet", "JSON": "json", "ORC": "orc"})
"""The format of the files."""


Payload = Enum("Payload", {"BYTES": "bytes", "STRING": "string", "JSON": "json"})
"""The type of the payload column."""


BadPayloads = Enum("BadPayloads", {"FAIL": "fail", "NULL": "null"})
"""What to do with a payload of another type."""


def drain(
    name: QueueName,
    path: Annotated[str, Argument(metavar="PATH", help="The directory of the files.")],
    format: Annotated[
        Format, Option(metavar="FORMAT", help="parquet, json or orc.")
    ] = Format.PARQUET,
    payload: Annotated[
        Payload, Option(metavar="KIND", help="The payload's type: bytes, string or json.")
    ] = Payload.BYTES,
    schema: Annotated[
        str | None,
        Option(
            metavar="COLUMNS",
            help="The schema of JSON payloads, such as 'carrier STRING, delay INT'.",
        ),
    ] = None,
    bad_payloads: Annotated[
        BadPayloads, Option(metavar="WHAT", help="For a payload of another type: fail, or null.")
    ] = BadPayloads.FAIL,
    header_columns: HeaderColumns = None,
    columns: Annotated[
        str | None,
        Option(metavar="NAMES", help="Only these columns, such as 'id,payload,priority'."),
    ] = None,
    max_messages: Annotated[
        int | None, Option("--batch", min=1, help="At most N messages in a batch.")
    ] = None,
    consumer: Annotated[
        str | None,
        Option(metavar="NAME", help="The consumer's name; by default derived from the path."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write all ready messages to files, each exactly once.

    At the end, fdbq prints how many messages are left in the queue and why: they are delayed,
    arrived during the job, or are leased.

    To continue after an interruption, run it again with the same path. A message is done once it is
    in a file and in Spark's log of the files (_spark_metadata). Spark reads the directory by that
    log; other readers should, too.

    \b
    Examples:
      fdbq pipeline drain orders /data/orders
      fdbq pipeline drain flights /data/flights --payload json --schema 'carrier STRING, delay INT'
    """
    db, queue = context.open_queue(name)
    queue.options(db)
    with session.job("drain", "messages") as (spark, run):
        done = spark.drain(
            db,
            queue,
            path,
            format=format.value,
            payload=payload.value,
            payload_schema=schema,
            bad_payloads=bad_payloads.value,
            header_columns=header_columns,
            columns=[each.strip() for each in columns.split(",")] if columns else None,
            consumer=consumer,
            max_messages=max_messages,
            **run,
        )
    if as_json:
        terminal.print_json(
            {
                "queue": name,
                "path": path,
                "consumer": done.consumer,
                "messages": done.rows,
                "bytes": done.size,
                "batches": done.batches,
                "seconds": round(done.seconds, 3),
                "left": asdict(done.left),
            }
        )
    else:
        print(
            f"drained {session.rate(done.rows, 'message', done.size, done.seconds)} "
            f"to {terminal.visible(path)}"
        )
        if done.left.why:
            print(f"left in the queue: {'; '.join(done.left.why)}")
