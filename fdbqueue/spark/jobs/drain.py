"""Drain: write the ready messages of a queue to files, each once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType

from ...errors import InvalidArgument
from ...queue.queue import Queue
from ...store.binding import fdb
from ...values.options import MAX_NAME_LENGTH
from .. import spark_session, stores
from ..source import stream_offsets
from .steps import OnProgress, Step, plain_errors

FORMATS = ("parquet", "json", "orc")
CHECKPOINT = "_checkpoint"
"""The checkpoint, in the directory of the files. Readers ignore it."""

_METRICS = "drained"
_REPORT_SECONDS = 1


Observed = dict[str, int]


class Left(Struct, frozen=True):
    """What a drain left in the queue, and why."""

    ready: int = 0
    waiting: int = 0
    retrying: int = 0
    scheduled: int = 0
    leased: int = 0
    why: tuple[str, ...] = ()


class Drained(Struct, frozen=True):
    """The messages that a drain wrote.

    size: the bytes of their payloads; None unless these are bytes or text.
    """

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
    payload: str | None = None,
    payload_schema: str | None = None,
    bad_payloads: str = "fail",
    header_columns: str | None = None,
    columns: Iterable[str] | None = None,
    consumer: str | None = None,
    checkpoint: str | Path | None = None,
    max_messages: int | None = None,
    spark: spark_session.SessionLike = None,
    progress: OnProgress | None = None,
) -> Drained:
    """Write the messages that are ready now to files, each exactly once.

    Includes the messages that wait for these under ordering keys. ``left`` says what remains.

    path: a directory. Another drain of the queue into it adds files, or resumes an interrupted
        drain. format: "parquet", "json" or "orc".
    payload: "bytes", "string", or "json" with ``payload_schema``, its fields in SQL, like
        ``carrier STRING, delay INT``; None for what the queue's serializer writes.
        bad_payloads: "fail" or "null" if a payload does not fit.
    header_columns: headers as columns, like ``region, retries BIGINT``.
    columns: of the table of ready messages; None for all.
    consumer: the name that owns the messages; None to derive it from the directory.
    checkpoint: the directory for Spark's checkpoint; None for one inside ``path``.
    max_messages: in a batch; None for 50,000. spark: a session; None for one on this machine.
    progress: called about every second.

    A message is done once its batch is complete in Spark's log of the files. Spark reads by that
    log; other readers must do the same. Raises ``InvalidInput``, ``QueueNotFound``, ``JobFailed``,
    ``QueueError``, ``MissingPackage``.
    """
    begun = time.monotonic()
    if format not in FORMATS:
        raise InvalidArgument(
            argument="format", value=format, problem=f"name one of {', '.join(FORMATS)}"
        )
    depth = queue.depth(db)
    total = depth.ready + depth.waiting
    name = consumer or _name(queue, str(path))
    given = {
        **stores.options(db, queue),
        "mode": "consume",
        "consumer": name,
        "payload": payload,
        "badPayloads": bad_payloads,
        "payloadSchema": payload_schema,
        "headerColumns": header_columns,
        "maxMessagesPerBatch": max_messages,
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    # Check the options before Java starts.
    stream_offsets.StreamSettings.of(options).layout.schema(None)
    with plain_errors():
        spark = spark_session.resolve(spark)
        frame = spark.readStream.format("fdbqueue").options(**options).load()
        metrics = [F.count(F.lit(1)).alias("rows")]
        if isinstance(frame.schema["payload"].dataType, BinaryType | StringType):
            metrics.append(F.sum(F.octet_length("payload")).alias("size"))
        frame = frame.observe(_METRICS, *metrics)
        if columns is not None:
            frame = frame.select(*columns)
        writer = (
            frame.writeStream.format(format)
            .option("path", str(path))
            .option("checkpointLocation", str(checkpoint or Path(path, CHECKPOINT)))
            .queryName(f"fdbqueue drain of {queue.name}")
            .trigger(availableNow=True)
        )
        batches: dict[int, Observed] = {}

        def rows() -> int:
            return sum(each["rows"] for each in batches.values())

        def report() -> None:
            if progress is not None:
                progress(Step("draining", rows(), total, "messages"))

        more = True
        while more:
            before = rows()
            _follow(writer.start(), batches, report)
            # Messages of an ordering key that did not fit into a batch become ready behind all
            # others: take them in another round.
            more = before < rows() < total and bool(queue.peek(db))
    return Drained(
        consumer=name,
        rows=rows(),
        size=sum(each["size"] or 0 for each in batches.values()) if len(metrics) > 1 else None,
        batches=len(batches),
        seconds=time.monotonic() - begun,
        left=_left(db, queue),
    )


def _left(db: fdb.Database, queue: Queue) -> Left:
    depth, paused = queue.depth(db), queue.options(db).paused
    words = {
        "ready": "ready: the queue is paused" if paused else "ready that arrived after it began",
        "waiting": "waiting for others of their keys or limits",
        "retrying": "retrying",
        "scheduled": "scheduled",
        "leased": "leased by other consumers",
    }
    left = {state: getattr(depth, state) for state in words}
    return Left(**left, why=tuple(f"{n:,} {words[state]}" for state, n in left.items() if n))


def _name(queue: Queue, path: str) -> str:
    """A consumer name of the directory, the same each time."""
    name = f"drain into {path if '://' in path else Path(path).resolve()}"
    if len(name) <= MAX_NAME_LENGTH and name.isprintable():
        return name
    # A long path, or one with what no name may have, still needs the same name each time.
    return f"drain into {hashlib.sha256(name.encode()).hexdigest()}"


def _follow(
    query: StreamingQuery, batches: dict[int, Observed], report: Callable[[], object]
) -> None:
    over = False
    try:
        while not over:
            over = bool(query.awaitTermination(_REPORT_SECONDS))
            # Spark keeps the last hundred, more than a second has. By number, so that each counts
            # once.
            for each in query.recentProgress:
                observed = _named(each.observedMetrics.get(_METRICS))
                if observed.get("rows"):
                    batches[each.batchId] = observed
            report()
    except KeyboardInterrupt:
        # Else it would go on in Java, and take messages that nobody waits for.
        query.stop()
        raise


def _named(observed: Row | None) -> Observed:
    """Metrics by their names; Spark Connect has the values beside their schema."""
    found = {} if observed is None else observed.asDict()
    if "schema" in found:
        names = [each["name"] for each in found["schema"]["fields"]]
        return dict(zip(names, found["values"], strict=True))
    return found
