"""Chooses the store, before anything is imported that loads it: a temporary one by default."""

import os
import shutil
import tempfile

temporary = None
if not os.environ.get("FDBQUEUE_STORE") and not os.environ.get("FDB_CLUSTER_FILE"):
    temporary = tempfile.mkdtemp(prefix="fdbqueue-bench-")
    os.environ["FDBQUEUE_STORE"] = f"embedded:{temporary}/bench.fdbq"

from benchmarks.cli import app  # noqa: E402

try:
    app(prog_name="tools/bench")
finally:
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
