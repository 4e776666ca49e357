"""What is known of a transaction while it runs, and of the attempts at it before.

The bindings try a transaction again with the same object, which then reads at another version: so
an attempt is known by both, in the caller's own retry loop as in ours. What is known of it goes
with the object.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from ...errors import OwnWritesUnseen
from ...schema.keys import QueueKeys
from ...store.binding import fdb


@dataclass(slots=True)
class Attempt:
    """One attempt at a transaction.

    version: at which it reads. retries: how often it was tried before. before: how many versions
    passed since the attempt before. taken: the READY keys that it has removed. given: the last
    index that it gave, by the key of TAIL of the level.
    """

    version: int
    retries: int = 0
    before: int = 0
    taken: set[bytes] = field(default_factory=set)
    given: dict[bytes, int] = field(default_factory=dict)

    def take(self, tr: fdb.Transaction, keys: QueueKeys, key: bytes) -> None:
        """A ready message is removed. Raises ``OwnWritesUnseen``."""
        if key in self.taken:
            self._doubt(tr, keys)
        self.taken.add(key)

    def put_back(self, key: bytes) -> None:
        """A message is ready again where it stood."""
        self.taken.discard(key)

    def give(self, tr: fdb.Transaction, keys: QueueKeys, level: int, begin: int, end: int) -> None:
        """Indexes are given. Raises ``OwnWritesUnseen``."""
        if begin <= self.given.get(keys.tail(level), 0):
            self._doubt(tr, keys)
        self.given[keys.tail(level)] = end - 1

    def _doubt(self, tr: fdb.Transaction, keys: QueueKeys) -> None:
        """What was done is not there: either the transaction does not see its own writes, or it is
        a new attempt that happens to read at the same version."""
        probe = keys.fence(0, 0)  # which nobody reads
        tr[probe] = b"?"
        seen = tr.snapshot.get(probe).present() and tr.get(probe).present()
        del tr[probe]
        if not seen:
            raise OwnWritesUnseen
        self.retries += 1
        self.taken.clear()
        self.given.clear()


_attempts: weakref.WeakKeyDictionary[fdb.Transaction, Attempt] = weakref.WeakKeyDictionary()


def of(tr: fdb.Transaction) -> Attempt:
    """The attempt that a transaction is at. No round trip after a read."""
    version = int(tr.get_read_version().wait())
    known = _attempts.get(tr)
    if known is None:
        known = _attempts[tr] = Attempt(version)
    elif known.version != version:
        known = _attempts[tr] = Attempt(version, known.retries + 1, version - known.version)
    return known
