"""What the store reports about itself, for doctor and top."""

from __future__ import annotations

import json
import time
from typing import Any

import fdbqueue

STATUS = b"\xff\xff/status/json"
READ_MS = 2_000


def status(db: fdbqueue.fdb.Database) -> dict[str, Any]:
    """The status of a cluster; empty if there is none."""
    tr = db.create_transaction()
    try:
        tr.options.set_timeout(READ_MS)
        value = tr.get(STATUS).value
        found = json.loads(value) if value is not None else {}
    except (fdbqueue.fdb.FDBError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def version(db: fdbqueue.fdb.Database) -> tuple[int, float]:
    """A current version of the database, and this machine's clock at that time, in seconds.

    It is a commit version, because the read versions of an idle cluster are old.
    """
    from fdbqueue.schema.keys import DEFAULT_ROOT

    while True:
        tr = db.create_transaction()
        try:
            # A write conflict without a write forces a commit that the store has to decide.
            tr.add_write_conflict_key(DEFAULT_ROOT.pack(("latency probe",)))
            before = time.time()
            tr.commit().wait()
            return tr.get_committed_version(), (before + time.time()) / 2
        except fdbqueue.fdb.FDBError as error:
            tr.on_error(error).wait()


def skew(db: fdbqueue.fdb.Database) -> float | None:
    """Seconds that this machine's clock is ahead of the cluster's; None if it has none."""
    from fdbqueue.store.clocks import TIME_KEEPER, parse_note

    tr = db.create_transaction()
    try:
        tr.options.set_read_system_keys()
        tr.options.set_timeout(READ_MS)
        rows = tr.get_range(TIME_KEEPER, TIME_KEEPER + b"\xff", limit=1, reverse=True).to_list()
    except fdbqueue.fdb.FDBError:
        return None
    if not rows:
        return None
    noted_at, noted = parse_note(rows[0])
    now, wall = version(db)
    return wall - (noted_at + (now - noted) / 1_000_000)
