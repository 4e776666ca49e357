"""Delivery history as a table, for the report and the check.

It has a row for each transition of each message, as ``option("table", "history")`` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ...queue.queue import Queue
from ...schema.keys import QueueKeys
from ...store.binding import fdb
from ...values.states import TRANSITIONS, State, Transition
from .. import stores

TAKES = ("lease", "dequeue")
"""Transitions that deliver a message to a consumer."""


COLUMNS = (
    "queue string, stamp binary, transition string, id string, level int, attempt int, "
    "consumer string, at timestamp, place string"
)


def read(
    spark: SparkSession,
    db: fdb.Database,
    queues: Iterable[Queue],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """The delivery history of queues. Spark reads it when it is used."""
    history = spark.createDataFrame([], COLUMNS)
    within = {"since": since, "until": until}
    for queue in queues:
        reader = spark.read.format("fdbqueue").option("table", "history")
        for name, moment in within.items():
            if moment is not None:
                reader = reader.option(name, moment.astimezone(UTC).isoformat())
        rows = reader.options(**stores.options_of(db, queue)).load()
        history = history.unionByName(rows.withColumn("queue", F.lit(queue.name)))
    return history


def version(stamp: Column) -> Column:
    """The commit version of a stamp."""
    first, past = QueueKeys.EVENT_VERSION.start, QueueKeys.EVENT_VERSION.stop
    digits = F.hex(F.substring(stamp, first + 1, past - first))
    return F.conv(digits, 16, 10).cast("bigint")


def named(transitions: Iterable[Transition]) -> list[str]:
    """The names of transitions."""
    return [edge.name for edge in transitions]


BORN = named(edge for edge in TRANSITIONS if edge.source is None)


def into(*states: State) -> list[str]:
    """The transitions into any of the states."""
    return named(edge for edge in TRANSITIONS if edge.target in states)


def out_of(*states: State) -> list[str]:
    """The transitions out of any of the states."""
    return named(edge for edge in TRANSITIONS if edge.source in states)


def state_of(transition: Column, *, source: bool = False) -> Column:
    """The state that a transition leads to, or comes from; null if there is none."""
    found = F.lit(None).cast("string")
    for state in State:
        names = out_of(state) if source else into(state)
        if names:
            found = F.when(transition.isin(names), F.lit(state.value)).otherwise(found)
    return found


def with_previous(history: DataFrame) -> DataFrame:
    """Events with what their message went through before. One shuffle, by message.

    Adds at_ms; before, before_ms: the previous event of the message; last: whether there is none
    after it; born_ms: when the message was enqueued; takes: its deliveries so far. What the
    history does not tell is null.
    """
    message = Window.partitionBy("queue", "id").orderBy("stamp")
    so_far = message.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    lived = history.select(
        "queue",
        "stamp",
        "transition",
        "id",
        "level",
        "attempt",
        "consumer",
        F.unix_millis("at").alias("at_ms"),
    )
    taken = F.col("transition").isin(*TAKES).cast("int")
    born = F.when(F.col("transition").isin(BORN), F.col("at_ms"))
    return lived.select(
        "*",
        F.lag("transition").over(message).alias("before"),
        F.lag("at_ms").over(message).alias("before_ms"),
        F.lead("transition").over(message).isNull().alias("last"),
        F.min(born).over(so_far).alias("born_ms"),
        F.sum(taken).over(so_far).alias("takes"),
    )
