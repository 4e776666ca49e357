"""The two clocks that the queue reads: the database's version and the wall."""

from __future__ import annotations

import time

from .binding import fdb

VERSIONS_PER_SECOND = 1_000_000
"""FoundationDB's versions advance by about this many a second while the cluster is well."""


class Clock:
    """The clocks of this machine and its database; tests replace them.

    Nothing relies on two machines' wall clocks agreeing better than to the length of a lease or a
    delay: a clock that is ahead makes delays end early by as much, one that is behind makes
    lapsed leases return late by as much.
    """

    def wall_ms(self) -> int:
        """The wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def version(self, tr: fdb.Transaction) -> int:
        """The transaction's read version; the first read of a transaction fetches it anyway."""
        return int(tr.get_read_version().wait())


SYSTEM_CLOCK = Clock()
