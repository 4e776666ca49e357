"""A queue's own delivery history: every transition must start where the message is."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...values.states import TRANSITIONS, State
from ..jobs.events import TAKES, into, state_of
from .interval_joins import least_open
from .message_operations import NEVER
from .violations import Condition, found, judged, text

NAMES = [edge.name for edge in TRANSITIONS]


def followed(events: DataFrame) -> DataFrame:
    """Events of messages with the one before and the one after of the same message.

    events: run, queue, id, transition, attempt, stamp (their order), at (bigint, a moment in
    that order), and any others. Adds before, before_attempt and after_at; null where there is
    none. One shuffle.
    """
    message = Window.partitionBy("run", "queue", "id").orderBy("stamp")
    return events.select(
        "*",
        F.lag("transition").over(message).alias("before"),
        F.lag("attempt").over(message).alias("before_attempt"),
        F.lead("at").over(message).alias("after_at"),
    )


def illegal(followed: DataFrame, *, began_before: Column) -> DataFrame:
    """Transitions from a state in which the message is not.

    began_before: whether a message may have had a life before the history began.
    """
    state = state_of(F.col("before"))
    source = state_of(F.col("transition"), source=True)
    unknown = F.col("before").isNull() & began_before
    wrong = ~F.col("transition").isin(NAMES) | ~(state.eqNullSafe(source) | unknown)
    what = text(
        F.col("queue"),
        ": event ",
        F.col("at"),
        ": ",
        F.col("transition"),
        " of ",
        F.col("id"),
        ", which is ",
        state,
    )
    return judged(followed, [Condition("illegal transition", wrong, what)], tags=F.array("id"))


def not_the_first(
    followed: DataFrame, kind: str = "not the first", patience: Column | None = None
) -> DataFrame:
    """Messages that were taken while another one, whose place is before, was ready.

    followed: with a column place, by which messages are in order; null where that is not known.
    patience: for how long the other one must have been ready before.
    """
    placed = followed.where(F.col("place").isNotNull())
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
    what = text(
        F.col("queue"),
        ": event ",
        F.col("at"),
        ": ",
        F.col("transition"),
        " of ",
        F.col("id"),
        ", but ",
        F.col("what.id"),
        " is ready",
    )
    return found(passed, kind, what, tags=F.array("id", "what.id"))
