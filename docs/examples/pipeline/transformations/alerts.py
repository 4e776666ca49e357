"""A declarative pipeline that takes messages from one queue and writes another, each once.

Run it with ``spark-pipelines run`` in the folder above, in an environment with fdbqueue and the
variable FDBQUEUE_STORE, once or again and again: each run takes what is ready.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink("late_flights", "fdbqueue", {"queue": "alerts"})


@dp.append_flow(target="late_flights")
def late_flights() -> DataFrame:
    """The flights that are late by more than an hour."""
    flights = (
        spark.readStream.format("fdbqueue")
        .option("mode", "consume")
        .option("consumer", "alerting")
        .option("payloadSchema", "carrier STRING, delay INT")
        .load("flights")
    )
    return flights.where("payload.delay > 60").selectExpr(
        "payload.carrier || ' is late' AS payload"
    )
