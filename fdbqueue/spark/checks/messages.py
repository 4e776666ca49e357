"""Checks of single messages: conservation, at most once, attempts, delays."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .message_operations import MESSAGE, NEVER
from .operations import Rules
from .violations import THIS, Condition, check_rows, union

_MESSAGE = "{queue} {tag}"
_UNKNOWN = "{queue} {tag}: nobody enqueued it"
_ONCE_EACH: list[Condition] = [
    (
        "lost",
        "enqueue.certain and ends = 0 and perhaps = 0 and deaths = 0 and effects is null",
        "{queue} {tag}: neither done nor dead",
    ),
    (
        "phantom",
        "not enqueue.certain "
        "and (ends > 0 or perhaps > 0 or deaths > 0 or effects is not null or takes > 0)",
        "{queue} {tag}: never committed",
    ),
    # One for each way it can show.
    ("phantom", "enqueue is null and takes > 0", _UNKNOWN),
    ("phantom", "enqueue is null and ends > 0", _UNKNOWN),
    ("phantom", "enqueue is null and deaths > 0", _UNKNOWN),
    ("phantom", "enqueue is null and effects is not null", _UNKNOWN),
    (
        "enqueued twice",
        "enqueue is not null and size(ids) > 1",
        "{queue} {tag}: under {array_join(array_sort(ids), ', ')}",
    ),
    ("done and dead", "enqueue is not null and deaths > 0 and (finished or cancelled)", _MESSAGE),
    ("settled twice", "ends > 1", _MESSAGE),
    ("effect not once", "effects <> 1", "{queue} {tag}: {effects} times"),
]
"""Findings that a message can have once."""


def findings(actions: DataFrame, rules: Rules) -> DataFrame:
    """All findings about single messages. ``actions``: see ``message_operations.with_history``."""
    once = [(kind, f"rank = 1 and {test}", detail) for kind, test, detail in _ONCE_EACH]
    tests = [*once, *_each_action(rules)]
    whole = check_rows(actions, tests, tags="array(tag)", refs=THIS)
    return union([whole, _pairs(actions, rules)])


def _each_action(rules: Rules) -> list[Condition]:
    """Findings that every action can have."""
    early = f"(enqueue.wall_ms + enqueue.delay * 1000 - {rules.early_ms} - ended_wall_ms)"
    return [
        ("delivered after its end", "action = 'taken' and first.ended < began", _MESSAGE),
        (
            "effect lost",
            "action = 'settled' and certain and name in ('effect', 'dequeue') and effects is null",
            _MESSAGE,
        ),
        (
            "too many attempts",
            f"action = 'taken' and attempt > {rules.max_attempts}",
            "{queue} {tag}: {attempt}",
        ),
        (
            "early",
            f"action = 'taken' and enqueue.delay > 0 and {early} > 0 and not drains",
            f"{{queue}} {{tag}}: {{bigint(round({early}))}} ms too early",
        ),
        ("taken without a match", "action = 'taken' and wanted <> region", _MESSAGE),
        (
            "dead too early",
            f"action = 'dead' and attempt < {rules.max_attempts} and not refused",
            "{queue} {tag}: {reason}",
        ),
    ]


def _pairs(actions: DataFrame, rules: Rules) -> DataFrame:
    """Findings about a delivery and the previous one of its message."""
    window = Window.partitionBy(MESSAGE).orderBy("began", "who", "n")
    before = F.lag(F.struct("nth", "began", "ended", "who", "n")).over(window)
    taken = actions.where("action = 'taken'").where(~F.col("queue").isin(*rules.handled))
    pairs = taken.withColumn("before", before).where("before is not null")
    # If two overlap, either may have been first.
    pairs = pairs.withColumn("end", F.greatest("before.ended", "ended"))
    short = f"end - before.began < {rules.min_lease_ns}"
    meanwhile = f"x.began < end and coalesce(x.ended, {NEVER}) > before.began"
    released = f"exists(returns, x -> {meanwhile} and x.name = 'release')"
    tests = [
        (
            "attempts went back",
            "nth < before.nth and before.ended < began",
            "{queue} {tag}: delivery {nth} after {before.nth}",
        ),
        (
            "leased twice",
            f"nth = before.nth and {short} and not {released}",
            "{queue} {tag}: delivery {nth}",
        ),
        (
            "lease cut short",
            f"not drains and {short} and not exists(returns, x -> {meanwhile})",
            _MESSAGE,
        ),
    ]
    refs = "array(struct(before.who, before.n), struct(who, n))"
    return check_rows(pairs, tests, tags="array(tag)", refs=refs)
