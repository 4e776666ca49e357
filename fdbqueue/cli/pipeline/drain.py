"""``fdbq pipeline drain``: what is ready in a queue becomes files."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Annotated

from .. import home, terminal
from ..declarations import Argument, Option
from ..parameters import AsJson, QueueName
from . import session as pipeline_session


class Format(Enum):
    """What the files are."""

    PARQUET = "parquet"
    JSON = "json"
    ORC = "orc"


class Payload(Enum):
    """What payloads are."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"


class BadPayloads(Enum):
    """What to do with a payload that is something else."""

    FAIL = "fail"
    NULL = "null"


def drain(
    name: QueueName,
    path: Annotated[str, Argument(metavar="PATH", help="A directory for the files.")],
    format: Annotated[
        Format, Option(metavar="FORMAT", help="parquet, json or orc.")
    ] = Format.PARQUET,
    payload: Annotated[
        Payload, Option(metavar="KIND", help="What payloads are: bytes, string or json.")
    ] = Payload.BYTES,
    schema: Annotated[
        str | None,
        Option(
            metavar="COLUMNS",
            help="Of payloads that are JSON, like 'carrier STRING, delay INT'.",
        ),
    ] = None,
    bad_payloads: Annotated[
        BadPayloads,
        Option(metavar="WHAT", help="At a payload that does not fit: fail, or null."),
    ] = BadPayloads.FAIL,
    header_columns: Annotated[
        str | None,
        Option(metavar="COLUMNS", help="Headers as columns, like 'region, tries BIGINT'."),
    ] = None,
    columns: Annotated[
        str | None,
        Option(metavar="NAMES", help="Only these columns, like 'id,payload,priority'."),
    ] = None,
    max_messages: Annotated[
        int | None, Option("--batch", metavar="N", min=1, help="Messages in a batch at most.")
    ] = None,
    consumer: Annotated[
        str | None,
        Option(metavar="NAME", help="The consumer that plans them; else one of the path."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take what is ready, and write it to files, each message exactly once.

    What is in the queue at the end is told, and why it was left: it is delayed, came meanwhile, or
    others have it.

    However often it is interrupted: run it again with the same path, and it goes on. A message is
    done when it is in the files, and in the log that Spark keeps beside them (_spark_metadata):
    read the directory by that log, as Spark does.

    \b
    Examples:
      fdbq pipeline drain orders /data/orders
      fdbq pipeline drain flights /data/flights --payload json --schema 'carrier STRING, delay INT'
    """
    db = home.opened()
    queue = home.queue(name)
    queue.options(db)
    spark, session = pipeline_session.start("drain")
    with pipeline_session.told("messages") as tell:
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
            spark=session,
            progress=tell,
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
            f"drained {pipeline_session.rate(done.rows, 'message', done.size, done.seconds)} "
            f"to {terminal.visible(path)}"
        )
        if done.left.why:
            print(f"left in the queue: {'; '.join(done.left.why)}")
