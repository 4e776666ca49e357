"""Order in real time: what must have been delivered before, or must have been there.

The argument is that of tools/chaosrun/ordering.py: a message whose enqueue had returned before,
and that nobody had asked for until after, stood in the queue all the while. It is used only where
a message reached its first consumer at its first attempt: else somebody else had it for a while;
and where nobody was under way meanwhile who may have had it and did not tell.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .interval_joins import throughout
from .message_operations import NEVER, TAKEN, TAKES, is_, taken_rows
from .operations import succeeded
from .rules import Rules
from .violations import Condition, found, judged, ref, text, together

GROUP = ("run", "queue", "selected")
"""A queue; and for one that is taken from by selectors, what is selected."""
CALL = ("run", "who", "n")
FIFO, PRIORITY, EMPTY = "fifo", "priority", "false empty"


def findings(
    lives: DataFrame, operations: DataFrame, disturbed: DataFrame, rules: Rules
) -> DataFrame:
    """Every finding about the order of messages; ``disturbed`` is what ``disturbances`` finds."""
    taken = _taken(lives, rules).join(disturbed, list(CALL), "left_anti")
    return together(
        [
            _overtaken(lives, taken, operations, disturbed, rules),
            _confused_enqueues(taken, rules),
            _confused_deliveries(operations, lives, rules),
        ]
    )


def _selected(region: Column, rules: Rules) -> Column:
    region = F.coalesce(region, F.lit(""))
    return F.when(F.col("queue") == rules.filtered, region).otherwise(F.lit(""))


def _taken(lives: DataFrame, rules: Rules) -> DataFrame:
    """What was taken from queues with an order, by somebody who asked for the first message."""
    of_order = F.col("queue").isin(*rules.strict) & F.col("in_order")
    any_of_all = F.coalesce("drains", F.lit(False)) & (F.col("queue") == rules.filtered)
    return lives.where(is_(TAKEN) & of_order & ~any_of_all)


def disturbances(operations: DataFrame, rules: Rules) -> DataFrame:
    """Calls (``CALL``) at some instant of which a message may have been in hands unknown.

    A call that fails after it was given messages, or whose process is killed, gives them back as
    if it never had them: for as long as it lasts, and for a lease where it was killed, any message
    of its queue may be out of the queue. Whoever takes the next one then is right.
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
    """Those of the calls that have an instant with one of the spans; the first and the last
    count."""
    end = F.coalesce("ended", F.lit(NEVER - 1)) + 1
    asked = calls.withColumn("begin", end).withColumn("end", F.col("began") - 1)
    return throughout(spans, asked, ("run", "queue")).select(*CALL)


def stood(lives: DataFrame) -> DataFrame:
    """Messages that stood in their queue for certain from the end of told to since."""
    told = F.col("told")
    return lives.where(
        (F.col("rank") == 1)
        & told["certain"]
        & F.col("in_order")
        & told["ended"].isNotNull()
        & F.col("since").isNotNull()
    )


def _overtaken(
    lives: DataFrame, taken: DataFrame, operations: DataFrame, disturbed: DataFrame, rules: Rules
) -> DataFrame:
    """Whoever was given a message, or nothing, while another one stood there all the while."""
    told = F.col("told")
    standing = stood(lives).select(
        "run",
        "queue",
        _selected(told["region"], rules).alias("selected"),
        told["level"].alias("level"),
        told["ended"].alias("since"),
        F.col("since").alias("until"),
        F.struct("tag").alias("what"),
    )
    asked = together([*_questions(taken, rules), _empties(operations, disturbed, rules)])
    # A question is asked of every level that anything stood in, and that it is about.
    levels = standing.select(*GROUP, "level").distinct()
    about = F.when(F.col("kind") == FIFO, F.col("level") == F.col("own")).otherwise(
        F.col("level") < F.col("own")
    )
    asked = asked.join(F.broadcast(levels), list(GROUP)).where(about)
    answered = throughout(standing, asked, (*GROUP, "level"))
    other = F.col("what.tag")
    empty = F.col("kind") == EMPTY
    detail = F.when(empty, text(F.col("queue"), ": ", other, " was there")).otherwise(
        text(F.col("queue"), ": ", F.col("tag"), " was taken before ", other)
    )
    tags = F.when(empty, F.array(other)).otherwise(F.array(other, "tag"))
    return found(answered, F.col("kind"), detail, tags=tags, refs=F.array(ref()))


def _questions(taken: DataFrame, rules: Rules) -> list[DataFrame]:
    told = F.col("told")
    group = ("run", "queue", _selected(told["region"], rules).alias("selected"))
    level = told["level"].alias("own")
    rest = ("who", "n", "tag")
    fifo = taken.select(
        *group,
        level,
        told["began"].alias("begin"),
        F.col("ended").alias("end"),
        F.lit(FIFO).alias("kind"),
        *rest,
    )
    priority = taken.select(
        *group,
        level,
        F.col("began").alias("begin"),
        F.col("ended").alias("end"),
        F.lit(PRIORITY).alias("kind"),
        *rest,
    )
    return [fifo, priority]


def _empties(operations: DataFrame, disturbed: DataFrame, rules: Rules) -> DataFrame:
    """Who was told that a queue is empty, but for those that was paused meanwhile."""
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
    excused = _touched(empties, pauses).union(disturbed)
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


def _confused_enqueues(taken: DataFrame, rules: Rules) -> DataFrame:
    """The messages of one enqueue are taken in their order."""
    members = taken.where(
        F.col("since").isNotNull() & (F.col("queue") != rules.filtered) & (F.col("ended") < NEVER)
    )
    told = F.col("told")
    batch = Window.partitionBy("run", told["who"], told["n"], told["level"])
    ordered = batch.orderBy(told["place"], "began", "who", "n")
    previous = F.lag(F.struct("tag", "since", told["place"].alias("place"))).over(ordered)
    pairs = members.select("*", previous.alias("before"))
    late = (F.col("before.place") != told["place"]) & (F.col("before.since") > F.col("ended"))
    detail = text(F.col("tag"), " before ", F.col("before.tag"))
    test = Condition(FIFO, late, detail)
    return judged(pairs, [test], tags=F.array("before.tag", "tag"), refs=F.array(ref()))


def _confused_deliveries(operations: DataFrame, lives: DataFrame, rules: Rules) -> DataFrame:
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
    plain = lives.where((F.col("rank") == 1) & F.col("in_order")).select("run", "queue", "tag")
    known = each.join(plain, ["run", "queue", "tag"])
    delivery = Window.partitionBy("run", "who", "n").orderBy("at")
    stepped = known.select("*", (F.lag("id").over(delivery) > F.col("id")).alias("back"))
    batches = stepped.groupBy("run", "queue", "who", "n").agg(
        F.max("back").alias("back"), F.collect_list("tag").alias("all_tags")
    )
    test = Condition(
        "batch out of order",
        F.col("back"),
        text(F.col("queue"), ": ", F.array_join("all_tags", ", ")),
    )
    return judged(batches, [test], tags=F.col("all_tags"), refs=F.array(ref()))
