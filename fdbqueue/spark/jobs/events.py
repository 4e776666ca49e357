"""Delivery history as a table, for the report and the check.

It has a row for each transition of each message, as ``option("table", "history")`` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ...queue.queue import Queue
from ...schema.keys import LogKeys
from ...store.binding import fdb
from ...values.states import TRANSITIONS, State, Transition
from .. import stores
from ..source.columns import STRING, TABLES

TAKES = ("lease", "dequeue")
"""Transitions that deliver a message to a consumer."""
COLUMNS = StructType(
    [StructField(*each) for each in ({"queue": STRING} | TABLES["history"]).items()]
)


def read_events(
    spark: SparkSession,
    db: fdb.Database,
    queues: Iterable[Queue],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """The delivery history of queues. Spark reads it when it is used.

    Of a queue that removes old lines, without those that are due in a tenth of the time that they
    are kept, or in ten minutes: else a long job would miss them, and fail.
    """
    history = spark.createDataFrame([], COLUMNS)
    within = {"since": since, "until": until}
    for queue in queues:
        spare = int(min(600, (queue.options(db).history_seconds or 0) / 10))
        reader = spark.read.format("fdbqueue").option("table", "history")
        reader = reader.option("skipExpiring", spare)
        for name, moment in within.items():
            if moment is not None:
                reader = reader.option(name, moment.astimezone(UTC).isoformat())
        rows = reader.options(**stores.options(db, queue)).load()
        history = history.unionByName(rows.withColumn("queue", F.lit(queue.name)))
    return history


def version(stamp: Column) -> Column:
    """The commit version of a stamp."""
    first, past = LogKeys.VERSION.start, LogKeys.VERSION.stop
    digits = F.hex(F.substring(stamp, first + 1, past - first))
    return F.conv(digits, 16, 10).cast("bigint")


def named(transitions: Iterable[Transition]) -> list[str]:
    """The names of transitions."""
    return [edge.name for edge in transitions]


BORN = named(edge for edge in TRANSITIONS if edge.source is None)

STAYING = named(edge for edge in TRANSITIONS if edge.source is edge.target)


def into(*states: State) -> list[str]:
    """The transitions into any of the states."""
    return named(edge for edge in TRANSITIONS if edge.target in states)


def out_of(*states: State) -> list[str]:
    """The transitions out of any of the states."""
    return named(edge for edge in TRANSITIONS if edge.source in states)


def state_of(transition: Column, *, source: bool = False) -> Column:
    """The state that a transition leads to, or comes from; null if there is none."""
    pairs = [(edge.name, edge.source if source else edge.target) for edge in TRANSITIONS]
    texts = [text for name, state in pairs if state for text in (name, state.value)]
    return F.element_at(F.create_map(*map(F.lit, texts)), transition)


def with_neighbors(events: DataFrame, message: Sequence[str], order: str = "stamp") -> DataFrame:
    """Events with the previous and the next event of their message, without those that leave it in
    its state. One shuffle, by message.

    message: the columns that identify it. order: the column that orders its events. Adds before,
    before_attempt, before_at and after_at: transition, attempt and at of these events, or null.
    """
    window = Window.partitionBy(*message).orderBy(order)
    return events.where(~F.col("transition").isin(STAYING)).select(
        "*",
        F.lag("transition").over(window).alias("before"),
        F.lag("attempt").over(window).alias("before_attempt"),
        F.lag("at").over(window).alias("before_at"),
        F.lead("at").over(window).alias("after_at"),
    )
