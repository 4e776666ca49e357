"""The audit log: what operators did to the queues of a root, kept for 400 days."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND
from . import once
from .keys import RootKeys
from .records import AuditLine

KEPT_SECONDS = 400 * 24 * 3600
SEEN = 1_000
"""Among how many of the newest lines a run is looked for."""

# Orders the lines of one transaction.
_lines = itertools.count()


@transactional
def write(tr: fdb.Transaction, root: RootKeys, line: AuditLine) -> None:
    """Write a line, and remove those that are too old. Writes blindly."""
    oldest = once.version(tr) - KEPT_SECONDS * VERSIONS_PER_SECOND
    old = root.audit.until(max(0, oldest))
    tr.clear_range(old.start, old.stop)
    tr.set_versionstamped_key(root.audit.new(next(_lines)), line.pack())


@transactional
def begin(tr: fdb.Transaction, root: RootKeys, line: AuditLine, since_ms: int) -> bool:
    """Write the first line of a run; False if there is one, or may be one since then that is not
    among the newest ``SEEN``. Conflicts with every other line."""
    mode = fdb.StreamingMode.want_all
    every = root.audit.rows
    newest = tr.get_range(every.start, every.stop, limit=SEEN, reverse=True, streaming_mode=mode)
    lines = [AuditLine.unpack(kv.value) for kv in newest]
    if any(each.run == line.run for each in lines):
        return False
    if len(lines) == SEEN and lines[-1].at_ms >= since_ms:
        return False
    write(tr, root, line)
    return True


@transactional
def read_newest(
    tr: fdb.Transaction, root: RootKeys, limit: int, before: bytes | None = None
) -> list[AuditLine]:
    """The newest lines first. A snapshot read, no conflicts.

    before: the stamp of the last line of the previous page.
    """
    every = root.audit.rows
    end = every.stop if before is None else root.audit.prefix + before
    mode = fdb.StreamingMode.want_all
    found = tr.snapshot.get_range(every.start, end, limit=limit, reverse=True, streaming_mode=mode)
    stamp = root.audit.stamp
    return [replace(AuditLine.unpack(kv.value), stamp=stamp(kv.key)) for kv in found]
