"""Helpers for streaming queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...queue.queue import Queue
from ...queue.streams.planner import Mark
from ...store.binding import fdb
from .. import stores
from ..source import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def foreach_batch(
    db: fdb.Database, queue: Queue, id: str | None = None, **options: str
) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch``, or to be called in one, that enqueues each row once.

    id: tells several writes of one query to the queue apart. With Spark Connect it names the write
        instead of the query. options: of the data source.

    A write is named by the query and the number of the batch, as Delta's ``txnAppId`` and
    ``txnVersion`` name one. So a batch that Spark repeats after a crash is written once, if its
    rows are the same; and so a function with the same ``id`` must be called once for each batch.
    Raises ``InvalidOptions``, ``QueueNotFound``.
    """
    given = {**stores.options(db, queue), **options, **({} if id is None else {"id": id})}
    write.WriteSettings.of(given)
    queue.options(db)

    def enqueue(rows: DataFrame, batch: int) -> None:
        writer = rows.write.format("fdbqueue").mode("append")
        writer.options(**given, batch=str(batch)).save()

    return enqueue


def retire(db: fdb.Database, queue: Queue, query: StreamingQuery, consumer: str) -> int:
    """Stop a query that takes messages, for good; returns how many it gives back.

    The batches that Spark has completed are acknowledged. The messages of one that it has not
    completed return to their places, without counting the attempt. They are delivered at least
    once, since the sink may have committed them before Spark could note it. Do not start the query
    again with its checkpoint. Raises ``BatchLost``; and ``NotFound`` for a consumer that has taken
    nothing: then the query goes on.
    """
    queue.streams.plans.show(db, consumer)
    query.stop()
    progress = query.lastProgress
    for source in progress.sources if progress is not None else ():
        end = json.loads(source.endOffset or "{}")
        if (end.get("queue"), end.get("consumer")) == (queue.name, consumer):
            planner = queue.streams.plans.planner(consumer)
            # Spark tells a source that a batch is complete as it plans the next one, which never
            # comes now.
            planner.acknowledge(db, Mark(end["line"], end["batch"]))
    return queue.streams.plans.release(db, consumer)
