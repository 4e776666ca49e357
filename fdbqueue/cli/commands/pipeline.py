"""``fdbq pipeline …``: jobs on Spark."""

from __future__ import annotations

from ..declarations import Group
from ..pipeline import check, drain, load, replay, report

app = Group(
    name="pipeline",
    help="Jobs on Spark, which needs Java and fdbqueue[spark].",
    no_args_is_help=True,
)
app.command()(load.load)
app.command()(drain.drain)
app.command()(replay.replay)
app.command()(report.report)
app.command()(check.check)
