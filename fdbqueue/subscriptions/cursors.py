"""Cursors: how far a subscription has come in each level.

A cursor is the next place to read; the message there may be gone. A fence makes a move safe. The
move reads the cursor and the skipped messages with conflicts, raises TAIL to the last skipped
index, and writes the FENCE keys up to it as a conflict range. An enqueue that takes one of these
indexes either commits first, and the move fails and sees its message, or it commits later, and
fails because it read its FENCE key, and takes a higher index.

The read conflicts cover only the gaps between messages, where another could appear. A skipped
message may be taken or removed, and one that returns moves the cursor itself, so a cursor and the
consumers ahead of it do not conflict. The gap behind the last message counts only for callers that
rely on the end; otherwise a cursor at the end of a busy queue would conflict with every arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..messages import run
from ..messages.place import fence
from ..schema.keys import LOWEST, QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Position

MAX_SCANNED = 1_000
"""The most messages that one transaction reads."""
MAX_SCANNED_BYTES = 2_000_000
"""How many bytes of messages one transaction reads before it stops."""

_FIRST_PAGE = 16
_PAGE = 100


class CursorScan:
    """A scan from the cursors of a subscription on, the most urgent level first.

    Yields ready messages in order until ``ended``, or as many as one transaction reads. Each step
    adds read conflicts: no other message may appear before the yielded one in its level.
    ``places`` are those of the cursors, by level. ``reached`` is the place behind the last yielded
    message, by level. After ``glance``, steps add no conflicts, and cursors move no further.
    Without a name of a subscription, it begins where ``resume`` says, or at the front.

    Two round trips, for the cursors and for the first messages of all levels, and one more for
    each further page of a level, or as many bytes of one as a round trip brings.
    """

    def __init__(
        self,
        tr: fdb.Transaction,
        scope: Scope,
        subscription: str,
        first_page: int,
        resume: Mapping[int, bytes] | None = None,
    ) -> None:
        self._tr = tr
        self._scope = scope
        self._subscription = subscription
        self._page = min(max(first_page, 4), _FIRST_PAGE)
        self._ends: list[tuple[bytes, bytes]] = []
        self._count = self._bytes = 0
        self._resume = resume or {}
        self.places: dict[int, bytes] = {}
        self.reached: dict[int, bytes] = {}
        self.passed: dict[int, int] = {}
        self.ended = False
        self._glances = False

    def __iter__(self) -> Iterator[StoredMessage]:
        places = dict.fromkeys(range(self._scope.options.levels), LOWEST)
        if self._subscription:
            places = positions(self._tr, self._scope, self._subscription)
        self.places = places = {**places, **self._resume}
        # All levels at once: whether the urgent ones are empty is known in the same round trip.
        pages = {level: self._read(level, place, self._page) for level, place in places.items()}
        for level, place in places.items():
            for message, stored in self._level(level, place, pages[level]):
                self._count += 1
                self._bytes += stored
                yield message
                if self._count >= MAX_SCANNED or self._bytes >= MAX_SCANNED_BYTES:
                    return
        self.ended = True

    def _read(self, level: int, place: bytes, limit: int) -> fdb.FDBRange:
        within = self._scope.keys.ready_from(level, place)
        return self._tr.snapshot.get_range(
            within.start, within.stop, limit=limit, streaming_mode=fdb.StreamingMode.want_all
        )

    def _level(
        self, level: int, place: bytes, page: fdb.FDBRange
    ) -> Iterator[tuple[StoredMessage, int]]:
        keys, limit = self._scope.keys, self._page
        if self._subscription and not self._glances:
            # The cursors were read at snapshot isolation, all levels at once; only those of levels
            # that are scanned conflict, so consumers in urgent levels do not disturb each other
            # below.
            self._tr.add_read_conflict_key(keys.cursor(self._subscription, level))
        self.reached[level] = place
        gap = keys.ready_from(level, place)
        while True:
            count = 0
            for kv in page:
                count += 1
                for one in run.ready(keys, [kv], gap.start):
                    message = one.message
                    # No message can appear within a block.
                    # The gap only: the message itself may be taken by others, which does not change
                    # what was skipped.
                    self._exclude(gap.start, run.row_of(message).span.start)
                    self.reached[level] = behind(keys, one.position)
                    self.passed[level] = one.position.index
                    gap = keys.ready_from(level, self.reached[level])
                    yield message, len(one.value)
            # Kept aside: most callers rely on no end, and each arrival would break this conflict.
            if count < limit:
                if not self._glances:
                    self._ends.append((gap.start, gap.stop))
                return
            limit = _PAGE
            page = self._read(level, self.reached[level], limit)

    def _exclude(self, begin: bytes, end: bytes) -> None:
        if begin < end and not self._glances:
            self._tr.add_read_conflict_range(begin, end)

    def rely_on_ends(self) -> None:
        """Conflict with arrivals in every level that was read to its end."""
        for begin, end in self._ends:
            self._exclude(begin, end)

    def leave(self, message: StoredMessage) -> None:
        """The message that was yielded last stays before the cursor."""
        self.reached[message.position.level] = self._scope.keys.place(message.position)

    def glance(self) -> None:
        """From now on only look: the caller relies on nothing that follows."""
        self._glances = True

    def move(self, level: int) -> None:
        """Move the level's cursor behind the last yielded message."""
        if level in self.passed:
            place, index = self.reached[level], self.passed[level]
            put(self._tr, self._scope.keys, self._subscription, level, place, index)


def put(
    tr: fdb.Transaction, keys: QueueKeys, subscription: str, level: int, place: bytes, index: int
) -> None:
    """Set a cursor to a place behind all indexes before ``index`` and perhaps a part of ``index``.

    The caller has read the messages before it. Concurrent enqueues at these indexes fail, and TAIL
    allows no new ones there.
    """
    tr[keys.cursor(subscription, level)] = place
    fence(tr, keys, level, index)


def behind(keys: QueueKeys, position: Position) -> bytes:
    """The first place behind a position."""
    return keys.place(position) + b"\x00"


def positions(tr: fdb.Transaction, scope: Scope, subscription: str) -> dict[int, bytes]:
    """The cursors, by level. A snapshot read; the caller adds conflicts as needed."""
    cursors = scope.keys.cursor.under(subscription)
    found = {
        scope.keys.cursor.parse(kv.key)[1]: kv.value
        for kv in tr.snapshot.get_range(cursors.start, cursors.stop)
    }
    return {level: found.get(level, LOWEST) for level in range(scope.options.levels)}
