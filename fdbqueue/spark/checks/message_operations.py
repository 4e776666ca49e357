"""What was done to each message, and its whole life beside each deed.

One table has it all: a row for each message and operation that was about it, kept together by
message. So the checks that are about one message shuffle nothing more.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .operations import STORE

TOLD, TAKEN, ENDED, GIVEN, DEAD, EFFECT = "told", "taken", "ended", "given", "dead", "effect"
MESSAGE = ("run", "queue", "tag")
NEVER = (1 << 63) - 1
"""When what nobody saw the end of may have ended."""
SETTLES = ("ack", "effect", "reject")
GIVES = ("release", "fail")
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


def _deeds(frame: DataFrame, deed: str, tag: Column, **fields: Column) -> DataFrame:
    empty = {name: F.lit(None) for name in _FIELDS}
    return frame.select(
        "run",
        "queue",
        tag.alias("tag"),
        F.lit(deed).alias("deed"),
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


def deeds(operations: DataFrame) -> DataFrame:
    """A row for each message of each operation. One shuffle, by message."""
    parts = [
        _told(_named(operations, "enqueue")),
        *_taken(operations),
        _ended(_named(operations, *SETTLES)),
        _given(_named(operations, *GIVES)),
        _effects(_named(operations, "effect of").where(F.col("who") == STORE)),
        _dead(_named(operations, "final")),
    ]
    together = parts[0]
    for each in parts[1:]:
        together = together.unionByName(each)
    return together.repartition(*MESSAGE)


def _told(enqueues: DataFrame) -> DataFrame:
    ids = F.from_json("outcome", "array<string>")
    each = enqueues.select("*", ids.alias("ids"), F.posexplode("about.messages").alias("at", "row"))
    row = F.col("row")
    return _deeds(
        each,
        TOLD,
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
    """What a receive or a dequeue was given, as far as it is known."""
    return F.from_json("outcome", "array<array<string>>")


def _taken(operations: DataFrame) -> list[DataFrame]:
    takes = _named(operations, *TAKES).withColumn("rows", taken_rows(operations))
    handles = _named(operations, "handle").withColumn("rows", F.col("about.rows"))
    each = takes.unionByName(handles).select("*", F.explode("rows").alias("row"))
    row = F.col("row")
    taken = _deeds(
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
    # A handler is seen when it runs, so when its delivery was asked for and had is not known.
    handled = F.col("name") == "handle"
    taken = taken.withColumn("began", F.when(handled, F.lit(-1)).otherwise(F.col("began")))
    taken = taken.withColumn("ended", F.coalesce("ended", F.lit(NEVER)))
    ended = _deeds(each.where(F.col("name") == "dequeue"), ENDED, row[0], certain=F.lit(True))
    return [taken, ended]


def _ended(settlements: DataFrame) -> DataFrame:
    perhaps = settlements.where(F.coalesce("certain", F.lit(True)))
    each = perhaps.select("*", F.explode("about.tags").alias("of"))
    return _deeds(each, ENDED, F.col("of"), certain=F.col("certain"))


def _given(returns: DataFrame) -> DataFrame:
    perhaps = returns.where(F.coalesce("certain", F.lit(True)))
    each = perhaps.select("*", F.explode("about.tags").alias("of"))
    return _deeds(each, GIVEN, F.col("of"), certain=F.col("certain"))


def _effects(told: DataFrame) -> DataFrame:
    return _deeds(told, EFFECT, F.col("about.tag"), count=F.col("about.count"))


def _dead(finals: DataFrame) -> DataFrame:
    each = finals.select("*", F.explode("about.dead").alias("row"))
    row = F.col("row")
    return _deeds(each, DEAD, row[0], reason=row[1], attempt=row[2])


def is_(deed: str) -> Column:
    """Whether a row is about such a deed."""
    return F.col("deed") == deed


def lives(all_deeds: DataFrame) -> DataFrame:
    """Every deed with the whole life of its message. No shuffle.

    Adds: told, the enqueue (a struct; null where there is none); in_order, whether its place
    follows from when it was enqueued; ids; takes, ends, perhaps and deaths, how many; effects,
    how many or null; first, the first end that is certain; finished and refused, whether it is
    known to have ended other than by a rejection, and whether it was maybe rejected; since when
    it may have been out of the queue, or null; taken_id, under which id it was taken; returns, what
    may have given it back; and rank, 1 in one row of each message.
    """
    whole = Window.partitionBy(*MESSAGE)
    certain = F.coalesce("certain", F.lit(False))
    done = is_(ENDED) & certain
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

    def only(deed: str | Column, value: Column) -> Column:
        return F.when(is_(deed) if isinstance(deed, str) else deed, value)

    def count(condition: Column) -> Column:
        return F.count(F.when(condition, 1)).over(whole)

    known = all_deeds.select(
        "*",
        F.max(only(TOLD, enqueue)).over(whole).alias("told"),
        F.collect_set(F.when(is_(TAKEN) | is_(TOLD), F.col("id"))).over(whole).alias("ids"),
        count(is_(TAKEN)).alias("takes"),
        count(done).alias("ends"),
        count(is_(ENDED) & ~certain).alias("perhaps"),
        count(is_(DEAD)).alias("deaths"),
        F.max(only(EFFECT, F.col("count"))).over(whole).alias("effects"),
        F.min(only(done, end)).over(whole).alias("first"),
        (count(done & (F.col("name") != "reject")) > 0).alias("finished"),
        (count(is_(ENDED) & (F.col("name") == "reject")) > 0).alias("refused"),
        F.min(only(TAKEN, F.col("attempt"))).over(whole).alias("least_attempt"),
        F.min(only(TAKEN, F.col("began"))).over(whole).alias("asked"),
        F.min(only(TAKEN, F.struct("began", "who", "n", "id"))).over(whole)["id"].alias("taken_id"),
        F.collect_list(only(GIVEN, given)).over(whole).alias("returns"),
        F.row_number().over(whole.orderBy("deed", "began", "who", "n")).alias("rank"),
    )
    plain = (F.col("told.delay") == 0) & F.col("told.key").isNull()
    out = F.when(F.col("least_attempt") == 1, F.col("asked"))
    return known.select("*", F.coalesce(plain, F.lit(False)).alias("in_order"), out.alias("since"))
