"""Order in a relaxed queue: whoever receives is given one of the first messages of the window.

The argument is that of tools/chaosrun/window.py: a message that was taken stood, at some instant
of the call, behind fewer messages than the window has, so fewer than that stood before it all the
while.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .interval_joins import open_at
from .message_operations import NEVER, TAKEN, is_
from .order import CALL, stood
from .rules import Rules
from .violations import found, ref, text

QUEUE = ("run", "queue")


def findings(
    lives: DataFrame, operations: DataFrame, disturbed: DataFrame, rules: Rules
) -> DataFrame:
    """What was taken from behind the window; ``disturbed`` is what ``order.disturbances`` finds."""
    relaxed = lives.where(F.col("queue").isin(*rules.relaxed))
    standing = stood(relaxed).select(
        *QUEUE,
        F.col("told.ended").alias("begin"),
        F.col("since").alias("end"),
        F.struct("told.id", "tag", F.col("since").alias("until")).alias("what"),
    )
    undisturbed = relaxed.join(disturbed, list(CALL), "left_anti")
    taken = undisturbed.where(is_(TAKEN) & F.col("in_order") & (F.col("ended") < NEVER)).select(
        *QUEUE, F.col("began").alias("at"), "ended", "id", "tag", "name", "limit", "who", "n"
    )
    there = open_at(standing, taken, QUEUE)
    before = there.where((F.col("what.until") > F.col("ended")) & (F.col("what.id") < F.col("id")))
    counted = before.groupBy(*QUEUE, "who", "n", "tag", "name", "limit", "at", "ended").agg(
        F.count("*").alias("before"), F.min("what.tag").alias("one")
    )
    asked = counted.join(F.broadcast(_changes(operations)), list(QUEUE), "left")
    behind = asked.withColumn("room", _room(rules)).where("before >= room")
    others = text(F.col("before"), " others of ", F.col("room") - 1)
    detail = text(F.col("queue"), ": ", F.col("tag"), " was taken before ", others)
    tags = F.array("tag", "one")
    return found(behind, "behind the window", detail, tags=tags, refs=F.array(ref()))


def _changes(operations: DataFrame) -> DataFrame:
    """By queue, the changes of its window in one array."""
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
    """From among how many first messages a call may have taken, at the most."""
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
