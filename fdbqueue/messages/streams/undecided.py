"""Staged rows of batches that are not fixed yet.

Their write is running, or its driver has died. Only the time of the last row can tell which: after
a week without new rows they are removed.
"""

from __future__ import annotations

from msgspec import Struct

from ...schema.keys import QueueKeys
from ...schema.scope import Scope
from ...schema.streams import SinkState, StagedAttempt
from ...store.binding import fdb, transactional
from . import staging

KEPT_DAYS = 7
PAGE = 1_000
"""How many attempts one transaction reads."""

_DAY_MS = 24 * 3600 * 1000


Staged = tuple[str, int, bytes, StagedAttempt]
"""An attempt's sink, batch and name, and what it has staged."""


class Undecided(Struct, frozen=True):
    """A sink's undecided rows: how many attempts (some may have the same rows), how many rows and
    bytes of payloads, and the wall clock of the last."""

    attempts: int = 0
    rows: int = 0
    size: int = 0
    changed_at_ms: int = 0

    def plus(self, other: StagedAttempt) -> Undecided:
        """With one more attempt."""
        return Undecided(
            self.attempts + 1,
            self.rows + other.rows,
            self.size + other.size,
            max(self.changed_at_ms, other.changed_at_ms),
        )


def page(tr: fdb.Transaction, keys: QueueKeys, begin: bytes) -> tuple[list[Staged], bytes]:
    """A page of attempts of batches that are not fixed, from a key on (empty: the first), and the
    key to continue from. Two round trips, snapshot reads: no conflicts."""
    every = keys.attempt.rows
    found = tr.snapshot.get_range(begin or every.start, every.stop, limit=PAGE).to_list()
    rows = [(*keys.attempt.parse(kv.key), StagedAttempt.unpack(kv.value)) for kv in found]
    reads = {sink: tr.snapshot.get(keys.sink(sink)) for sink, _, _, _ in rows}
    states = {sink: SinkState.unpack(read.value) for sink, read in reads.items()}
    following = found[-1].key + b"\x00" if len(found) == PAGE else b""
    return [row for row in rows if not staging.fixed(states[row[0]], row[1])], following


@transactional
def expire(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """Remove rows of attempts that are a week old, a page from a key on.

    Returns how many rows were removed, and the key to continue from. Conflicts with transactions
    that fix one of these batches, or add rows.
    """
    keys, removed = scope.keys, 0
    before_ms = scope.now_ms(tr) - KEPT_DAYS * _DAY_MS
    attempts, following = page(tr, keys, begin)
    for sink, batch, name, attempt in attempts:
        if attempt.changed_at_ms < before_ms:
            tr.add_read_conflict_key(keys.sink(sink))
            tr.add_read_conflict_key(keys.attempt(sink, batch, name))
            staging.remove(tr, keys, sink, batch, name)
            removed += attempt.rows
    return removed, following
