"""The data pipeline on Spark: queues as tables and streams, and jobs on top of them.

``register`` makes ``format("fdbqueue")`` known to a session; ``local`` gives a session on this
machine, where there is none yet. Importing this needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import (
    BrowsedLost,
    CheckpointMismatch,
    InvalidRow,
    InvalidSchema,
    JobFailed,
    MissingJava,
    MissingPackage,
    StoreNotShared,
)
from .registration import register
from .session import check_java, local

if TYPE_CHECKING:
    from ..queue.bulk.sinks import Sink
    from ..queue.queue import Queue
    from ..store.binding import fdb
    from ..values.model import Plan, PlanConsumer
    from .checks.job import check_runs
    from .checks.queues import check
    from .checks.violations import Verdict, Violation
    from .jobs.drain import Drained, drain
    from .jobs.load import Loaded, load
    from .jobs.replay import Replayed, replay
    from .jobs.steps import Step
    from .reports.document import Report
    from .reports.report import report

__all__ = [
    "BrowsedLost",
    "CheckpointMismatch",
    "Drained",
    "InvalidRow",
    "InvalidSchema",
    "JobFailed",
    "Loaded",
    "MissingJava",
    "Plan",
    "PlanConsumer",
    "Replayed",
    "Report",
    "Sink",
    "Step",
    "StoreNotShared",
    "Verdict",
    "Violation",
    "check",
    "check_java",
    "check_runs",
    "drain",
    "load",
    "local",
    "options",
    "register",
    "replay",
    "report",
]

_JOBS = {
    "Drained": "jobs.drain",
    "Loaded": "jobs.load",
    "Plan": ".values.model",
    "PlanConsumer": ".values.model",
    "Replayed": "jobs.replay",
    "Report": "reports.document",
    "Sink": ".queue.bulk.sinks",
    "Step": "jobs.steps",
    "Verdict": "checks.violations",
    "Violation": "checks.violations",
    "check": "checks.queues",
    "check_runs": "checks.job",
    "drain": "jobs.drain",
    "load": "jobs.load",
    "replay": "jobs.replay",
    "report": "reports.report",
}
"""What is imported when it is named, most of it for the packages that it needs."""


def __getattr__(name: str) -> Any:
    if name not in _JOBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_JOBS[name]}", __name__), name)
    except ImportError as error:
        raise MissingPackage(
            purpose=f"fdbqueue.spark.{name}", package=error.name or str(error), extra="spark"
        ) from None


def options(db: fdb.Database, queue: Queue) -> dict[str, str]:
    """The options of the data source that name a queue in any store and subspace.

    For ``spark.read.format("fdbqueue").options(**options(db, queue))``, where ``queue`` alone does
    not say it: another store than this process uses by itself, or another subspace of queues.
    """
    from .stores import options_of

    return options_of(db, queue)
