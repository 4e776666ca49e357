"""The second half: the same flights, through a streaming query on Spark.

They are loaded into a queue, a stream takes them out into Parquet, and what that says is summed up.
And a page tells how the first half went.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from fdbqueue import Queue, fdb
from fdbqueue import spark as pipeline
from fdbqueue.errors import MissingPackage

from .table import Flight, Totals, totals

SCHEMA = (
    "number STRING, carrier STRING, date STRING, origin STRING, destination STRING, "
    "miles INT, delay INT"
)
BATCH_MESSAGES = 50_000
SUMS = (
    "carrier", "count(*) AS flights", "count_if(delay IS NULL) AS missing",
    "sum(greatest(coalesce(delay, 0), 0)) AS late", "sum(miles) AS miles",
)  # fmt: skip


def missing() -> str | None:
    """What Spark needs that is not there; None if all is."""
    try:
        pipeline.check_java()
        import pyspark  # noqa: F401
    except MissingPackage as error:
        return str(error)
    except ImportError:
        return "it needs pyspark: pip install 'fdbqueue[spark]'"
    return None


def demonstrate(
    db: fdb.Database, stream: Queue, flights: Sequence[Flight], step: Callable[[str], None]
) -> dict[str, bool]:
    """Run it; returns what must hold, and whether it does.

    stream: an empty queue. step: is told what happens now.
    """
    step("Starting Spark on this machine")
    spark = pipeline.local("fdbqueue-demo", short=True)
    with tempfile.TemporaryDirectory(prefix="fdbqueue-demo-") as directory:
        lines, parquet = Path(directory, "flights.jsonl"), str(Path(directory, "parquet"))
        lines.write_text("".join(json.dumps(asdict(flight)) + "\n" for flight in flights))
        step("Loading the same flights from a file into a second queue (fdbq stream load)")
        priority = {"priority": "IF(delay IS NULL, 9, 4)"}
        pipeline.load(db, stream, lines, schema=SCHEMA, columns=priority, spark=spark)
        step(
            f"Draining it to Parquet with a streaming query, {BATCH_MESSAGES:,} messages a batch, "
            "each exactly once (fdbq stream drain)"
        )
        pipeline.drain(
            db,
            stream,
            parquet,
            payload="json",
            payload_schema=SCHEMA,
            columns=["id", "payload.*"],
            max_messages=BATCH_MESSAGES,
            spark=spark,
        )
        table = spark.read.parquet(parquet)
        table.createOrReplaceTempView("drained")
        rows, ids = table.count(), table.select("id").distinct().count()
        summed = spark.sql(f"SELECT {', '.join(SUMS)} FROM drained GROUP BY carrier").collect()
    done = stream.depth(db).done
    return {
        f"the Parquet has {rows:,} rows of {ids:,} messages, and the queue counts {done:,} done": (
            rows == ids == done == len(flights)
        ),
        "the sums of every carrier in the Parquet equal those of the table": (
            {carrier: Totals(*sums) for carrier, *sums in summed} == totals(flights)
        ),
    }


def write_report(db: fdb.Database, queue: Queue, page: Path) -> None:
    """Write the report on the deliveries of a queue."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(pipeline.report(db, [queue]).to_html("The flights of the demo"), "utf-8")
