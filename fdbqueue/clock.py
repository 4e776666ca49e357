"""The clocks that the queue reads: the database's version, and the wall."""

from __future__ import annotations

import time

from . import timekeeper
from .binding import fdb

VERSIONS_PER_SECOND = 1_000_000
"""FoundationDB's versions advance by about this many a second while the cluster is well."""


class Clock:
    """The clocks of this machine and its database; tests replace them.

    Leases, delays and times to live go by ``now_ms``, on which all machines agree to a minute,
    however wrong a machine's own clock is. How long something takes within a process is measured
    by ``time.monotonic``.
    """

    def wall_ms(self) -> int:
        """This machine's wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def version(self, tr: fdb.Transaction) -> int:
        """The transaction's read version; the first read of a transaction fetches it anyway."""
        return int(tr.get_read_version().wait())

    def now_ms(self, tr: fdb.Transaction | fdb.Database) -> int:
        """The time in milliseconds since the epoch, for what other machines will judge.

        That is this machine's wall clock, as long as it is within a minute of what the database
        says (a cluster's time keeper), else the time by the database. A process asks the database
        every half minute, in a transaction of its own. One that says nothing, because its time
        keeper is disabled or the transaction is a tenant's, leaves the wall clock to be believed.
        """
        if not isinstance(tr, fdb.Transaction):
            if type(self).version is Clock.version:
                return timekeeper.now_ms(tr, self.wall_ms())
            tr = tr.create_transaction()
        ahead = 0
        if type(self).version is not Clock.version:
            # A clock that moves the versions moves the time of the database with them.
            ahead = (self.version(tr) - Clock.version(self, tr)) // 1000
        return timekeeper.now_ms(tr.db, self.wall_ms(), ahead)


SYSTEM_CLOCK = Clock()
