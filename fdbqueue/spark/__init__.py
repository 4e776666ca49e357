"""The pipeline on Spark: queues as tables and streams, and jobs on top of them.

``register`` makes ``format("fdbqueue")`` known to a session; ``local`` starts a session on this
machine. Importing this module does not need Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import (
    InvalidArgument,
    InvalidInput,
    InvalidSchema,
    JobFailed,
    MissingPackage,
    RowsLost,
    StoreNotShared,
)
from .spark_session import check_java, local, register

if TYPE_CHECKING:
    from ..values.model import Plan as Plan
    from ..values.model import PlanConsumer as PlanConsumer
    from .checks.queues import check as check
    from .checks.violations import Verdict as Verdict
    from .checks.violations import Violation as Violation
    from .jobs.drain import Drained as Drained
    from .jobs.drain import drain as drain
    from .jobs.load import Loaded as Loaded
    from .jobs.load import load as load
    from .jobs.queries import foreach_batch as foreach_batch
    from .jobs.queries import retire as retire
    from .jobs.replay import Replayed as Replayed
    from .jobs.replay import replay as replay
    from .jobs.steps import Step as Step
    from .reports.report import Report as Report
    from .reports.report import report as report
    from .stores import options as options

_NAMES = {
    ".values.model": "Plan PlanConsumer",
    "checks.queues": "check",
    "checks.violations": "Verdict Violation",
    "jobs.drain": "Drained drain",
    "jobs.load": "Loaded load",
    "jobs.queries": "foreach_batch retire",
    "jobs.replay": "Replayed replay",
    "jobs.steps": "Step",
    "reports.report": "Report report",
    "stores": "options",
}
"""Names that are imported on first use, by their modules: most of these need Spark."""
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [  # noqa: PLE0604 - strings, all of them
    *_WHERE,
    "InvalidArgument",
    "InvalidInput",
    "InvalidSchema",
    "JobFailed",
    "MissingPackage",
    "RowsLost",
    "StoreNotShared",
    "check_java",
    "local",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    except ImportError as error:
        raise MissingPackage(
            purpose=f"fdbqueue.spark.{name}", package=error.name or str(error), extra="spark"
        ) from None
