"""What a stream can browse: ready messages by level, and logs, which only grow at their end.

A place is the rest of a key, behind the prefix of its level; a log is level 0. What is passed here
is complete: nothing comes in before it later. So tasks can read it, in other transactions.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ...messages.run import NOWHERE
from ...messages.streams import planning
from ...messages.streams.planning import BatchLimits
from ...schema.envelope import open_envelope
from ...schema.keys import LOWEST, QueueKeys
from ...schema.records import DeadLetter, HistoryLine
from ...schema.scope import Scope
from ...store.binding import fdb
from ...store.clocks import VERSIONS_PER_SECOND
from ...subscriptions import external_cursors
from ...subscriptions.external_cursors import PassedMessages
from ...subscriptions.start_position import FIRST
from .places import Places
from .tables import HISTORY

SETTLED = 5 * VERSIONS_PER_SECOND
"""The age of the oldest transaction that may still commit: a dead letter has the version at which
its transaction reads."""


class BrowsedReady(Struct, frozen=True):
    """Ready messages. Each move fences: no later enqueue commits a message before that place."""

    part: str = "ready"

    def prefix(self, keys: QueueKeys, level: int) -> bytes:
        """What the keys of a level begin with."""
        return keys.levels[level].ready

    def at_ms(self, value: bytes) -> int:
        """The time of what is stored."""
        return open_envelope(value).enqueued_at_ms

    def count(self, values: Iterable[bytes]) -> int:
        """How many rows of the table some rows of the store are."""
        return sum(1 for _ in values)

    def begin(self, tr: fdb.Transaction, scope: Scope, places: Places) -> dict[int, bytes]:
        """The places where a stream begins, by level."""
        found: dict[int, bytes] = {}
        for level, place in places:
            some = external_cursors.begin(tr, scope, place)
            found |= some if level is None else {level: some.get(level, LOWEST)}
        return found

    def ends(self, tr: fdb.Transaction, scope: Scope) -> dict[int, int]:
        """How far each level reaches now."""
        return planning.ends(tr, scope)

    def reached(self, place: bytes) -> int:
        """What ``ends`` is at least, if a stream has come to a place."""
        return QueueKeys.parse_place(place)

    def advance(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        before: PassedMessages,
        limits: BatchLimits,
    ) -> PassedMessages:
        """Move the places on; see ``external_cursors.advance``."""
        return external_cursors.advance(tr, scope, before, limits)

    def lost(self, tr: fdb.Transaction, scope: Scope, place: bytes, seen: int) -> bool:
        """Whether rows behind a place may be gone that no batch had. seen: the version at which
        there were none. What is taken from the queue is not lost."""
        return False


class Log(BrowsedReady, frozen=True):
    """Dead letters, or the lines of the history."""

    part: str

    def prefix(self, keys: QueueKeys, level: int) -> bytes:
        return keys.event.prefix if self.part == HISTORY else keys.dead.prefix

    def at_ms(self, value: bytes) -> int:
        if self.part == HISTORY:
            return HistoryLine.unpack(value).at_ms
        return DeadLetter.opened(value, NOWHERE).died_at_ms

    def count(self, values: Iterable[bytes]) -> int:
        if self.part == HISTORY:
            return sum(len(HistoryLine.unpack(each).events) for each in values)
        return super().count(values)

    def begin(self, tr: fdb.Transaction, scope: Scope, places: Places) -> dict[int, bytes]:
        ((_, place),) = places
        return {0: LOWEST if place.name == FIRST else self._before(scope, scope.version(tr) + 1)}

    def ends(self, tr: fdb.Transaction, scope: Scope) -> dict[int, int]:
        return {0: scope.version(tr) + 1}

    def reached(self, place: bytes) -> int:
        return 0

    def advance(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        before: PassedMessages,
        limits: BatchLimits,
    ) -> PassedMessages:
        place = before.places.get(0, LOWEST)
        end = scope.version(tr) + 1 if limits.ends is None else limits.ends[0]
        if self.part != HISTORY:
            # A letter has the version at which its transaction read, and may commit up to five
            # seconds later, behind a place that was passed.
            end = min(end, scope.version(tr) - SETTLED)
        prefix = self.prefix(scope.keys, 0)
        found = tr.snapshot.get_range(prefix + place, prefix + self._before(scope, end))
        rows = ((0, kv.key, *self._weigh(kv.value)) for kv in found)
        return external_cursors.pass_over(rows, {0: prefix}, before, limits)

    def _weigh(self, value: bytes) -> tuple[int, int]:
        """How many messages a row has, and how many bytes."""
        if self.part == HISTORY:
            return self.count([value]), len(value)
        return 1, len(value) + DeadLetter.opened(value, NOWHERE).envelope.chunk_bytes

    def lost(self, tr: fdb.Transaction, scope: Scope, place: bytes, seen: int) -> bool:
        kept = scope.options.history_seconds
        if self.part != HISTORY or place == LOWEST or kept is None:
            return False
        seen = max(seen, int.from_bytes(place[scope.keys.event.VERSION]))
        last = self.prefix(scope.keys, 0) + place.removesuffix(b"\x00")
        return (
            seen < scope.version(tr) - int(kept * VERSIONS_PER_SECOND)
            # The last line that a batch had is still there: then none behind it has been trimmed.
            and not tr.snapshot[last].present()
        )

    def _before(self, scope: Scope, version: int) -> bytes:
        """The place before all that has a version, or a later one."""
        if self.part == HISTORY:
            return scope.keys.event.stamp_before(version)
        return scope.keys.dead(version, b"")[len(scope.keys.dead.prefix) :]


TABLES: dict[str, BrowsedReady] = {
    "ready": BrowsedReady(),
    "dead": Log("dead"),
    HISTORY: Log(HISTORY),
}
"""The tables that a stream can browse."""
