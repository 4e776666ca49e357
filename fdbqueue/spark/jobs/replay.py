"""Replay: deliver dead letters that match a condition again, each once."""

from __future__ import annotations

import time
from itertools import islice

from msgspec import Struct

from ...queue.queue import Queue
from ...store.binding import fdb
from .. import spark_session, stores
from ..source import batch_read
from .steps import OnProgress, Step, plain_errors

_BATCH = 100


class Replayed(Struct, frozen=True):
    """The dead letters that matched, and how many of them are ready again."""

    matched: int
    replayed: int
    seconds: float


def replay(
    db: fdb.Database,
    queue: Queue,
    where: str | None = None,
    *,
    payload_schema: str | None = None,
    header_columns: str | None = None,
    dry_run: bool = False,
    spark: spark_session.SessionLike = None,
    progress: OnProgress | None = None,
) -> Replayed:
    """Deliver dead letters that match a condition again.

    where: an SQL condition on the columns of the table of dead letters, such as ``reason``,
        ``died_at``, ``attempts`` and ``payload``; None for all.
    payload_schema: the fields of JSON payloads in SQL, so that the condition can use
        ``payload.delay``; payloads that do not fit are null. None reads payloads as text.
    header_columns: headers as columns, like ``region, retries BIGINT``.
    dry_run: only count. spark: a session; None for one on this machine.

    Spark finds the ids, and this process redrives them with ``Queue.retry``, a hundred
    in a transaction. Messages that die meanwhile may be included. Raises ``InvalidInput``,
    ``QueueNotFound``, ``JobFailed``, ``MissingPackage``.
    """
    begun = time.monotonic()
    # A queue that is missing is told of here, in our words.
    queue.options(db)
    options = {"table": "dead", "badPayloads": "null"}
    if payload_schema is None:
        options["payload"] = "string"
    else:
        options["payloadSchema"] = payload_schema
    if header_columns is not None:
        options["headerColumns"] = header_columns
    options |= stores.options(db, queue)
    # Check the options before Java starts.
    batch_read.BatchReadSettings.of(options).layout.schema(None)
    matched = replayed = 0
    with plain_errors():
        spark = spark_session.resolve(spark)
        frame = spark.read.format("fdbqueue").options(**options).load()
        ids = (frame if where is None else frame.where(where)).select("id")
        # Not collected: there may be millions of dead letters.
        rows = ids.toLocalIterator(prefetchPartitions=True)
        while page := [row.id for row in islice(rows, _BATCH)]:
            matched += len(page)
            if not dry_run:
                replayed += queue.retry(db, page).taken
            if progress is not None:
                progress(Step("replaying", matched, 0, "dead letters"))
    return Replayed(matched, replayed, time.monotonic() - begun)
