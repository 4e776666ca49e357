"""The second half: the same flights, through a streaming query on Spark.

They are loaded into a queue, a stream takes them out into Parquet, and what that says is
aggregated; the alerts among it go into a second queue. And a page tells how the first half went.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fdbqueue import Queue, fdb
from fdbqueue import spark as pipeline
from fdbqueue.errors import MissingJava

from . import alerts, report
from .alerts import Day
from .proof import Claim
from .table import Flight, Totals, totals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SCHEMA = (
    "number STRING, carrier STRING, date STRING, origin STRING, destination STRING, "
    "miles INT, delay INT"
)
BATCH_MESSAGES = 50_000
SHOWN = 3


def missing() -> str | None:
    """What Spark needs that is not there; None if all is."""
    try:
        pipeline.check_java()
        import pyspark  # noqa: F401
    except MissingJava as error:
        return str(error)
    except ImportError:
        return "it needs pyspark: pip install 'fdbqueue[spark]'"
    return None


def demonstrate(
    db: fdb.Database, space: fdb.Subspace, first: Queue, flights: Sequence[Flight], page: Path
) -> bool:
    """Run it; returns whether everything holds.

    first: the queue of the first half, whose history the page is about. page: where to write it.
    """
    report.step("Starting Spark on this machine")
    spark = pipeline.local("fdbqueue-demo", short=True)
    began = time.monotonic()
    stream = Queue.create(db, "flights again", root=space)
    urgent = Queue.create(db, "alerts", root=space, history_seconds=86_400)
    with tempfile.TemporaryDirectory(prefix="fdbqueue-demo-") as directory:
        lines, parquet = Path(directory, "flights.jsonl"), str(Path(directory, "parquet"))
        with lines.open("w") as file:
            for flight in flights:
                file.write(json.dumps(asdict(flight)) + "\n")
        report.step("Loading the same flights from a file into a second queue (fdbq pipeline load)")
        loaded = pipeline.load(
            db,
            stream,
            lines,
            schema=SCHEMA,
            columns={"priority": "IF(delay IS NULL, 9, 4)"},
            spark=spark,
        )
        _told(loaded.rows, loaded.seconds)
        report.step(
            f"Draining it to Parquet with a streaming query, {BATCH_MESSAGES:,} messages a batch, "
            "each exactly once (fdbq pipeline drain)"
        )
        drained = pipeline.drain(
            db,
            stream,
            parquet,
            payload="json",
            payload_schema=SCHEMA,
            columns=["id", "payload.*"],
            max_messages=BATCH_MESSAGES,
            spark=spark,
        )
        _told(drained.rows, drained.seconds)
        report.step("Aggregating the Parquet on Spark, and writing alerts into a third queue")
        table = spark.read.parquet(parquet)
        alerts.found(table).write.format("fdbqueue").options(**pipeline.options(db, urgent)).mode(
            "append"
        ).save()
        claims = _prove(db, stream, urgent, flights, table)
    report.console.print()
    report.proof(claims)
    _show(db, urgent)
    report.step("Reporting on the deliveries of the first half (fdbq pipeline report)")
    page.parent.mkdir(parents=True, exist_ok=True)
    found = pipeline.report(db, [first, urgent], spark=spark)
    page.write_text(found.to_html("The flights of the demo"), "utf-8")
    report.step(f"The report, with plots: {page.resolve()}")
    report.step(f"The second half took {time.monotonic() - began:.0f} s")
    spark.stop()
    return all(claim.holds for claim in claims)


def _told(rows: int, seconds: float) -> None:
    report.console.print(f"    {rows:,} in {seconds:.1f} s ({rows / seconds:,.0f}/s)")


def _prove(
    db: fdb.Database, stream: Queue, urgent: Queue, flights: Sequence[Flight], table: DataFrame
) -> list[Claim]:
    """What must hold if the stream took every flight once, and every alert was enqueued once."""
    sums = {
        row.carrier: Totals(row.flights, row.missing, row.late, row.miles)
        for row in table.groupBy("carrier").agg(*_sums()).collect()
    }
    rows = sum(each.flights for each in sums.values())
    ids = table.select("id").distinct().count()
    done = stream.depth(db).done
    wanted = alerts.expected(flights)
    enqueued = [Day(**json.loads(message.payload)) for message in urgent.browse(db)]
    return [
        Claim(
            f"the Parquet has {rows:,} rows of {ids:,} messages, and the queue counts {done:,} "
            "done",
            rows == ids == done == len(flights),
        ),
        Claim(
            "the sums of every carrier in the Parquet equal those of the table",
            sums == totals(flights),
        ),
        Claim(
            f"{len(enqueued):,} alerts were enqueued, each once, and match those of the table",
            len(enqueued) == len(wanted) and set(enqueued) == wanted,
        ),
    ]


def _sums() -> list[Column]:
    from pyspark.sql import functions as F

    late = F.greatest(F.coalesce("delay", F.lit(0)), F.lit(0))
    return [
        F.count("*").alias("flights"),
        F.count_if(F.col("delay").isNull()).alias("missing"),
        F.sum(late).alias("late"),
        F.sum("miles").alias("miles"),
    ]


def _show(db: fdb.Database, urgent: Queue) -> None:
    """The most urgent alerts, as a consumer receives them."""
    report.console.print("\n[bold]Alerts[/bold], the most urgent first")
    for message in urgent.peek(db, SHOWN):
        day = Day(**json.loads(message.payload))
        report.console.print(
            f"  {day.date} {day.origin}: {day.late:,} of {day.flights:,} flights were "
            f"{alerts.LATE_MINUTES} min late or cancelled (priority {message.priority})"
        )
    report.console.print()
