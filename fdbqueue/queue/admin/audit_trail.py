"""The audit log of a root, as the shell and the pages write and read it."""

from __future__ import annotations

from ...schema import audit_log
from ...schema.keys import RootKeys
from ...schema.records import AuditLine
from ...store.binding import fdb
from ..queue_base import composed


class AuditTrail:
    """What operators did to the queues below a root. timeout: of each operation, in seconds."""

    def __init__(self, db: fdb.Database, root: fdb.Subspace, timeout: float | None = None) -> None:
        self._db, self._keys = db, RootKeys(root, timeout)

    def write(self, line: AuditLine) -> None:
        """Write a line."""
        composed(self._db, self._keys.once, audit_log.write, self._keys, line)

    def begin(self, line: AuditLine, since_ms: int) -> bool:
        """Write the first line of a run; False if it was begun before, since then."""
        terms = self._keys, line, since_ms
        return composed(self._db, self._keys.once, audit_log.begin, *terms, wrote=bool)

    def newest(self, limit: int = audit_log.SEEN, before: bytes | None = None) -> list[AuditLine]:
        """The newest lines first. before: the stamp of the last line of the page before."""
        terms = self._keys, limit, before
        return composed(
            self._db, self._keys.once, audit_log.read_newest, *terms, wrote=lambda _: False
        )
