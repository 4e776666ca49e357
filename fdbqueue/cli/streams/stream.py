"""``fdbq stream …``: Spark jobs on queues, and what streams have left."""

from ..commands import Group
from . import stream_list
from .check import check
from .drain import drain
from .load import load
from .report import report

app = Group(
    "stream",
    "Spark jobs on queues, which need Java and fdbqueue[spark], and what streams have left.",
)
app.command("list")(stream_list.list_)
for command in (stream_list.finish, stream_list.forget, load, drain, report, check):
    app.command()(command)
