"""Filter pushdown: the query's conditions on level and time make a batch read smaller.

Only with the option ``pushdown``: Spark refuses readers that take conditions unless
``spark.sql.python.filterPushdown.enabled`` is true. All conditions are handed back to Spark, which
evaluates them again, so narrowing may be coarse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .tables import RowFilter

TIMES = {
    "ready": "enqueued_at",
    "delayed": "due_at",
    "leased": "enqueued_at",
    "dead": "died_at",
    "history": "at",
}
"""The column of each table's own time."""
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def narrow(
    row_filter: RowFilter, filters: Iterable[Filter], time: str, levels: Sequence[int]
) -> RowFilter:
    """The row filter, narrowed by conditions that must all hold."""
    for each in filters:
        known = levels if row_filter.levels is None else row_filter.levels
        match each:
            case In(attribute=("level",), value=values):
                row_filter = replace(row_filter, levels=frozenset(known) & frozenset(values))
            case (
                EqualTo(attribute=("level",), value=int(level))
                | GreaterThan(attribute=("level",), value=int(level))
                | GreaterThanOrEqual(attribute=("level",), value=int(level))
                | LessThan(attribute=("level",), value=int(level))
                | LessThanOrEqual(attribute=("level",), value=int(level))
            ):
                compare = _COMPARE[type(each)]
                row_filter = replace(
                    row_filter, levels=frozenset(n for n in known if compare(n, level))
                )
            case (
                GreaterThan(value=datetime() as moment)
                | GreaterThanOrEqual(value=datetime() as moment)
            ) if each.attribute == (time,):
                since = _milliseconds(moment)
                row_filter = replace(row_filter, since=max(since, row_filter.since or since))
            case (
                LessThan(value=datetime() as moment) | LessThanOrEqual(value=datetime() as moment)
            ) if each.attribute == (time,):
                # The condition may include this very millisecond.
                until = _milliseconds(moment) + 1
                row_filter = replace(row_filter, until=min(until, row_filter.until or until))
    return row_filter


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
