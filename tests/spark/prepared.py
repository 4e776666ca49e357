"""A Python for Spark's own processes, which have imported what they need before they start.

Spark starts many: one or more for each of its modules, and one for each stream.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache

from tests.forking import Forking, run_module, serve

MODULES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)
"""What Spark runs with ``python -m``."""


@cache
def environment() -> dict[str, str]:
    """With this in its environment, Spark forks its processes of Python from one that is there."""
    forking = Forking(__name__)
    python = str(forking.program("python", sys.executable, "arguments[:1] == ['-m']"))
    return {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


def main(path: str) -> None:
    """Import it all, and fork a process for each command."""
    for module in (*MODULES, "pyspark_fdbqueue"):
        importlib.import_module(module)
    serve(path, run_module)


if __name__ == "__main__":
    main(sys.argv[1])
