"""The drain: what is ready in a queue becomes files, each message once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType

from ...errors import InvalidArgument
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.options import MAX_NAME_LENGTH
from ...values.records import record
from .. import session, stores
from ..source import streams
from ..source.settings import LIMITS
from .steps import Step, Tell, plainly

FORMATS = ("parquet", "json", "orc")
CHECKPOINT = "_checkpoint"
"""Where a drain keeps its place, in the directory of the files; readers pass over it."""

_SEEN = "drained"
_LOOK_SECONDS = 1


@record
class Left:
    """What was in the queue when a drain ended, and why it did not take it; empty where nothing
    was."""

    ready: int = 0
    delayed: int = 0
    leased: int = 0
    why: tuple[str, ...] = ()


@record
class Drained:
    """How many messages were taken and written, in how many batches, and what was left; ``size`` is
    the bytes of their payloads, None where these are no bytes and no text."""

    consumer: str
    rows: int
    size: int | None
    batches: int
    seconds: float
    left: Left = Left()


def drain(
    db: fdb.Database,
    queue: Queue,
    path: str | Path,
    *,
    format: str = "parquet",
    payload: str = "bytes",
    payload_schema: str | None = None,
    bad_payloads: str = "fail",
    header_columns: str | None = None,
    columns: Iterable[str] | None = None,
    consumer: str | None = None,
    checkpoint: str | Path | None = None,
    max_messages: int | None = None,
    spark: session.Given = None,
    progress: Tell | None = None,
) -> Drained:
    """Take what is ready when it begins, and write it to files, each message exactly once.

    It ends when that is done, and what waited for it under ordering keys, too; ``left`` says what
    is in the queue then, and why.

    path: a directory; a drain of the same queue into the same directory adds to it, and goes on
        where one was interrupted. format: "parquet", "json" or "orc".
    payload: "bytes", "string", or "json" with ``payload_schema``, its fields in SQL, like
        ``carrier STRING, delay INT``. bad_payloads: "fail" at one that does not fit, or "null".
    header_columns: headers as columns, like ``region, retries BIGINT``.
    columns: which columns, as those of the table of ready messages; all where None.
    consumer: the name under which the messages are planned; made of the directory where None.
    checkpoint: where the drain keeps its place; in the directory where None.
    max_messages: in a batch, 50,000 if None. spark: a session; None for one on this machine.
    progress: is told about every second.

    A message is done when its batch is in the files, and listed in the log of the files that
    Spark keeps beside them: readers must go by that log, as Spark does by itself. Raises
    ``InvalidInput``, ``QueueNotFound``, ``JobFailed``, ``PlanError``, ``MissingPackage``,
    ``MissingJava``.
    """
    begun = time.monotonic()
    if format not in FORMATS:
        raise InvalidArgument(
            argument="format", value=format, problem=f"name one of {', '.join(FORMATS)}"
        )
    total = queue.depth(db).ready
    name = consumer or _name(queue, str(path))
    options = {
        **stores.options_of(db, queue),
        "mode": "consume",
        "consumer": name,
        "payload": payload,
        "badPayloads": bad_payloads,
        **({} if payload_schema is None else {"payloadSchema": payload_schema}),
        **({} if header_columns is None else {"headerColumns": header_columns}),
        **({} if max_messages is None else {LIMITS[0]: str(max_messages)}),
    }
    # What can be told without Java, before it starts.
    streams.Settings.of(options).layout.ddl()
    with plainly():
        spark = session.given(spark)
        frame = spark.readStream.format("fdbqueue").options(**options).load()
        seen = [F.count(F.lit(1)).alias("rows")]
        if isinstance(frame.schema["payload"].dataType, BinaryType | StringType):
            seen.append(F.sum(F.octet_length("payload")).alias("size"))
        frame = frame.observe(_SEEN, *seen)
        if columns is not None:
            frame = frame.select(*columns)
        writer = (
            frame.writeStream.format(format)
            .option("path", str(path))
            .option("checkpointLocation", str(checkpoint or Path(path, CHECKPOINT)))
            .queryName(f"fdbqueue drain of {queue.name}")
            .trigger(availableNow=True)
        )
        counted: Counted = {}
        more = True
        while more:
            before = _rows(counted)
            _follow(writer.start(), counted, partial(_tell, progress, total))
            # What waits under an ordering key, and did not fit into a batch with the others, is
            # ready behind all that was there: in another round.
            more = before < _rows(counted) < total and bool(queue.peek(db))
    sizes = [size for _, size in counted.values()]
    return Drained(
        consumer=name,
        rows=_rows(counted),
        size=sum(size or 0 for size in sizes) if len(seen) > 1 else None,
        batches=len(counted),
        seconds=time.monotonic() - begun,
        left=_left(db, queue),
    )


def _left(db: fdb.Database, queue: Queue) -> Left:
    depth = queue.depth(db)
    why = []
    if depth.ready and queue.options(db).paused:
        why.append(f"{depth.ready:,} ready: the queue is paused")
    elif depth.ready and not queue.peek(db):
        why.append(f"{depth.ready:,} that wait for others of their ordering keys")
    elif depth.ready:
        why.append(f"{depth.ready:,} ready that came after it began")
    if depth.delayed:
        why.append(f"{depth.delayed:,} delayed that are not due")
    if depth.leased:
        why.append(f"{depth.leased:,} in the hands of other consumers")
    return Left(depth.ready, depth.delayed, depth.leased, tuple(why))


def _name(queue: Queue, path: str) -> str:
    """A consumer that is the same for the same directory, and no other's."""
    name = f"drain into {path if '://' in path else Path(path).resolve()}"
    if len(name) <= MAX_NAME_LENGTH and name.isprintable():
        return name
    return f"drain into {hashlib.sha256(name.encode()).hexdigest()}"


Counted = dict[int, tuple[int, int | None]]


def _rows(counted: Counted) -> int:
    return sum(rows for rows, _ in counted.values())


def _follow(query: StreamingQuery, counted: Counted, tell: partial[None]) -> None:
    """Wait for a query to end; notes the rows and bytes of each of its batches."""
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            _note(query, counted)
            tell(counted)
    except KeyboardInterrupt:
        query.stop()
        raise
    _note(query, counted)
    tell(counted)


def _note(query: StreamingQuery, counted: Counted) -> None:
    for each in query.recentProgress:
        observed = each.observedMetrics.get(_SEEN)
        if observed is not None and observed.rows:
            counted[each.batchId] = (observed.rows, observed.asDict().get("size"))


def _tell(progress: Tell | None, total: int, counted: Counted) -> None:
    if progress is not None:
        progress(Step("draining", _rows(counted), total, "messages"))
