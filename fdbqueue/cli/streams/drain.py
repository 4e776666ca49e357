"""``fdbq stream drain``: writes ready messages to files."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import asdict

from .. import context
from ..output import Done, Result
from ..parameters import HEADER_COLUMNS, SCHEMA, QueueName, argument, option
from . import spark_session


def drain(
    name: QueueName,
    path: str = argument("PATH", "The directory of the files."),
    format: Literal["parquet", "json", "orc"] = option(
        "FORMAT", "parquet, json or orc.", "parquet"
    ),
    payload: Literal["bytes", "string", "json"] | None = option(
        "KIND",
        "The payload's type: bytes, string or json; by default what the queue's serializer writes.",
    ),
    schema: str | None = SCHEMA,
    bad_payloads: Literal["fail", "null"] = option(
        "WHAT", "For a payload of another type: fail, or null.", "fail"
    ),
    header_columns: str | None = HEADER_COLUMNS,
    columns: str | None = option("NAMES", "Only these columns, such as 'id,payload,priority'."),
    max_messages: int | None = option(
        "N", "At most N messages in a batch.", None, "--batch", min=1
    ),
    consumer: str | None = option("NAME", "The consumer's name; by default derived from the path."),
) -> Done:
    """Write all ready messages to files, each exactly once.

    At the end, fdbq prints how many messages are left in the queue and why: they are delayed,
    arrived during the job, or are leased.

    To continue after an interruption, run it again with the same path. A message is done once it is
    in a file and in Spark's log of the files (_spark_metadata). Spark reads the directory by that
    log; other readers should, too.

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
    rate = spark_session.rate(done.rows, "message", done.size, done.seconds)
    left = [f"left in the queue: {'; '.join(done.left.why)}"] if done.left.why else []
    value = {
        "queue": name,
        "path": path,
        "consumer": done.consumer,
        "messages": done.rows,
        "bytes": done.size,
        "batches": done.batches,
        "seconds": round(done.seconds, 3),
        "left": asdict(done.left),
    }
    return Result(value, [f"drained {rate} to {path}", *left])
