"""A queue's own delivery history: every transition starts from the message's state."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...values.states import TRANSITIONS, State
from ..jobs.events import TAKES, into, state_of
from .interval_joins import least_open
from .message_operations import NEVER
from .violations import Condition, as_findings, check_rows, text

NAMES = [edge.name for edge in TRANSITIONS]


def with_neighbors(events: DataFrame) -> DataFrame:
    """Events with the previous and the next event of their message. One shuffle.

    events: run, queue, id, transition, attempt, stamp (their order), at (bigint, their position in
    it), and others. Adds before, before_attempt and after_at, or null.
    """
    message = Window.partitionBy("run", "queue", "id").orderBy("stamp")
    return events.select(
        "*",
        F.lag("transition").over(message).alias("before"),
        F.lag("attempt").over(message).alias("before_attempt"),
        F.lead("at").over(message).alias("after_at"),
    )


def illegal_transitions(events: DataFrame, *, began_before: Column) -> DataFrame:
    """Transitions that do not start from the message's state.

    began_before: whether a message may be older than the history.
    """
    state = state_of(F.col("before"))
    source = state_of(F.col("transition"), source=True)
    unknown = F.col("before").isNull() & began_before
    wrong = ~F.col("transition").isin(NAMES) | ~(state.eqNullSafe(source) | unknown)
    what = text("{queue}: event {at}: {transition} of {id}, which is {state}", state=state)
    return check_rows(events, [Condition("illegal transition", wrong, what)], tags=F.array("id"))


def taken_out_of_order(
    events: DataFrame, kind: str = "not the first", patience: Column | None = None
) -> DataFrame:
    """Messages taken while another one with a better place was ready.

    events: with a column place, which gives the order, or null. patience: how long the other
    message must have been ready.
    """
    placed = events.where(F.col("place").isNotNull())
    ready = placed.where(F.col("transition").isin(into(State.READY))).select(
        "run",
        "queue",
        (F.col("at") if patience is None else F.col("at") + patience).alias("begin"),
        F.coalesce("after_at", F.lit(NEVER >> 1)).alias("end"),
        F.struct("place", "id").alias("what"),
    )
    takes = placed.where(F.col("transition").isin(*TAKES)).select(
        "run", "queue", "at", "transition", "id", "place"
    )
    first = least_open(ready, takes, ("run", "queue"))
    passed = first.where(F.col("what.place") < F.col("place"))
    what = "{queue}: event {at}: {transition} of {id}, but {what.id} is ready"
    return as_findings(passed, kind, what, tags=F.array("id", "what.id"))
