"""Checks of single messages: conservation, at most once, attempts, delays."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .message_operations import DEAD, MESSAGE, NEVER, SETTLED, TAKEN, is_action
from .rules import Rules
from .violations import Condition, check_rows, ref, text, union

_MESSAGE = "{queue} {tag}"


def findings(actions: DataFrame, rules: Rules) -> DataFrame:
    """All findings about single messages. ``actions``: see ``message_operations.with_history``."""
    return union([_whole(actions, rules), _pairs(actions, rules)])


def _whole(actions: DataFrame, rules: Rules) -> DataFrame:
    tests = [*_once_each(), *_each_action(rules)]
    return check_rows(actions, tests, tags=F.array("tag"), refs=F.array(ref()))


def _once_each() -> list[Condition]:
    """Findings that a message can have once."""
    once, enqueued = F.col("rank") == 1, F.col("enqueue").isNotNull()
    certain = F.col("enqueue.certain")
    takes, ends, perhaps = F.col("takes") > 0, F.col("ends") > 0, F.col("perhaps") > 0
    dead, effect = F.col("deaths") > 0, F.col("effects").isNotNull()
    ended = ends | perhaps | dead | effect
    nobody = once & ~enqueued
    unknown = "{queue} {tag}: nobody enqueued it"
    return [
        Condition("lost", once & certain & ~ended, "{queue} {tag}: neither done nor dead"),
        Condition(
            "phantom",
            once & (certain == F.lit(False)) & (ended | takes),
            "{queue} {tag}: never committed",
        ),
        # One for each way it can show.
        *(Condition("phantom", nobody & shows, unknown) for shows in (takes, ends, dead, effect)),
        Condition(
            "enqueued twice",
            once & enqueued & (F.size("ids") > 1),
            text("{queue} {tag}: under {ids}", ids=F.array_join(F.array_sort("ids"), ", ")),
        ),
        Condition("done and dead", once & enqueued & dead & F.col("finished"), _MESSAGE),
        Condition("settled twice", once & (F.col("ends") > 1), _MESSAGE),
        Condition(
            "effect not once",
            once & effect & (F.col("effects") != 1),
            "{queue} {tag}: {effects} times",
        ),
    ]


def _each_action(rules: Rules) -> list[Condition]:
    """Findings that every action can have."""
    taken, drains = is_action(TAKEN), F.coalesce("drains", F.lit(False))
    due = F.col("enqueue.wall_ms") + F.col("enqueue.delay") * 1000 - rules.early_ms
    early = due - F.col("ended_wall_ms")
    return [
        Condition(
            "delivered after its end", taken & (F.col("first.ended") < F.col("began")), _MESSAGE
        ),
        Condition(
            "effect lost",
            is_action(SETTLED)
            & F.col("certain")
            & F.col("name").isin("effect", "dequeue")
            & F.col("effects").isNull(),
            _MESSAGE,
        ),
        Condition(
            "too many attempts",
            taken & (F.col("attempt") > rules.max_attempts),
            "{queue} {tag}: {attempt}",
        ),
        Condition(
            "early",
            taken & (F.col("enqueue.delay") > 0) & (early > 0) & ~drains,
            text("{queue} {tag}: {early} ms too early", early=F.round(early).cast("bigint")),
        ),
        Condition("taken without a match", taken & (F.col("wanted") != F.col("region")), _MESSAGE),
        Condition(
            "dead too early",
            is_action(DEAD) & (F.col("attempt") < rules.max_attempts) & ~F.col("refused"),
            "{queue} {tag}: {reason}",
        ),
    ]


def _pairs(actions: DataFrame, rules: Rules) -> DataFrame:
    """Findings about a delivery and the previous one of its message."""
    window = Window.partitionBy(*MESSAGE).orderBy("began", "who", "n")
    columns = {name: F.col(name) for name in ("attempt", "began", "ended", "who", "n")}
    before = F.lag(F.struct(*columns.values())).over(window)
    taken = actions.where(is_action(TAKEN) & ~F.col("queue").isin(*rules.handled))
    pairs = taken.select("*", before.alias("before")).where(F.col("before").isNotNull())
    # If two overlap, either may have been first.
    pairs = pairs.withColumn("end", F.greatest("before.ended", "ended"))

    def meanwhile(given: Column) -> Column:
        there = F.coalesce(given["ended"], F.lit(NEVER)) > F.col("before.began")
        return (given["began"] < F.col("end")) & there

    back = F.exists("returns", meanwhile)
    released = F.exists("returns", lambda given: meanwhile(given) & (given["name"] == "release"))
    drains = F.coalesce("drains", F.lit(False))
    short = F.col("end") - F.col("before.began") < rules.min_lease_ns
    attempt, previous = F.col("attempt"), F.col("before.attempt")
    tests = [
        Condition(
            "attempts went back",
            (attempt < previous) & (F.col("before.ended") < F.col("began")),
            "{queue} {tag}: {attempt} after {before.attempt}",
        ),
        Condition(
            "leased twice",
            (attempt == previous) & short & ~released,
            "{queue} {tag}: attempt {attempt}",
        ),
        Condition("lease cut short", ~(back | drains) & short, _MESSAGE),
    ]
    refs = F.array(ref("before.who", "before.n"), ref())
    return check_rows(pairs, tests, tags=F.array("tag"), refs=refs)
