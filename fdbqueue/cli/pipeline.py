"""``fdbq pipeline …``: jobs on Spark."""

from __future__ import annotations

from . import pipeline_check, pipeline_drain, pipeline_load, pipeline_replay, pipeline_report
from .declaring import Group

app = Group(
    name="pipeline",
    help="Jobs on Spark, which needs Java and fdbqueue[spark].",
    no_args_is_help=True,
)
app.command()(pipeline_load.load)
app.command()(pipeline_drain.drain)
app.command()(pipeline_replay.replay)
app.command()(pipeline_report.report)
app.command()(pipeline_check.check)
