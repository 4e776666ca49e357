"""More checks of runs of tools/chaos: browsers, transitions, counters, limits and failures."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ...values.states import TRANSITIONS, State
from ..jobs.events import named, state_of, with_neighbors
from .operations import Rules
from .order import QUEUE, taken_out_of_order
from .violations import THIS, as_findings, check_rows, union


def findings(actions: DataFrame, operations: DataFrame, rules: Rules) -> DataFrame:
    """All findings about browsers, transitions, counters, limits of keys and failures."""
    beyond = operations.where("name = 'limit'")
    failed = operations.where("name in ('died', 'crashed', 'stuck')")
    return union(
        [
            *_browsed(operations, actions, rules),
            *_replayed(operations, actions, rules),
            *_counters(operations, actions),
            as_findings(beyond, "limits", "{queue} {what}", refs=THIS),
            as_findings(failed, F.col("name"), "{who} {queue} {what}", refs=THIS),
        ]
    )


def _browsed(operations: DataFrame, actions: DataFrame, rules: Rules) -> list[DataFrame]:
    """A browser sees every matching message once, in order."""
    regions = F.create_map(*(F.lit(each) for pair in rules.browsers.items() for each in pair))
    wanted = F.element_at(regions.cast("map<string, string>"), F.col("about.browser"))
    seen_by = operations.where("name = 'seen'").select(
        *QUEUE, "about.browser", F.nullif(wanted, F.lit("")).alias("wanted"), "began", "n", "about"
    )
    rows = seen_by.selectExpr("*", "posexplode(about.rows) as (at, row)").selectExpr(
        *(*QUEUE, "browser", "wanted", "began", "n", "at"),
        *("row[0] as tag", "row[1] as id", "row[2] as level", "row[4] as region"),
    )
    of_level = Window.partitionBy("run", "browser", "level").orderBy("began", "n", "at")
    of_message = Window.partitionBy("run", "browser", "tag").orderBy("began", "n", "at")
    seen = rows.select(
        "*",
        F.lag("id").over(of_level).alias("before"),
        F.row_number().over(of_message).alias("times"),
    )
    after = "{browser}: {tag} {id} after {before}"
    in_order = check_rows(
        seen,
        [
            ("seen twice", "id <= before and times > 1", after),
            ("seen out of order", "id <= before and times = 1", after),
            ("seen without a match", "wanted <> region", "{browser}: {tag}"),
        ],
        tags="array(tag)",
    )
    browsers = F.broadcast(seen_by.select("run", "browser", "wanted").distinct())
    known = seen.selectExpr("run", "browser", "tag", "true as known").distinct()
    watched = actions.where(F.col("queue") == rules.watched)
    every = watched.where("rank = 1 and enqueue is not null").select("run", "tag", "enqueue")
    every = every.join(browsers, "run").join(known, ["run", "browser", "tag"], "full")
    complete = check_rows(
        every.withColumn("queue", F.lit(rules.watched)),
        [
            (
                "not seen",
                "enqueue.certain and (wanted = enqueue.region) is not false and known is null",
                "{browser}: {tag} {enqueue.id}",
            ),
            ("phantom", "not enqueue.certain and known", "{browser}: {tag}"),
            ("phantom", "enqueue is null and known", "{browser}: {tag}"),
        ],
        tags="array(tag)",
    )
    return [in_order, complete]


def _replayed(operations: DataFrame, actions: DataFrame, rules: Rules) -> list[DataFrame]:
    """In the queues' own actions, transitions are legal and take the first message."""
    earlier = Window.partitionBy(QUEUE).orderBy("began", "n")
    earlier = earlier.rowsBetween(Window.unboundedPreceding, -1)
    pages = operations.where("name = 'events'").select(*QUEUE, "began", "n", "about.rows")
    pages = pages.withColumn("earlier", F.sum(F.size("rows")).over(earlier))
    each = pages.selectExpr(*QUEUE, "earlier", "posexplode(rows) as (at, row)")
    events = each.selectExpr(
        *(*QUEUE, "row[0] as transition", "row[1] as id", "int(row[2]) as attempt"),
        "bigint(coalesce(earlier, 0) + at) as at",
    )
    whole = with_neighbors(events, [*QUEUE, "id"], "at")
    states = whole.withColumns(
        {
            "state": state_of(F.col("before")),
            "source": state_of(F.col("transition"), source=True),
            "known": F.col("transition").isin(named(TRANSITIONS)),
        }
    )
    what = "{queue}: event {at}: {transition} of {id}, which is {state}"
    test = ("illegal transition", "not known or not state <=> source", what)
    taken = actions.where("rank = 1 and in_order and takes > 0")
    ids = taken.selectExpr(*QUEUE, "taken_id as id", "taken_id as place")
    exact = whole.where(F.col("queue").isin(*rules.exact)).join(ids, [*QUEUE, "id"])
    return [
        check_rows(states, [test], tags="array(id)"),
        taken_out_of_order(exact, "not the first"),
    ]


def _counters(operations: DataFrame, actions: DataFrame) -> list[DataFrame]:
    """The counters match the history, and the audit is clean."""
    latest = Window.partitionBy(QUEUE).orderBy(F.desc("began"), F.desc("n"))
    finals = operations.where("name = 'final'").withColumn("nth", F.row_number().over(latest))
    finals = finals.where("nth = 1").select(*QUEUE, "about")
    deviations = "explode(concat(about.deviations, about.unchecked)) as deviation"
    audited = finals.selectExpr(*QUEUE, deviations)
    left = finals.selectExpr(*QUEUE, "explode(about.orphans) as (kind, left)")
    return [
        as_findings(audited, "audit", "{queue}: {deviation}"),
        as_findings(left, "orphans", "{queue}: {left} of {kind}"),
        _counted(finals, actions),
    ]


def _counted(finals: DataFrame, actions: DataFrame) -> DataFrame:
    done = "finished or effects is not null"
    numbers = {
        "least": "enqueue.certain",
        # Null for an enqueue with an unknown outcome.
        "most": "enqueue is not null and enqueue.certain is not false",
        "least_done": done,
        "most_done": f"{done} or perhaps > 0",
        "are_dead": "deaths > 0",
    }
    counts = [F.expr(f"count_if({test})").alias(name) for name, test in numbers.items()]
    counted = actions.where("rank = 1").groupBy(QUEUE).agg(*counts)
    joined = finals.join(counted, QUEUE, "left").fillna(0, list(numbers))
    joined = joined.withColumn("depth", F.col("about.depth"))
    total = " + ".join(f"depth['{state.value}']" for state in State)
    wrong = {
        "depth['enqueued'] not between least and most": (
            "enqueued {depth['enqueued']}, {least} to {most}"
        ),
        "depth['done'] not between least_done and most_done": (
            "done {depth['done']}, {least_done} to {most_done}"
        ),
        "depth['dead'] <> are_dead": "dead {depth['dead']}, but {are_dead} are",
        f"depth['enqueued'] <> {total}": "{to_json(depth)} does not add up",
    }
    tests = [("counter", test, f"{{queue}}: {detail}") for test, detail in wrong.items()]
    return check_rows(joined, tests)
