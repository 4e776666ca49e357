"""How fast tables are written to queues, and queues are read as streams, on Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from .. import spark as pipeline
from ..api import Queue
from .bars import Bar
from .ground import Ground, Rate

WRITE_RATE = 30_000
CONSUME_RATE = 15_000
EMPTY_MS = 50.0
EMPTY_BATCHES = 10
BATCH_ROWS = 50_000
_QUERY_SECONDS = 600


def write(ground: Ground) -> Iterator[Rate]:
    """A batch write of as many rows."""
    columns = ground.constants().select("payload", "priority", "headers")

    def drop() -> None:
        columns.write.format("constants").mode("append").save()

    yield ground.measured("batch write, dropped", drop)
    queue = ground.queue("written")

    def save() -> None:
        options = pipeline.options(ground.db, queue)
        columns.write.format("fdbqueue").mode("append").options(**options).save()

    yield ground.measured("batch write of messages", save, WRITE_RATE)


def consume(ground: Ground) -> Iterator[Rate]:
    """Streams that begin with a backlog, and end with it."""
    rows = ground.rows
    limited = {"maxmessagesperbatch": str(BATCH_ROWS)}
    constants = {"rows": str(rows), "size": str(ground.size), **limited}
    yield ground.measured("stream of constants", lambda: _drain(ground, "constants", constants))
    queue = ground.filled("watched")
    browsed = {**pipeline.options(ground.db, queue), "mode": "browse", **limited}
    yield ground.measured("stream, browsing", lambda: _drain(ground, "fdbqueue", browsed))
    # A stream takes its messages, so every run has a queue of its own.
    queues = iter([ground.filled(f"consumed-{n}") for n in range(ground.runs + 1)])

    def take() -> None:
        _drain(ground, "fdbqueue", _consuming(ground, next(queues)))

    yield ground.measured("stream, consuming", take, CONSUME_RATE)


def empty(ground: Ground) -> Iterator[Rate]:
    """What a stream costs that has nothing to do."""
    rows = {"rows": "0", "size": "0"}
    bare = _idle(ground, "constants", rows)
    yield Rate("empty micro-batch of constants, ms", bare)
    own = _idle(ground, "fdbqueue", _consuming(ground, ground.queue("empty")))
    name = "empty micro-batch, consuming, ms"
    yield Rate(name, own, bar=Bar(name, own, EMPTY_MS, True))


def _consuming(ground: Ground, queue: Queue) -> dict[str, str]:
    options = pipeline.options(ground.db, queue)
    limit = {"maxmessagesperbatch": str(BATCH_ROWS)}
    return {**options, "mode": "consume", "consumer": "bench", **limit}


def _drain(ground: Ground, source: str, options: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="fdbqueue-bench-") as checkpoint:
        query = _start(ground, source, options, checkpoint, {"availableNow": True})
        if not query.awaitTermination(_QUERY_SECONDS):
            query.stop()
            raise TimeoutError(f"a stream of {source} took more than {_QUERY_SECONDS} s")


def _idle(ground: Ground, source: str, options: dict[str, str]) -> float:
    """The median milliseconds that a source took where there was nothing."""
    # Spark tells of triggers without data only so often.
    ground.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1")
    with tempfile.TemporaryDirectory(prefix="fdbqueue-bench-") as checkpoint:
        query = _start(ground, source, options, checkpoint, {"processingTime": "100 milliseconds"})
        try:
            deadline = time.monotonic() + _QUERY_SECONDS
            while len(found := _idle_times(query)) < EMPTY_BATCHES:
                if time.monotonic() > deadline or query.exception():
                    raise TimeoutError(f"a stream of {source} makes no progress")
                time.sleep(0.1)
        finally:
            query.stop()
    return median(found[-EMPTY_BATCHES // 2 :])


def _idle_times(query: Any) -> list[float]:
    return [
        float(progress["durationMs"]["latestOffset"])
        for progress in query.recentProgress
        if progress["numInputRows"] == 0 and "latestOffset" in progress["durationMs"]
    ]


def _start(
    ground: Ground, source: str, options: dict[str, str], checkpoint: str, trigger: dict[str, Any]
) -> Any:
    return (
        ground.spark.readStream.format(source)
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .start()
    )
