"""Actions: what each operation did to each message, with the message's whole history.

One table has a row for each action, partitioned by message, so that checks of single messages need
no further shuffle.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from .operations import TAKEN_ROWS
from .violations import union

MESSAGE = ["run", "queue", "tag"]
NEVER = (1 << 63) - 1
"""The end of an operation that did not return."""

_OPERATION = ("run", "queue", "who", "n", "name", "began", "ended", "wall_ms", "ended_wall_ms")


def actions_of(operations: DataFrame) -> DataFrame:
    """A row for each message of each operation; action says what was done. One shuffle, by message.

    Columns of an operation, and tag, action, id, level, attempt, nth, region, delay, key, place,
    certain, wanted, drains, limit, count and reason; null where they do not apply.
    """
    parts = [_enqueued(operations), *_taken(operations), _ended(operations), *_final(operations)]
    return union(parts).repartition(*MESSAGE)


def _enqueued(operations: DataFrame) -> DataFrame:
    each = operations.where("name = 'enqueue'").selectExpr(
        *(*_OPERATION, "certain", "from_json(outcome, 'array<string>') as ids"),
        "posexplode(about.messages) as (place, row)",
    )
    return each.selectExpr(
        *(*_OPERATION, "'enqueued' as action", "place", "certain"),
        *("row[0] as tag", "int(row[1]) as level", "double(row[2]) as delay", "row[3] as key"),
        *("row[4] as region", "if(certain, get(ids, place), null) as id"),
    )


def _taken(operations: DataFrame) -> list[DataFrame]:
    rows = f"when name in ('receive', 'dequeue') then {TAKEN_ROWS}"
    rows += " when name = 'handle' then about.rows"
    each = operations.selectExpr("*", f"explode(case {rows} end) as row")
    taken = each.selectExpr(
        *("run", "queue", "who", "n", "name", "wall_ms", "ended_wall_ms", "'taken' as action"),
        # A handler is only seen running: when its delivery was asked for is unknown.
        "if(name = 'handle', -1, began) as began",
        f"coalesce(ended, {NEVER}) as ended",
        *("row[0] as tag", "row[1] as id", "int(row[2]) as level", "int(row[3]) as attempt"),
        *("row[4] as region", "about.region as wanted", "about.limit"),
        # A lease that expires in a batch counts no attempt, but then the message is redelivered.
        "int(row[3]) + int(boolean(row[5])) as nth",
        "about.drains is true as drains",
    )
    ended = each.where("name = 'dequeue'")
    return [
        taken,
        ended.selectExpr(*_OPERATION, "'settled' as action", "row[0] as tag", "true as certain"),
    ]


def _ended(operations: DataFrame) -> DataFrame:
    ends = (
        "name in ('ack', 'effect', 'reject', 'cancel', 'release', 'fail') and certain is not false"
    )
    return operations.where(ends).selectExpr(
        *(*_OPERATION, "if(name in ('release', 'fail'), 'returned', 'settled') as action"),
        *("certain", "explode(about.tags) as tag"),
    )


def _final(operations: DataFrame) -> list[DataFrame]:
    """Effects and dead letters at the end of the run."""
    effects = operations.where("name = 'effect of' and who = 'store'").selectExpr(
        *(*_OPERATION, "'effect' as action", "about.tag", "about.count")
    )
    dead = operations.where("name = 'final'")
    dead = dead.selectExpr(*_OPERATION, "'dead' as action", "explode(about.dead) as row")
    letters = dead.selectExpr(
        *(*_OPERATION, "action", "row[0] as tag", "row[1] as reason", "int(row[2]) as attempt")
    )
    return [effects, letters]


_ENQUEUE = "struct(began, who, n, place, level, delay, key, region, certain, id, ended, wall_ms)"
_CERTAIN_END = "action = 'settled' and certain is true"
_HISTORY = {
    "enqueue": f"max(if(action = 'enqueued', {_ENQUEUE}, null))",
    "ids": "collect_set(if(action in ('taken', 'enqueued'), id, null))",
    "takes": "count_if(action = 'taken')",
    "ends": f"count_if({_CERTAIN_END})",
    "perhaps": "count_if(action = 'settled' and certain is not true)",
    "deaths": "count_if(action = 'dead')",
    "effects": "max(if(action = 'effect', count, null))",
    "first": f"min(if({_CERTAIN_END}, struct(began, who, n, ended), null))",
    "finished": f"bool_or({_CERTAIN_END} and name not in ('reject', 'cancel'))",
    "cancelled": f"bool_or({_CERTAIN_END} and name = 'cancel')",
    "refused": "bool_or(action = 'settled' and name = 'reject')",
    "least_nth": "min(if(action = 'taken', nth, null))",
    "first_take": "min(if(action = 'taken', struct(began, who, n, id), null))",
    "returns": "collect_list(if(action = 'returned', struct(began, ended, name, who, n), null))",
}


def with_history(actions: DataFrame) -> DataFrame:
    """Every action with the whole history of its message. No shuffle.

    Adds enqueue (a struct, or null); in_order, whether the message's place follows from the time
    of its enqueue; ids; takes, ends, perhaps and deaths, which count deliveries, certain ends,
    possible ends and dead letters; effects, how many or null; first, the first certain end;
    finished, cancelled and refused, whether it is known to be done, or cancelled, and whether it
    may have been rejected; since, from when on it may have been out of the queue, or null;
    taken_id, the id it was taken under; returns, what gave it back; and rank, which is 1 for one
    action of each message.
    """
    message = f"partition by {', '.join(MESSAGE)}"
    known = actions.selectExpr(
        "*",
        *(f"{value} over ({message}) as {name}" for name, value in _HISTORY.items()),
        f"row_number() over ({message} order by action, began, who, n) as rank",
    )
    return known.selectExpr(
        "*",
        "(enqueue.delay = 0 and enqueue.key is null) is true as in_order",
        "if(least_nth = 1, first_take.began, null) as since",
        "first_take.id as taken_id",
    )
