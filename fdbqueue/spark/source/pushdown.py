"""Conditions of a query that narrow down what is read; only with the option ``pushdown``.

Spark refuses readers that take conditions while ``spark.sql.python.filterPushdown.enabled`` is
false, so others take none. Conditions on the level, and on the table's own time, are used to read
less. All of them are handed back: Spark checks them again, so what is used here may be coarse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .tables import Wanted

TIMES = {
    "ready": "enqueued_at",
    "delayed": "due_at",
    "leased": "enqueued_at",
    "dead": "died_at",
    "history": "at",
}
"""The column of a table's own time."""


def narrowed(wanted: Wanted, filters: Iterable[Filter], time: str, levels: Sequence[int]) -> Wanted:
    """What is wanted still, where all of ``filters`` must hold."""
    for each in filters:
        match each:
            case EqualTo(attribute=("level",), value=int(level)):
                wanted = _within(wanted, levels, {level})
            case In(attribute=("level",), value=values):
                wanted = _within(wanted, levels, set(values))
            case GreaterThan(attribute=("level",), value=int(level)):
                wanted = _within(wanted, levels, set(levels[max(0, level + 1) :]))
            case GreaterThanOrEqual(attribute=("level",), value=int(level)):
                wanted = _within(wanted, levels, set(levels[max(0, level) :]))
            case LessThan(attribute=("level",), value=int(level)):
                wanted = _within(wanted, levels, set(levels[: max(0, level)]))
            case LessThanOrEqual(attribute=("level",), value=int(level)):
                wanted = _within(wanted, levels, set(levels[: max(0, level + 1)]))
            case GreaterThan() | GreaterThanOrEqual() if each.attribute == (time,):
                wanted = _since(wanted, each.value)
            case LessThan() | LessThanOrEqual() if each.attribute == (time,):
                wanted = _until(wanted, each.value)
    return wanted


def _within(wanted: Wanted, levels: Sequence[int], some: set[object]) -> Wanted:
    known = levels if wanted.levels is None else wanted.levels
    kept = {level for level in known if level in some}
    return replace(wanted, levels=frozenset(kept))


def _since(wanted: Wanted, moment: object) -> Wanted:
    at_ms = _milliseconds(moment)
    if at_ms is None:
        return wanted
    return replace(wanted, since=max(at_ms, wanted.since or at_ms))


def _until(wanted: Wanted, moment: object) -> Wanted:
    at_ms = _milliseconds(moment)
    if at_ms is None:
        return wanted
    # The rows of that very millisecond may be asked for.
    return replace(wanted, until=min(at_ms + 1, wanted.until or at_ms + 1))


def _milliseconds(moment: object) -> int | None:
    if not isinstance(moment, datetime):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
