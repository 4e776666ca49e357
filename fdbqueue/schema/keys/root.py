"""The keys beside the queues: the catalogue, and the sessions of processes."""

from __future__ import annotations

from ...store.binding import fdb
from .kinds import KindKeys, within
from .once import OnceKeys
from .queue import QueueKeys
from .slots import SLOT_KINDS, SlotKeys

DEFAULT_ROOT = fdb.Subspace(("fdbqueue",))


class RootKeys:
    """All keys of a root.

    name: (queue), the catalogue. once: the records of changes of the catalogue.
    session: (session) -> the process, and its last sign of life.
    session_expiry: (version, session), in the order in which sessions expire.
    session_queue: (session, queue), where the session has, or has had, consumers.
    audited: (versionstamp, n), the lines of the audit log.
    limits: the limits that the queues share, with their slots and lines.
    known: what is remembered of queues by name, see ``catalogue.found``.
    timeout: as of ``OnceKeys``, here and in the queues.
    """

    def __init__(self, root: fdb.Subspace, timeout: float | None = None) -> None:
        self.name: KindKeys[str] = KindKeys(root.pack((0,)), str)
        self._queues = KindKeys[str](root.pack((1,)), str)
        self.once = OnceKeys(root.pack((2,)), timeout)
        self.session: KindKeys[bytes] = KindKeys(root.pack((3,)), bytes)
        self.session_expiry: KindKeys[int, bytes] = KindKeys(root.pack((4,)), int, bytes)
        self.session_queue: KindKeys[bytes, str] = KindKeys(root.pack((5,)), bytes, str)
        self._audit = root.pack((6,))
        self.audited = within(self._audit)
        self.known: dict[str, object] = {}
        self.limits = SlotKeys({kind: root.pack((7, int(kind))) for kind in SLOT_KINDS})

    def new_audit_line(self, n: int) -> bytes:
        """(versionstamp, n), the operand of SET_VERSIONSTAMPED_KEY."""
        stamp = fdb.tuple.Versionstamp()
        return bytes(fdb.tuple.pack_with_versionstamp((stamp, n), self._audit))

    def audit_stamp(self, key: bytes) -> bytes:
        """The stamp of a line: what its key adds to those of the log."""
        return bytes(key[len(self._audit) :])

    def audit_line(self, stamp: bytes) -> bytes:
        """The key of a line."""
        return self._audit + stamp

    def audited_before(self, version: int) -> slice:
        """The lines that were committed before a version."""
        stamp = fdb.tuple.Versionstamp(version.to_bytes(8, "big") + bytes(2))
        return slice(self.audited.start, fdb.tuple.pack((stamp,), self._audit))

    def queue(self, name: str) -> QueueKeys:
        """The keys of one queue."""
        return QueueKeys(self._queues(name), self.once.timeout)
