"""Checks of order in real time.

As in tools/chaosrun/ordering.py: a message whose enqueue returned before a call began, and that
was first asked for after the call ended, was in the queue during the call. This holds for messages
taken at their first attempt, and while no other call can have held them without telling.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .interval_joins import present_throughout
from .message_operations import NEVER, TAKEN, TAKES, is_action, taken_rows
from .operations import succeeded
from .rules import Rules
from .violations import Condition, as_findings, check_rows, ref, text, union

GROUP = ("run", "queue", "selected")
"""A queue, and the selection in the queue with selectors."""
CALL = ("run", "who", "n")
FIFO, PRIORITY, EMPTY = "fifo", "priority", "false empty"


def findings(
    actions: DataFrame, operations: DataFrame, uncertain: DataFrame, rules: Rules
) -> DataFrame:
    """All findings about the order of messages. ``uncertain``: see ``uncertain_calls``."""
    taken = _taken(actions, rules).join(uncertain, list(CALL), "left_anti")
    return union(
        [
            _overtaken(actions, taken, operations, uncertain, rules),
            _enqueues_out_of_order(taken, rules),
            _deliveries_out_of_order(operations, actions, rules),
        ]
    )


def _selected(region: Column, rules: Rules) -> Column:
    region = F.coalesce(region, F.lit(""))
    return F.when(F.col("queue") == rules.filtered, region).otherwise(F.lit(""))


def _taken(actions: DataFrame, rules: Rules) -> DataFrame:
    """Deliveries from ordered queues by calls that asked for the first message."""
    of_order = F.col("queue").isin(*rules.strict) & F.col("in_order")
    any_of_all = F.coalesce("drains", F.lit(False)) & (F.col("queue") == rules.filtered)
    return actions.where(is_action(TAKEN) & of_order & ~any_of_all)


def uncertain_calls(operations: DataFrame, rules: Rules) -> DataFrame:
    """Calls (``CALL``) during which another call may have held messages without telling.

    A call that fails after it got messages, or whose process is killed, returns them as if it
    never had them. While it lasts, and for a lease after a kill, any message of its queue may be
    out of the queue, and taking the next one is correct.
    """
    killed = operations.where(F.col("name") == "killed").select(
        "run",
        F.col("about.process").alias("process"),
        (F.col("began") + rules.lease_ns).alias("at"),
    )
    silent = operations.where((F.col("name") == "receive") & ~succeeded())
    process = F.regexp_replace("who", "[.][^.]*$", "")
    held = silent.withColumn("process", process).join(killed, ["run", "process"], "left")
    spans = held.select(
        "run",
        "queue",
        F.col("began").alias("since"),
        F.coalesce("ended", "at", F.lit(NEVER)).alias("until"),
        F.struct("who").alias("what"),
    )
    calls = operations.where(F.col("name").isin(*TAKES))
    return _touched(calls.select("run", "queue", "who", "n", "began", "ended"), spans)


def _touched(calls: DataFrame, spans: DataFrame) -> DataFrame:
    """The calls that overlap with a span, ends included."""
    end = F.coalesce("ended", F.lit(NEVER - 1)) + 1
    asked = calls.withColumn("begin", end).withColumn("end", F.col("began") - 1)
    return present_throughout(spans, asked, ("run", "queue")).select(*CALL)


def certainly_present(actions: DataFrame) -> DataFrame:
    """Messages that were certainly in their queue from the end of their enqueue to ``since``."""
    enqueue = F.col("enqueue")
    return actions.where(
        (F.col("rank") == 1)
        & enqueue["certain"]
        & F.col("in_order")
        & enqueue["ended"].isNotNull()
        & F.col("since").isNotNull()
    )


def _overtaken(
    actions: DataFrame,
    taken: DataFrame,
    operations: DataFrame,
    uncertain: DataFrame,
    rules: Rules,
) -> DataFrame:
    """Calls that got a message, or nothing, while a better message was in the queue."""
    enqueue = F.col("enqueue")
    present = certainly_present(actions).select(
        "run",
        "queue",
        _selected(enqueue["region"], rules).alias("selected"),
        enqueue["level"].alias("level"),
        enqueue["ended"].alias("since"),
        F.col("since").alias("until"),
        F.struct("tag").alias("what"),
    )
    asked = union([*_questions(taken, rules), _empties(operations, uncertain, rules)])
    # Ask every relevant level that had messages.
    levels = present.select(*GROUP, "level").distinct()
    about = F.when(F.col("kind") == FIFO, F.col("level") == F.col("own")).otherwise(
        F.col("level") < F.col("own")
    )
    asked = asked.join(F.broadcast(levels), list(GROUP)).where(about)
    answered = present_throughout(present, asked, (*GROUP, "level"))
    other = F.col("what.tag")
    empty = F.col("kind") == EMPTY
    detail = F.when(empty, text("{queue}: {what.tag} was there")).otherwise(
        text("{queue}: {tag} was taken before {what.tag}")
    )
    tags = F.when(empty, F.array(other)).otherwise(F.array(other, "tag"))
    return as_findings(answered, F.col("kind"), detail, tags=tags, refs=F.array(ref()))


def _questions(taken: DataFrame, rules: Rules) -> list[DataFrame]:
    enqueue = F.col("enqueue")
    begins = {FIFO: enqueue["began"], PRIORITY: F.col("began")}
    return [
        taken.select(
            "run",
            "queue",
            _selected(enqueue["region"], rules).alias("selected"),
            enqueue["level"].alias("own"),
            begin.alias("begin"),
            F.col("ended").alias("end"),
            F.lit(kind).alias("kind"),
            *("who", "n", "tag"),
        )
        for kind, begin in begins.items()
    ]


def _empties(operations: DataFrame, uncertain: DataFrame, rules: Rules) -> DataFrame:
    """Calls that found their queue empty, unless it was paused."""
    taken = operations.where(F.col("name").isin(*TAKES) & F.col("certain"))
    nothing = F.coalesce(F.size(taken_rows(taken)) < 1, F.lit(True)) & F.col("ended").isNotNull()
    empties = taken.where(nothing).select(
        "run", "queue", "who", "n", "began", "ended", F.col("about.region").alias("region")
    )
    pauses = operations.where(F.col("name") == "paused").select(
        "run",
        "queue",
        F.col("began").alias("since"),
        F.coalesce("ended", F.lit(NEVER)).alias("until"),
        F.struct("who").alias("what"),
    )
    excused = _touched(empties, pauses).union(uncertain)
    return empties.join(excused, list(CALL), "left_anti").select(
        "run",
        "queue",
        _selected(F.col("region"), rules).alias("selected"),
        F.lit((1 << 31) - 1).alias("own"),
        F.col("began").alias("begin"),
        F.col("ended").alias("end"),
        F.lit(EMPTY).alias("kind"),
        "who",
        "n",
        F.lit(None).cast("string").alias("tag"),
    )


def _enqueues_out_of_order(taken: DataFrame, rules: Rules) -> DataFrame:
    """The messages of one enqueue are taken in order."""
    members = taken.where(
        F.col("since").isNotNull() & (F.col("queue") != rules.filtered) & (F.col("ended") < NEVER)
    )
    enqueue = F.col("enqueue")
    batch = Window.partitionBy("run", enqueue["who"], enqueue["n"], enqueue["level"])
    ordered = batch.orderBy(enqueue["place"], "began", "who", "n")
    previous = F.lag(F.struct("tag", "since", enqueue["place"].alias("place"))).over(ordered)
    pairs = members.select("*", previous.alias("before"))
    late = (F.col("before.place") != enqueue["place"]) & (F.col("before.since") > F.col("ended"))
    test = Condition(FIFO, late, "{tag} before {before.tag}")
    return check_rows(pairs, [test], tags=F.array("before.tag", "tag"), refs=F.array(ref()))


def _deliveries_out_of_order(operations: DataFrame, actions: DataFrame, rules: Rules) -> DataFrame:
    """The messages of one delivery are in order."""
    received = operations.where(
        (F.col("name") == "receive")
        & F.col("queue").isin(*rules.strict)
        & F.col("ended").isNotNull()
    )
    rows = received.select(
        "run",
        "queue",
        "who",
        "n",
        F.posexplode(F.from_json("result", "array<array<string>>")).alias("at", "row"),
    )
    each = rows.select(
        "run", "queue", "who", "n", "at", F.col("row")[0].alias("tag"), F.col("row")[1].alias("id")
    )
    plain = actions.where((F.col("rank") == 1) & F.col("in_order")).select("run", "queue", "tag")
    known = each.join(plain, ["run", "queue", "tag"])
    delivery = Window.partitionBy("run", "who", "n").orderBy("at")
    stepped = known.select("*", (F.lag("id").over(delivery) > F.col("id")).alias("back"))
    batches = stepped.groupBy("run", "queue", "who", "n").agg(
        F.max("back").alias("back"), F.collect_list("tag").alias("all_tags")
    )
    detail = text("{queue}: {tags}", tags=F.array_join("all_tags", ", "))
    test = Condition("batch out of order", F.col("back"), detail)
    return check_rows(batches, [test], tags=F.col("all_tags"), refs=F.array(ref()))
