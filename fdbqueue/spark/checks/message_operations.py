"""Actions: what each operation did to each message, with the message's whole history.

One table has a row for each action, partitioned by message, so that checks of single messages need
no further shuffle.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .operations import STORE
from .violations import union

ENQUEUED, TAKEN, SETTLED = "enqueued", "taken", "settled"
RETURNED, DEAD, EFFECT = "returned", "dead", "effect"
MESSAGE = ("run", "queue", "tag")
NEVER = (1 << 63) - 1
"""The end of an operation whose end nobody saw."""
SETTLES = ("ack", "effect", "reject")
RETURNS = ("release", "fail")
TAKES = ("receive", "dequeue")

_FIELDS = {
    "id": "string",
    "level": "int",
    "attempt": "int",
    "region": "string",
    "delay": "double",
    "key": "string",
    "place": "int",
    "certain": "boolean",
    "wanted": "string",
    "drains": "boolean",
    "limit": "int",
    "count": "bigint",
    "reason": "string",
}


def _actions(frame: DataFrame, action: str, tag: Column, **fields: Column) -> DataFrame:
    empty = {name: F.lit(None) for name in _FIELDS}
    return frame.select(
        "run",
        "queue",
        tag.alias("tag"),
        F.lit(action).alias("action"),
        "who",
        "n",
        "name",
        "began",
        "ended",
        "wall_ms",
        "ended_wall_ms",
        *((empty | fields)[name].cast(type_).alias(name) for name, type_ in _FIELDS.items()),
    )


def _named(operations: DataFrame, *names: str) -> DataFrame:
    return operations.where(F.col("name").isin(*names))


def actions_of(operations: DataFrame) -> DataFrame:
    """A row for each message of each operation. One shuffle, by message."""
    parts = [
        _enqueued(_named(operations, "enqueue")),
        *_taken(operations),
        _ended(_named(operations, *SETTLES), SETTLED),
        _ended(_named(operations, *RETURNS), RETURNED),
        _effects(_named(operations, "effect of").where(F.col("who") == STORE)),
        _dead(_named(operations, "final")),
    ]
    return union(parts).repartition(*MESSAGE)


def _enqueued(enqueues: DataFrame) -> DataFrame:
    ids = F.from_json("outcome", "array<string>")
    each = enqueues.select("*", ids.alias("ids"), F.posexplode("about.messages").alias("at", "row"))
    row = F.col("row")
    return _actions(
        each,
        ENQUEUED,
        row[0],
        level=row[1],
        delay=row[2],
        key=row[3],
        region=row[4],
        place=F.col("at"),
        certain=F.col("certain"),
        id=F.when(F.col("certain"), F.get("ids", F.col("at"))),
    )


def taken_rows(operations: DataFrame) -> Column:
    """The messages that a receive or a dequeue got, if known."""
    return F.from_json("outcome", "array<array<string>>")


def _taken(operations: DataFrame) -> list[DataFrame]:
    takes = _named(operations, *TAKES).withColumn("rows", taken_rows(operations))
    handles = _named(operations, "handle").withColumn("rows", F.col("about.rows"))
    each = takes.unionByName(handles).select("*", F.explode("rows").alias("row"))
    row = F.col("row")
    taken = _actions(
        each,
        TAKEN,
        row[0],
        id=row[1],
        level=row[2],
        attempt=row[3],
        region=row[4],
        wanted=F.col("about.region"),
        drains=F.coalesce("about.drains", F.lit(False)),
        limit=F.col("about.limit"),
    )
    # A handler is only seen running: when its delivery was asked for is unknown.
    handled = F.col("name") == "handle"
    taken = taken.withColumn("began", F.when(handled, F.lit(-1)).otherwise(F.col("began")))
    taken = taken.withColumn("ended", F.coalesce("ended", F.lit(NEVER)))
    ended = _actions(each.where(F.col("name") == "dequeue"), SETTLED, row[0], certain=F.lit(True))
    return [taken, ended]


def _ended(operations: DataFrame, action: str) -> DataFrame:
    perhaps = operations.where(F.coalesce("certain", F.lit(True)))
    each = perhaps.select("*", F.explode("about.tags").alias("of"))
    return _actions(each, action, F.col("of"), certain=F.col("certain"))


def _effects(effects: DataFrame) -> DataFrame:
    return _actions(effects, EFFECT, F.col("about.tag"), count=F.col("about.count"))


def _dead(finals: DataFrame) -> DataFrame:
    each = finals.select("*", F.explode("about.dead").alias("row"))
    row = F.col("row")
    return _actions(each, DEAD, row[0], reason=row[1], attempt=row[2])


def is_action(action: str) -> Column:
    """Whether a row is an action of this kind."""
    return F.col("action") == action


def with_history(actions: DataFrame) -> DataFrame:
    """Every action with the whole history of its message. No shuffle.

    Adds enqueue (a struct, or null); in_order, whether the message's place follows from the time
    of its enqueue; ids; takes, ends, perhaps and deaths, which count deliveries, certain ends,
    possible ends and dead letters; effects, how many or null; first, the first certain end;
    finished and refused, whether it is known to have ended other than by a rejection, and whether
    it may have been rejected; since, from when on it may have been out of the queue, or null;
    taken_id, the id it was taken under; returns, what gave it back; and rank, which is 1 for one
    action of each message.
    """
    whole = Window.partitionBy(*MESSAGE)
    certain = F.coalesce("certain", F.lit(False))
    done = is_action(SETTLED) & certain
    enqueue = F.struct(
        *(
            F.col(name)
            for name in (
                *("began", "who", "n", "place", "level", "delay", "key", "region"),
                *("certain", "id", "ended", "wall_ms"),
            )
        )
    )
    end = F.struct("began", "who", "n", "ended")
    given = F.struct("began", "ended", "name", "who", "n")

    def only(action: str | Column, value: Column) -> Column:
        return F.when(is_action(action) if isinstance(action, str) else action, value)

    def count(condition: Column) -> Column:
        return F.count(F.when(condition, 1)).over(whole)

    known = actions.select(
        "*",
        F.max(only(ENQUEUED, enqueue)).over(whole).alias("enqueue"),
        F.collect_set(F.when(is_action(TAKEN) | is_action(ENQUEUED), F.col("id")))
        .over(whole)
        .alias("ids"),
        count(is_action(TAKEN)).alias("takes"),
        count(done).alias("ends"),
        count(is_action(SETTLED) & ~certain).alias("perhaps"),
        count(is_action(DEAD)).alias("deaths"),
        F.max(only(EFFECT, F.col("count"))).over(whole).alias("effects"),
        F.min(only(done, end)).over(whole).alias("first"),
        (count(done & (F.col("name") != "reject")) > 0).alias("finished"),
        (count(is_action(SETTLED) & (F.col("name") == "reject")) > 0).alias("refused"),
        F.min(only(TAKEN, F.col("attempt"))).over(whole).alias("least_attempt"),
        F.min(only(TAKEN, F.col("began"))).over(whole).alias("asked"),
        F.min(only(TAKEN, F.struct("began", "who", "n", "id"))).over(whole)["id"].alias("taken_id"),
        F.collect_list(only(RETURNED, given)).over(whole).alias("returns"),
        F.row_number().over(whole.orderBy("action", "began", "who", "n")).alias("rank"),
    )
    plain = (F.col("enqueue.delay") == 0) & F.col("enqueue.key").isNull()
    out = F.when(F.col("least_attempt") == 1, F.col("asked"))
    return known.select("*", F.coalesce(plain, F.lit(False)).alias("in_order"), out.alias("since"))
