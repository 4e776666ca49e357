"""``fdbq pipeline …``: Spark jobs on queues."""

from typer import Typer

from .check import check
from .drain import drain
from .load import load
from .replay import replay
from .report import report

app = Typer(
    name="pipeline",
    help="Spark jobs on queues; needs Java and fdbqueue[spark].",
    no_args_is_help=True,
)
for job in (load, drain, replay, report, check):
    app.command()(job)
