"""More checks of runs of tools/chaos: browsers, actions, counters and failures."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .rules import Rules
from .transitions import illegal_transitions, taken_out_of_order, with_neighbors
from .violations import Condition, as_findings, check_rows, ref, text, union

STATES = ("ready", "delayed", "leased", "dead", "done", "expired", "purged")
FAILURES = ("died", "crashed", "stuck")


def cursors(operations: DataFrame, actions: DataFrame, rules: Rules) -> DataFrame:
    """A browser sees every matching message once, in order."""
    region = F.lit(None).cast("string")
    for browser, about in rules.browsers.items():
        region = F.when(F.col("browser") == browser, F.lit(about or None)).otherwise(region)
    seen_by = operations.where(F.col("name") == "seen").select(
        "run", "queue", F.col("about.browser").alias("browser"), "began", "who", "n", "about.rows"
    )
    seen_by = seen_by.withColumn("about", region)
    rows = seen_by.select("*", F.posexplode("rows").alias("at", "row")).select(
        "run",
        "queue",
        "browser",
        "about",
        "began",
        "n",
        "at",
        F.col("row")[0].alias("tag"),
        F.col("row")[1].alias("id"),
        F.col("row")[2].alias("level"),
        F.col("row")[4].alias("region"),
    )
    place = ("began", "n", "at")
    of_level = Window.partitionBy("run", "browser", "level").orderBy(*place)
    of_message = Window.partitionBy("run", "browser", "tag").orderBy(*place)
    seen = rows.select(
        "*",
        F.lag("id").over(of_level).alias("before"),
        (F.row_number().over(of_message) > 1).alias("again"),
    )
    back = F.col("id") <= F.col("before")
    who = "{browser}: {tag}"
    after = "{browser}: {tag} {id} after {before}"
    in_order = check_rows(
        seen,
        [
            Condition("seen twice", back & F.col("again"), after),
            Condition("seen out of order", back & ~F.col("again"), after),
            Condition("seen without a match", F.col("about") != F.col("region"), who),
        ],
        tags=F.array("tag"),
    )
    browsers = seen_by.select("run", "browser", "about").distinct()
    known = seen.select("run", "browser", "tag").distinct().withColumn("known", F.lit(True))
    enqueued = actions.where((F.col("queue") == rules.watched) & (F.col("rank") == 1))
    enqueued = enqueued.where(F.col("enqueue").isNotNull()).select("run", "queue", "tag", "enqueue")
    every = enqueued.join(F.broadcast(browsers), "run").join(
        known, ["run", "browser", "tag"], "full"
    )
    is_known = F.coalesce("known", F.lit(False))
    certain = F.col("enqueue.certain")
    wanted = F.coalesce(F.col("about") == F.col("enqueue.region"), F.lit(True))
    complete = check_rows(
        every.withColumn("queue", F.coalesce("queue", F.lit(rules.watched))),
        [
            Condition("not seen", certain & wanted & ~is_known, "{browser}: {tag} {enqueue.id}"),
            Condition("phantom", (certain == F.lit(False)) & is_known, who),
            Condition("phantom", F.col("enqueue").isNull() & is_known, who),
        ],
        tags=F.array("tag"),
    )
    return union([in_order, complete])


def replayed(operations: DataFrame, actions: DataFrame, rules: Rules) -> DataFrame:
    """In the queues' own actions, transitions are legal and take the first message."""
    pages = operations.where(F.col("name") == "events").select(
        "run", "queue", "began", "n", F.col("about.rows").alias("rows")
    )
    earlier = Window.partitionBy("run", "queue").orderBy("began", "n")
    earlier = earlier.rowsBetween(Window.unboundedPreceding, -1)
    size = F.coalesce(F.sum(F.size("rows")).over(earlier), F.lit(0))
    each = pages.withColumn("offset", size).select(
        "run", "queue", "offset", F.posexplode("rows").alias("at", "row")
    )
    events = each.select(
        "run",
        "queue",
        F.col("row")[0].alias("transition"),
        F.col("row")[1].alias("id"),
        F.col("row")[2].cast("int").alias("attempt"),
        (F.col("offset") + F.col("at")).cast("bigint").alias("at"),
    )
    whole = with_neighbors(events.withColumn("stamp", F.col("at")))
    plain = actions.where((F.col("rank") == 1) & F.col("in_order") & (F.col("takes") > 0))
    ids = plain.select(
        "run", "queue", F.col("taken_id").alias("id"), F.col("taken_id").alias("place")
    )
    exact = whole.where(F.col("queue").isin(*rules.exact)).join(ids, ["run", "queue", "id"])
    return union([illegal_transitions(whole, began_before=F.lit(False)), taken_out_of_order(exact)])


def counters(operations: DataFrame, actions: DataFrame) -> DataFrame:
    """The counters match the history, and the audit is clean."""
    latest = Window.partitionBy("run", "queue").orderBy(F.desc("began"), F.desc("n"))
    finals = operations.where(F.col("name") == "final").select(
        "run", "queue", "who", "n", "about", F.row_number().over(latest).alias("nth")
    )
    finals = finals.where("nth = 1")
    audits = F.concat("about.deviations", "about.unchecked")
    audit = finals.select("*", F.explode(audits).alias("deviation"))
    audited = as_findings(audit, "audit", "{queue}: {deviation}")
    left = finals.select("*", F.explode("about.orphans").alias("kind", "left"))
    orphans = as_findings(left, "orphans", "{queue}: {left} of {kind}")
    return union([audited, orphans, _counted(finals, actions)])


def _counted(finals: DataFrame, actions: DataFrame) -> DataFrame:
    done = F.col("finished") | F.col("effects").isNotNull()
    certain = F.col("enqueue.certain")
    # ``certain`` is null for an enqueue with an unknown outcome.
    maybe = F.col("enqueue").isNotNull() & F.coalesce(certain, F.lit(True))
    numbers = (
        actions.where("rank = 1")
        .groupBy("run", "queue")
        .agg(
            F.count(F.when(certain, 1)).alias("least"),
            F.count(F.when(maybe, 1)).alias("most"),
            F.count(F.when(done, 1)).alias("least_done"),
            F.count(F.when(done | (F.col("perhaps") > 0), 1)).alias("most_done"),
            F.count(F.when(F.col("deaths") > 0, 1)).alias("dead"),
        )
    )
    names = ("least", "most", "least_done", "most_done", "dead")
    joined = finals.join(numbers, ["run", "queue"], "left").fillna(0, list(names))
    depth = {state: F.col("about.depth")[state] for state in ("enqueued", *STATES)}
    total = sum((depth[state] for state in STATES[1:]), depth[STATES[0]])

    def outside(name: str, least: str, most: str) -> Condition:
        wrong = ~depth[name].between(F.col(least), F.col(most))
        template = f"{{queue}}: {name} {{depth}}, {{{least}}} to {{{most}}}"
        return Condition("counter", wrong, text(template, depth=depth[name]))

    tests = [
        outside("enqueued", "least", "most"),
        outside("done", "least_done", "most_done"),
        Condition(
            "counter",
            depth["dead"] != F.col("dead"),
            text("{queue}: dead {depth}, but {dead} are", depth=depth["dead"]),
        ),
        Condition(
            "counter",
            depth["enqueued"] != total,
            text("{queue}: {depth} does not add up", depth=F.to_json("about.depth")),
        ),
    ]
    return check_rows(joined, tests)


def failures(operations: DataFrame) -> DataFrame:
    """Every process ended normally."""
    failed = operations.where(F.col("name").isin(*FAILURES))
    return as_findings(failed, F.col("name"), "{who} {queue} {what}", refs=F.array(ref()))
