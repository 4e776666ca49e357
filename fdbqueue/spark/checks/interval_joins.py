"""Joins of points and intervals of time, by sorting: n log n for n rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def least_open(intervals: DataFrame, asked: DataFrame, by: Sequence[str]) -> DataFrame:
    """The least interval that is open at each moment.

    intervals: columns ``by``, begin and end (bigint), and what, which is compared; an interval is
    open after begin and before end. asked: columns ``by``, at, and others. Returns the rows of
    ``asked`` with open intervals, and the least ``what``.
    """
    parts = _parts(intervals, by)
    least = parts.groupBy(*by, "size", "block").agg(F.min("what").alias("what"))
    # Rows may be equal: the number keeps them apart until the sizes are brought together again.
    moments = asked.withColumn("moment", F.monotonically_increasing_id())
    found = _blocks(moments, least, by).join(least, [*by, "size", "block"])
    columns = [name for name in asked.columns if name not in by]
    return found.groupBy(*by, "moment").agg(
        *(F.first(name).alias(name) for name in columns), F.min("what").alias("what")
    )


def _parts(intervals: DataFrame, by: Sequence[str]) -> DataFrame:
    """Intervals cut into blocks of powers of two, at most two of each size.

    A moment lies in one block of each size, so it is in at most one block of an interval. Source:
    the segment tree, as in Bentley, "Solutions to Klee's rectangle problems", 1977.
    """
    size = "explode(sequence(0, int(log2(end - begin - 1)) + 1)) as size"
    # Whole blocks only: from begin + 1, as the interval is open, rounded up, to end, rounded down.
    first, last = "-shiftright(-begin - 1, size) as first", "shiftright(end, size) as last"
    # A block is needed only where its twin is outside; two twins are one block of the next size.
    ends = "array(if(first & 1 = 1, first, null), if(last & 1 = 1, last - 1, null))"
    return (
        intervals.where("end - begin > 1")
        .selectExpr("*", size)
        .selectExpr(*by, "size", "what", first, last)
        .where("first < last")
        .selectExpr(*by, "size", "what", f"explode(array_distinct(array_compact({ends}))) as block")
    )


def _blocks(asked: DataFrame, parts: DataFrame, by: Sequence[str]) -> DataFrame:
    """Moments with the blocks that contain them, for the sizes in use."""
    # Without it each moment would be looked up in all 62 sizes.
    used = F.broadcast(parts.select(*by, "size").distinct())
    return asked.join(used, list(by)).withColumn("block", F.expr("shiftright(at, size)"))
