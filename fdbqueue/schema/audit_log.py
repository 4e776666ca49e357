"""The audit log: what operators did to the queues of a root, kept for 400 days."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND
from . import once
from .codec.audit_log import AuditLine
from .keys import RootKeys

KEPT_SECONDS = 400 * 24 * 3600
SEEN = 1_000
"""Among how many of the newest lines a run is looked for."""

# Orders the lines of one transaction.
_lines = itertools.count()


@transactional
def write(tr: fdb.Transaction, root: RootKeys, line: AuditLine) -> None:
    """Write a line, and remove those that are too old. Writes blindly."""
    oldest = once.version(tr) - KEPT_SECONDS * VERSIONS_PER_SECOND
    old = root.audited_before(max(0, oldest))
    tr.clear_range(old.start, old.stop)
    tr.set_versionstamped_key(root.new_audit_line(next(_lines)), line.pack())


@transactional
def begin(tr: fdb.Transaction, root: RootKeys, line: AuditLine, since_ms: int) -> bool:
    """Write the first line of a run; False if there is one, or may be one since then that is not
    among the newest ``SEEN``. Conflicts with every other line."""
    mode = fdb.StreamingMode.want_all
    every = root.audited
    newest = tr.get_range(every.start, every.stop, limit=SEEN, reverse=True, streaming_mode=mode)
    lines = [AuditLine.unpack(kv.value) for kv in newest]
    if any(each.run == line.run for each in lines):
        return False
    if len(lines) == SEEN and lines[-1].at_ms >= since_ms:
        return False
    write(tr, root, line)
    return True


@transactional
def read(
    tr: fdb.Transaction, root: RootKeys, limit: int, before: bytes | None = None
) -> list[AuditLine]:
    """The newest lines first. A snapshot read, no conflicts.

    before: the stamp of the last line of the previous page.
    """
    every = root.audited
    end = every.stop if before is None else root.audit_line(before)
    mode = fdb.StreamingMode.want_all
    found = tr.snapshot.get_range(every.start, end, limit=limit, reverse=True, streaming_mode=mode)
    return [replace(AuditLine.unpack(kv.value), stamp=root.audit_stamp(kv.key)) for kv in found]
