"""What a cluster says of itself."""

from __future__ import annotations

import json
from typing import Any

from .binding import fdb

STATUS = b"\xff\xff/status/json"
READ_MS = 2_000


def cluster_status(db: fdb.Database) -> dict[str, Any]:
    """The status of a cluster; empty if there is none."""
    tr = db.create_transaction()
    try:
        tr.options.set_timeout(READ_MS)
        value = tr.get(STATUS).value
        found = json.loads(value) if value is not None else {}
    except (fdb.FDBError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def conflicts(db: fdb.Database) -> float | None:
    """Transactions of the whole cluster that conflict, per second; None where nobody counts."""
    found: Any = cluster_status(db)
    for name in ("cluster", "workload", "transactions", "conflicted"):
        found = found.get(name, {})
    return found.get("hz") if isinstance(found, dict) else None
