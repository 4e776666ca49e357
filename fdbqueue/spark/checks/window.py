"""Order in relaxed queues: a receive gets one of the first messages, as many as the window.

As in tools/chaosrun/window.py: at some instant of the call, fewer messages than the window were
before the one taken, so fewer than that were before it during the whole call.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .interval_joins import open_at
from .message_operations import NEVER, TAKEN, is_action
from .order import CALL, certainly_present
from .rules import Rules
from .violations import as_findings, ref, text

QUEUE = ("run", "queue")


def findings(
    actions: DataFrame, operations: DataFrame, uncertain: DataFrame, rules: Rules
) -> DataFrame:
    """Messages taken from behind the window. ``uncertain``: see ``order.uncertain_calls``."""
    relaxed = actions.where(F.col("queue").isin(*rules.relaxed))
    present = certainly_present(relaxed).select(
        *QUEUE,
        F.col("enqueue.ended").alias("begin"),
        F.col("since").alias("end"),
        F.struct("enqueue.id", "tag", F.col("since").alias("until")).alias("what"),
    )
    certain = relaxed.join(uncertain, list(CALL), "left_anti")
    taken = certain.where(is_action(TAKEN) & F.col("in_order") & (F.col("ended") < NEVER)).select(
        *QUEUE, F.col("began").alias("at"), "ended", "id", "tag", "name", "limit", "who", "n"
    )
    there = open_at(present, taken, QUEUE)
    before = there.where((F.col("what.until") > F.col("ended")) & (F.col("what.id") < F.col("id")))
    counted = before.groupBy(*QUEUE, "who", "n", "tag", "name", "limit", "at", "ended").agg(
        F.count("*").alias("before"), F.min("what.tag").alias("one")
    )
    asked = counted.join(F.broadcast(_changes(operations)), list(QUEUE), "left")
    behind = asked.withColumn("room", _room(rules)).where("before >= room")
    template = "{queue}: {tag} was taken before {before} others of {allowed}"
    detail = text(template, allowed=F.col("room") - 1)
    tags = F.array("tag", "one")
    return as_findings(behind, "behind the window", detail, tags=tags, refs=F.array(ref()))


def _changes(operations: DataFrame) -> DataFrame:
    """The changes of each queue's window, in an array."""
    changed = operations.where(
        (F.col("name") == "options") & F.col("about.window").isNotNull()
    ).select(
        *QUEUE,
        F.struct(
            "began",
            F.when(F.col("certain"), F.col("ended")).alias("ended"),
            F.col("about.window").alias("size"),
        ).alias("change"),
    )
    return changed.groupBy(*QUEUE).agg(F.collect_list("change").alias("changes"))


def _room(rules: Rules) -> Column:
    """The largest window that a call may have taken from."""
    first = F.lit(None).cast("int")
    for queue, size in rules.relaxed.items():
        first = F.when(F.col("queue") == queue, F.lit(size)).otherwise(first)
    changes = F.coalesce("changes", F.array())

    def over(change: Column) -> Column:
        return F.coalesce(change["ended"] < F.col("at"), F.lit(False))

    last = F.array_max(F.filter(changes, over))

    def maybe(change: Column) -> Column:
        since = last["began"].isNull() | (change["began"] > last["began"])
        return (change["began"] <= F.col("ended")) & since

    sizes = F.transform(F.filter(changes, maybe), lambda change: change["size"])
    room = F.greatest(
        F.coalesce(last["size"], first), F.coalesce("limit", F.lit(1)), F.array_max(sizes)
    )
    return F.when(F.col("name") == "dequeue", F.lit(1)).otherwise(room)
