"""``fdbq stream drain``: writes ready messages to files."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec.structs import asdict
from typer import Argument, Option

from .. import context, terminal
from ..parameters import AsJson, QueueName
from . import spark_session
from .columns import HeaderColumns, Schema


def drain(
    name: QueueName,
    path: Annotated[str, Argument(metavar="PATH", help="The directory of the files.")],
    format: Annotated[
        Literal["parquet", "json", "orc"],
        Option(metavar="FORMAT", help="parquet, json or orc."),
    ] = "parquet",
    payload: Annotated[
        Literal["bytes", "string", "json"] | None,
        Option(
            metavar="KIND",
            help="The payload's type: bytes, string or json; by default what the queue's "
            "serializer writes.",
        ),
    ] = None,
    schema: Schema = None,
    bad_payloads: Annotated[
        Literal["fail", "null"],
        Option(metavar="WHAT", help="For a payload of another type: fail, or null."),
    ] = "fail",
    header_columns: HeaderColumns = None,
    columns: Annotated[
        str | None,
        Option(metavar="NAMES", help="Only these columns, such as 'id,payload,priority'."),
    ] = None,
    max_messages: Annotated[
        int | None,
        Option("--batch", metavar="N", min=1, help="At most N messages in a batch."),
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
      fdbq stream drain orders /data/orders
      fdbq stream drain flights /data/flights --schema 'carrier STRING, delay INT'
    """
    db, queue = context.open_queue(name)
    queue.options(db)
    with spark_session.job("drain", "messages") as (spark, run):
        done = spark.drain(
            db,
            queue,
            path,
            format=format,
            payload=payload,
            payload_schema=schema,
            bad_payloads=bad_payloads,
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
            f"drained {spark_session.rate(done.rows, 'message', done.size, done.seconds)} "
            f"to {terminal.visible(path)}"
        )
        if done.left.why:
            print(f"left in the queue: {'; '.join(done.left.why)}")
