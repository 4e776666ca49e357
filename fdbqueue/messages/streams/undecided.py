"""Staged rows of which nobody has decided yet whether they count.

They are of a write that runs, or of one whose driver died. Which of the two cannot be told from
what is stored, only for how long nothing was added: after a week they are removed.
"""

from __future__ import annotations

from ...schema.codec.sinks import StagedAttempt, unpack_attempt, unpack_sink
from ...schema.keys import Kind, QueueKeys
from ...schema.scope import Scope
from ...store.binding import fdb, transactional
from ...values.records import record
from . import staging

KEPT_DAYS = 7
PAGE = 1_000
"""Attempts that one transaction looks at."""

_DAY_MS = 24 * 3600 * 1000


Staged = tuple[str, int, bytes, StagedAttempt]
"""The sink, the batch and the name of an attempt, and what it has staged."""


@record
class Undecided:
    """What is staged for a sink and not decided: by how many attempts, some of which may have the
    same rows; how many rows in all, with how many bytes of payloads; and the wall clock when the
    last of them came."""

    attempts: int = 0
    rows: int = 0
    size: int = 0
    changed_at_ms: int = 0

    def plus(self, other: StagedAttempt) -> Undecided:
        """With one attempt more."""
        return Undecided(
            self.attempts + 1,
            self.rows + other.rows,
            self.size + other.size,
            max(self.changed_at_ms, other.changed_at_ms),
        )


def page(tr: fdb.Transaction, keys: QueueKeys, begin: bytes) -> tuple[list[Staged], bytes]:
    """Some attempts of batches that are not fixed, from a key on (empty: the first), and the key
    to go on from. Two round trips, snapshot reads: no conflicts."""
    every = keys.kind(Kind.ATTEMPT)
    found = tr.snapshot.get_range(begin or every.start, every.stop, limit=PAGE).to_list()
    rows = [(*keys.parse_attempt(kv.key), unpack_attempt(kv.value)) for kv in found]
    looks = {sink: tr.snapshot.get(keys.sink(sink)) for sink, _, _, _ in rows}
    states = {sink: unpack_sink(look.value) for sink, look in looks.items()}
    following = found[-1].key + b"\x00" if len(found) == PAGE else b""
    return [row for row in rows if not staging.fixed(states[row[0]], row[1])], following


@transactional
def expire(tr: fdb.Transaction, scope: Scope, begin: bytes) -> tuple[int, bytes]:
    """Remove what has been staged for a week, from a key on, as far as one transaction looks.

    Returns how many rows were removed, and the key to go on from. Conflicts with whoever fixes one
    of their batches, or goes on with one of them.
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
