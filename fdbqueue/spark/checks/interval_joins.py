"""Joins of points and intervals of time, by sorting: n log n for n rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def present_throughout(present: DataFrame, asked: DataFrame, by: Sequence[str]) -> DataFrame:
    """The rows of ``asked`` during which something was present all the time.

    present: columns ``by``, since and until (bigint), and what (a struct). asked: columns ``by``,
    begin and end, and others. Returns the rows of ``asked`` for which some row of ``present`` has
    since < begin and until > end, with its ``what``.

    Of all that began before ``begin`` only the one that stays longest matters: a running maximum
    over both tables in the order of time finds it.
    """
    others = [name for name in asked.columns if name not in (*by, "begin", "end")]
    question = F.struct("end", *others)
    longest = F.struct("until", "what")
    nothing = {
        "stood": F.lit(None).cast(_type(present.select(longest.alias("it")))),
        "question": F.lit(None).cast(_type(asked.select(question.alias("it")))),
    }
    stood = present.select(
        *by,
        F.col("since").alias("at"),
        longest.alias("stood"),
        nothing["question"].alias("question"),
    )
    questions = asked.select(
        *by, F.col("begin").alias("at"), nothing["stood"].alias("stood"), question.alias("question")
    )
    # Questions come first within a moment: what begins then is not present before it.
    order = Window.partitionBy(*by).orderBy("at", F.col("question").isNull())
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    answered = stood.unionByName(questions).select("*", F.max("stood").over(so_far).alias("most"))
    return answered.where(
        F.col("question").isNotNull() & (F.col("most.until") > F.col("question.end"))
    ).select(*by, F.col("at").alias("begin"), "question.*", F.col("most.what").alias("what"))


def least_open(intervals: DataFrame, asked: DataFrame, by: Sequence[str]) -> DataFrame:
    """The least interval that is open at each moment.

    intervals: columns ``by``, begin and end (bigint), and what, which is compared; an interval is
    open after begin and before end. asked: columns ``by``, at, and others. Returns the rows of
    ``asked`` with open intervals, and the least ``what``.
    """
    parts = _parts(intervals, by)
    least = parts.groupBy(*by, "size", "block").agg(F.min("what").alias("what"))
    moments = asked.withColumn("moment", F.monotonically_increasing_id())
    found = _blocks(moments, least, by).join(least, [*by, "size", "block"])
    columns = [name for name in asked.columns if name not in by]
    return found.groupBy(*by, "moment").agg(
        *(F.first(name).alias(name) for name in columns), F.min("what").alias("what")
    )


def open_at(intervals: DataFrame, asked: DataFrame, by: Sequence[str]) -> DataFrame:
    """As ``least_open``, with a row for each open interval."""
    parts = _parts(intervals, by).select(*by, "size", "block", "what")
    return _blocks(asked, parts, by).join(parts, [*by, "size", "block"]).drop("size", "block")


def _parts(intervals: DataFrame, by: Sequence[str]) -> DataFrame:
    """Intervals cut into blocks of powers of two, at most two of each size.

    A moment lies in one block of each size, so it is in at most one block of an interval. Source:
    the segment tree, as in Bentley, "Solutions to Klee's rectangle problems", 1977.
    """
    from_, to = F.col("begin") + 1, F.col("end")
    length = to - from_
    sizes = F.sequence(F.lit(0), F.floor(F.log2(length.cast("double"))).cast("int") + 1)
    parts = intervals.where(length > 0).select("*", F.explode(sizes).alias("size"))
    first, last = -_shifted(-from_), _shifted(to)
    blocks = F.array_compact(F.array(F.when(_odd(first), first), F.when(_odd(last), last - 1)))
    return parts.where(first < last).select(
        *by, "size", "what", F.explode(F.array_distinct(blocks)).alias("block")
    )


def _blocks(asked: DataFrame, parts: DataFrame, by: Sequence[str]) -> DataFrame:
    """Moments with the blocks that contain them, for the sizes in use."""
    used = parts.select(*by, "size").distinct()
    return asked.join(F.broadcast(used), list(by)).withColumn("block", _shifted(F.col("at")))


def _shifted(number: Column) -> Column:
    """A number without its lowest ``size`` bits."""
    return F.call_function("shiftright", number, F.col("size"))


def _odd(number: Column) -> Column:
    return number.bitwiseAND(F.lit(1)) == 1


def _type(frame: DataFrame) -> str:
    return frame.schema["it"].dataType.simpleString()
