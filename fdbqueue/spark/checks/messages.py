"""What must hold of each message by itself: conservation, at most once, attempts, delays."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .message_operations import DEAD, ENDED, MESSAGE, NEVER, TAKEN, is_
from .rules import Rules
from .violations import Condition, judged, ref, text, together


def _message() -> Column:
    return text(F.col("queue"), " ", F.col("tag"))


def findings(lives: DataFrame, rules: Rules) -> DataFrame:
    """Every finding about one message; ``lives`` is what ``deeds.lives`` makes."""
    return together([_whole(lives, rules), _pairs(lives, rules)])


def _whole(lives: DataFrame, rules: Rules) -> DataFrame:
    tests = [*_once_each(), *_each_deed(rules)]
    return judged(lives, tests, tags=F.array("tag"), refs=F.array(ref()))


def _once_each() -> list[Condition]:
    """What is found at most once of a message."""
    message = _message()
    once, told = F.col("rank") == 1, F.col("told").isNotNull()
    certain = F.col("told.certain")
    takes, ends, perhaps = F.col("takes") > 0, F.col("ends") > 0, F.col("perhaps") > 0
    dead, effect = F.col("deaths") > 0, F.col("effects").isNotNull()
    ended = ends | perhaps | dead | effect
    nobody = once & ~told
    unknown = text(message, ": nobody enqueued it")
    return [
        Condition("lost", once & certain & ~ended, text(message, ": neither done nor dead")),
        Condition(
            "phantom",
            once & (certain == F.lit(False)) & (ended | takes),
            text(message, ": never committed"),
        ),
        # One for each way in which it shows.
        *(Condition("phantom", nobody & shows, unknown) for shows in (takes, ends, dead, effect)),
        Condition(
            "enqueued twice",
            once & told & (F.size("ids") > 1),
            text(message, ": under ", F.array_join(F.array_sort("ids"), ", ")),
        ),
        Condition("done and dead", once & told & dead & F.col("finished"), message),
        Condition("settled twice", once & (F.col("ends") > 1), message),
        Condition(
            "effect not once",
            once & effect & (F.col("effects") != 1),
            text(message, ": ", F.col("effects"), " times"),
        ),
    ]


def _each_deed(rules: Rules) -> list[Condition]:
    """What each deed may show."""
    message = _message()
    taken, drains = is_(TAKEN), F.coalesce("drains", F.lit(False))
    due = F.col("told.wall_ms") + F.col("told.delay") * 1000 - rules.early_ms
    early = due - F.col("ended_wall_ms")
    return [
        Condition(
            "delivered after its end", taken & (F.col("first.ended") < F.col("began")), message
        ),
        Condition(
            "effect lost",
            is_(ENDED)
            & F.col("certain")
            & F.col("name").isin("effect", "dequeue")
            & F.col("effects").isNull(),
            message,
        ),
        Condition(
            "too many attempts",
            taken & (F.col("attempt") > rules.max_attempts),
            text(message, ": ", F.col("attempt")),
        ),
        Condition(
            "early",
            taken & (F.col("told.delay") > 0) & (early > 0) & ~drains,
            text(message, ": ", F.round(early).cast("bigint"), " ms too early"),
        ),
        Condition("taken without a match", taken & (F.col("wanted") != F.col("region")), message),
        Condition(
            "dead too early",
            is_(DEAD) & (F.col("attempt") < rules.max_attempts) & ~F.col("refused"),
            text(message, ": ", F.col("reason")),
        ),
    ]


def _pairs(lives: DataFrame, rules: Rules) -> DataFrame:
    """What one delivery and the one before it of the same message show."""
    window = Window.partitionBy(*MESSAGE).orderBy("began", "who", "n")
    columns = {name: F.col(name) for name in ("attempt", "began", "ended", "who", "n")}
    before = F.lag(F.struct(*columns.values())).over(window)
    taken = lives.where(is_(TAKEN) & ~F.col("queue").isin(*rules.handled))
    pairs = taken.select("*", before.alias("before")).where(F.col("before").isNotNull())
    # Where two overlap, either may have been the first.
    pairs = pairs.withColumn("end", F.greatest("before.ended", "ended"))

    def meanwhile(given: Column) -> Column:
        there = F.coalesce(given["ended"], F.lit(NEVER)) > F.col("before.began")
        return (given["began"] < F.col("end")) & there

    back = F.exists("returns", meanwhile)
    released = F.exists("returns", lambda given: meanwhile(given) & (given["name"] == "release"))
    message, drains = _message(), F.coalesce("drains", F.lit(False))
    short = F.col("end") - F.col("before.began") < rules.min_lease_ns
    attempt, previous = F.col("attempt"), F.col("before.attempt")
    tests = [
        Condition(
            "attempts went back",
            (attempt < previous) & (F.col("before.ended") < F.col("began")),
            text(message, ": ", attempt, " after ", previous),
        ),
        Condition(
            "leased twice",
            (attempt == previous) & short & ~released,
            text(message, ": attempt ", attempt),
        ),
        Condition("lease cut short", ~(back | drains) & short, message),
    ]
    refs = F.array(ref("before.who", "before.n"), ref())
    return judged(pairs, tests, tags=F.array("tag"), refs=refs)
