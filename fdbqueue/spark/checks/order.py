"""Checks of order in real time.

As in tools/chaosrun/ordering.py: a message whose enqueue returned before a call began, and that
was first asked for after the call ended, was in the queue during the call. This holds for messages
at their first delivery, and while no other call can have held them without telling.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...values.states import State
from ..jobs.events import TAKES, into
from .interval_joins import least_open, open_at, present_throughout
from .message_operations import MESSAGE, NEVER
from .operations import CALL, SUCCEEDED, TAKEN_ROWS, Rules
from .violations import THIS, as_findings, check_rows, union

QUEUE = ["run", "queue"]
GROUP = [*QUEUE, "selected"]
"""A queue, and the selection in the queue with selectors."""
_PRESENT = (
    "rank = 1 and enqueue.certain and in_order and enqueue.ended is not null and since is not null"
)
"""Messages that were certainly in their queue from the end of their enqueue to ``since``."""


def findings(actions: DataFrame, operations: DataFrame, rules: Rules) -> DataFrame:
    """All findings about the order of messages."""
    # Spark computes it once: else the plan of each check would include its whole computation.
    uncertain = _uncertain_calls(operations, rules).localCheckpoint(eager=False)
    strict = F.col("queue").isin(*rules.strict)
    filtered = F.col("queue") == rules.filtered
    taken = actions.where("action = 'taken' and in_order").where(
        strict & ~(F.col("drains") & filtered)
    )
    taken = taken.join(uncertain, CALL, "left_anti")
    return union(
        [
            _overtaken(actions, taken, operations, uncertain, rules),
            _enqueues_out_of_order(taken.where(~filtered)),
            _deliveries_out_of_order(operations.where(strict), actions),
            _behind_the_window(actions, operations, uncertain, rules),
        ]
    )


def _selected(region: str, rules: Rules) -> Column:
    chosen = F.when(F.col("queue") == rules.filtered, F.col(region))
    return F.coalesce(chosen, F.lit(""))


def _uncertain_calls(operations: DataFrame, rules: Rules) -> DataFrame:
    """Calls (``CALL``) during which another call may have held messages without telling.

    A call that fails after it got messages, or whose process is killed, returns them as if it
    never had them. While it lasts, and for a lease after a kill, any message of its queue may be
    out of the queue, and taking the next one is correct.
    """
    killed = operations.where("name = 'killed'").selectExpr(
        "run", "about.process", f"began + {rules.lease_ns} as at"
    )
    silent = operations.where(f"name = 'receive' and not {SUCCEEDED}")
    process = F.regexp_replace("who", "[.][^.]*$", "")
    held = silent.withColumn("process", process).join(killed, ["run", "process"], "left")
    return _touched(
        operations.where("name in ('receive', 'dequeue')"),
        held.withColumn("ended", F.coalesce("ended", "at")),
    )


def _touched(calls: DataFrame, spans: DataFrame) -> DataFrame:
    """The calls that overlap with a span, ends included."""
    end = f"coalesce(ended, {NEVER - 1}) + 1 as begin"
    asked = calls.selectExpr(*CALL, "queue", end, "began - 1 as end")
    until = f"coalesce(ended, {NEVER}) as until"
    present = spans.selectExpr(*QUEUE, "began as since", until, "struct(who) as what")
    return present_throughout(present, asked, QUEUE).select(CALL)


def _overtaken(
    actions: DataFrame,
    taken: DataFrame,
    operations: DataFrame,
    uncertain: DataFrame,
    rules: Rules,
) -> DataFrame:
    """Calls that got a message, or nothing, while a better message was in the queue."""
    present = actions.where(_PRESENT).withColumn("selected", _selected("enqueue.region", rules))
    present = present.selectExpr(
        *GROUP, "enqueue.level", "enqueue.ended as since", "since as until", "struct(tag) as what"
    )
    asked = union(
        [
            *(
                taken.withColumn("selected", _selected("enqueue.region", rules)).selectExpr(
                    *(*GROUP, "who", "n", "tag", f"'{kind}' as kind"),
                    *("enqueue.level as own", f"{begin} as begin", "ended as end"),
                )
                for kind, begin in (("fifo", "enqueue.began"), ("priority", "began"))
            ),
            _empties(operations, uncertain, rules),
        ]
    )
    # Ask every relevant level that had messages.
    levels = present.select(*GROUP, "level").distinct()
    about = "if(kind = 'fifo', level = own, level < own)"
    asked = asked.join(F.broadcast(levels), GROUP).where(about)
    answered = present_throughout(present, asked, [*GROUP, "level"])
    before = "concat(tag, ' was taken before ', what.tag)"
    return as_findings(
        answered,
        F.col("kind"),
        f"{{queue}}: {{coalesce({before}, concat(what.tag, ' was there'))}}",
        tags="array_compact(array(what.tag, tag))",
        refs=THIS,
    )


def _empties(operations: DataFrame, uncertain: DataFrame, rules: Rules) -> DataFrame:
    """Calls that found their queue empty, unless it was paused."""
    empties = operations.where(
        "name in ('receive', 'dequeue') and certain and ended is not null "
        f"and coalesce(size({TAKEN_ROWS}), 0) < 1"
    )
    paused = _touched(empties, operations.where("name = 'paused'"))
    asked = empties.join(paused.union(uncertain), CALL, "left_anti")
    return asked.withColumn("selected", _selected("about.region", rules)).selectExpr(
        *(*GROUP, "who", "n", "'false empty' as kind"),
        *(f"{(1 << 31) - 1} as own", "began as begin", "ended as end"),
    )


def _enqueues_out_of_order(taken: DataFrame) -> DataFrame:
    """The messages of one enqueue are taken in order."""
    batch = Window.partitionBy("run", "enqueue.who", "enqueue.n", "enqueue.level")
    ordered = batch.orderBy("enqueue.place", "began", "who", "n")
    previous = F.lag(F.struct("tag", "since", "enqueue.place")).over(ordered)
    pairs = taken.where(f"since is not null and ended < {NEVER}").withColumn("before", previous)
    late = "before.place <> enqueue.place and before.since > ended"
    test = ("fifo", late, "{tag} before {before.tag}")
    return check_rows(pairs, [test], tags="array(before.tag, tag)", refs=THIS)


def _deliveries_out_of_order(operations: DataFrame, actions: DataFrame) -> DataFrame:
    """The messages of one delivery are in order."""
    received = operations.where("name = 'receive' and ended is not null")
    rows = received.selectExpr(
        *CALL, "queue", "posexplode(from_json(result, 'array<array<string>>')) as (at, row)"
    )
    each = rows.selectExpr(*CALL, "queue", "at", "row[0] as tag", "row[1] as id")
    known = each.join(actions.where("rank = 1 and in_order").select(MESSAGE), MESSAGE)
    back = F.lag("id").over(Window.partitionBy(CALL).orderBy("at")) > F.col("id")
    batches = known.withColumn("back", back).groupBy(*CALL, "queue")
    delivered = batches.agg(F.max("back").alias("back"), F.collect_list("tag").alias("tags"))
    test = ("batch out of order", "back", "{queue}: {array_join(tags, ', ')}")
    return check_rows(delivered, [test], tags="tags", refs=THIS)


# -- relaxed queues ---------------------------------------------------------------------------


def _behind_the_window(
    actions: DataFrame, operations: DataFrame, uncertain: DataFrame, rules: Rules
) -> DataFrame:
    """A receive from a relaxed queue gets one of the first messages, as many as the window.

    As in tools/chaosrun/window.py: at some instant of the call, fewer messages than the window
    were before the one taken, so fewer than that were before it during the whole call.
    """
    relaxed = actions.where(F.col("queue").isin(*rules.relaxed))
    present = relaxed.where(_PRESENT).selectExpr(
        *(*QUEUE, "enqueue.ended as begin", "since as end"),
        "struct(enqueue.id, tag, since as until) as what",
    )
    taken = relaxed.where(f"action = 'taken' and in_order and ended < {NEVER}").join(
        uncertain, CALL, "left_anti"
    )
    call = ["who", "n", "tag", "name", "limit", "ended"]
    there = open_at(present, taken.selectExpr(*QUEUE, "began as at", "id", *call), QUEUE)
    before = there.where("what.until > ended and what.id < id").groupBy(*QUEUE, *call, "at")
    counted = before.agg(F.count("*").alias("before"), F.min("what.tag").alias("one"))
    asked = counted.join(F.broadcast(_changes(operations)), QUEUE, "left")
    detail = "{queue}: {tag} was taken before {before} others of {room - 1}"
    behind = _with_room(asked, rules).where("before >= room")
    return as_findings(behind, "behind the window", detail, tags="array(tag, one)", refs=THIS)


def _changes(operations: DataFrame) -> DataFrame:
    """The changes of each queue's window, in an array."""
    change = "struct(began, if(certain, ended, null) as ended, about.window as size) as change"
    changed = operations.where("name = 'options' and about.window is not null")
    changes = changed.selectExpr(*QUEUE, change).groupBy(QUEUE)
    return changes.agg(F.collect_list("change").alias("changes"))


def _with_room(calls: DataFrame, rules: Rules) -> DataFrame:
    """Adds room: the largest window that a call may have taken from."""
    sizes = F.create_map(*(F.lit(each) for pair in rules.relaxed.items() for each in pair))
    initial = F.element_at(sizes.cast("map<string, int>"), F.col("queue"))
    known = calls.withColumn("initial", initial).selectExpr(
        "*", "array_max(filter(changes, x -> x.ended < at)) as latest"
    )
    later = "filter(changes, x -> x.began <= ended and (x.began > latest.began) is not false)"
    largest = "greatest(coalesce(latest.size, initial), coalesce(limit, 1), array_max(later.size))"
    return known.selectExpr("*", f"{later} as later").selectExpr(
        "*", f"if(name = 'dequeue', 1, {largest}) as room"
    )


# -- delivery history -------------------------------------------------------------------------


def taken_out_of_order(events: DataFrame, kind: str, patience: int = 0) -> DataFrame:
    """Messages taken while another one with a better place was ready.

    events: see ``with_neighbors``, with a column place, which gives the order, or null. patience:
    how long the other message must have been ready.
    """
    placed = events.where("place is not null")
    ready = placed.where(F.col("transition").isin(into(State.READY))).selectExpr(
        *(*QUEUE, f"at + {patience} as begin", f"coalesce(after_at, {NEVER >> 1}) as end"),
        "struct(place, id) as what",
    )
    takes = placed.where(F.col("transition").isin(*TAKES))
    takes = takes.select(*QUEUE, "at", "transition", "id", "place")
    passed = least_open(ready, takes, QUEUE).where("what.place < place")
    detail = "{queue}: event {at}: {transition} of {id}, but {what.id} is ready"
    return as_findings(passed, kind, detail, tags="array(id, what.id)")
