"""Cursors: how far a subscription has come in each level, and how it moves on.

A cursor holds the next place to inspect, and no pointer into any list: what it points at may be
gone. What makes a move safe is a fence. The move reads the cursor and the messages that it passes
with conflicts; it raises TAIL to the index that it passes, and writes the FENCE keys up to it as a
conflict range. A message that was about to take one of these indexes either commits first, and
then the move fails and sees it, or commits later, and then its enqueue fails, since it read its
FENCE key, and takes a higher index.

The read conflicts leave out the messages themselves: only the gaps between them matter, where
another might appear. One that is taken or removed meanwhile is no harm to whoever passes it, and
one that comes back moves the cursor itself; so a cursor and the consumers before it do not
disturb each other. The gap behind the last message matters only to who relies on there being no
more: else a cursor at the end of a busy queue would conflict with every arrival, and never move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..schema.codec.atomic import pack_index
from ..schema.codec.envelopes import open_envelope
from ..schema.keys import LOWEST, QueueKeys
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb, transactional
from ..values.model import Position

MAX_WALKED = 1_000
"""Messages that one transaction inspects at most."""
MAX_WALKED_BYTES = 2_000_000
"""Bytes of messages after which a transaction inspects no more."""

_FIRST_PAGE = 16
_PAGE = 100


class Walk:
    """One transaction's way from the cursors of a subscription on, the most urgent level first.

    Iterating gives the ready messages in order, until ``ended`` (there are no more) or as many as
    one transaction inspects. Whoever goes on to a message depends on there being no other before
    it in its level: the read conflicts say just that, and grow with the iteration. ``reached`` has
    the place behind the last message given, per level; it is the next place to inspect.

    Two round trips, one for the cursors and one for the first messages of all levels, and one for
    each further page of a level.
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
        self.reached: dict[int, bytes] = {}
        self.passed: dict[int, int] = {}
        self.ended = False

    def __iter__(self) -> Iterator[StoredMessage]:
        places = {**places_of(self._tr, self._scope, self._subscription), **self._resume}
        pages = {level: self._read(level, place, self._page) for level, place in places.items()}
        for level, place in places.items():
            for standing, stored in self._level(level, place, pages[level]):
                self._count += 1
                self._bytes += stored
                yield standing
                if self._count >= MAX_WALKED or self._bytes >= MAX_WALKED_BYTES:
                    return
        self.ended = True

    def _read(self, level: int, place: bytes, limit: int) -> fdb.FDBRange:
        within = self._scope.keys.ready_from(level, place)
        return self._tr.snapshot.get_range(
            within.start, within.stop, limit=limit, streaming_mode=fdb.StreamingMode.exact
        )

    def _level(
        self, level: int, place: bytes, page: fdb.FDBRange
    ) -> Iterator[tuple[StoredMessage, int]]:
        """The messages of a level, and how many bytes were read for each."""
        keys, limit = self._scope.keys, self._page
        self._tr.add_read_conflict_key(keys.cursor(self._subscription, level))
        self.reached[level] = place
        gap = keys.ready_from(level, place)
        while True:
            found = page.to_list()
            for kv in found:
                self._exclude(gap.start, kv.key)
                position = keys.parse_ready(kv.key)
                self.reached[level] = behind(keys, position)
                self.passed[level] = position.index
                gap = keys.ready_from(level, self.reached[level])
                yield StoredMessage(position, open_envelope(kv.value)), len(kv.value)
            if len(found) < limit:
                self._ends.append((gap.start, gap.stop))
                return
            # As many as there is room for, by the size of those before.
            left = MAX_WALKED_BYTES - self._bytes
            limit = min(_PAGE, max(4, left * self._count // max(self._bytes, 1)))
            page = self._read(level, self.reached[level], limit)

    def _exclude(self, begin: bytes, end: bytes) -> None:
        if begin < end:
            self._tr.add_read_conflict_range(begin, end)

    def rely_on_ends(self) -> None:
        """Depend on there being no more, in every level that was walked to its end."""
        for begin, end in self._ends:
            self._exclude(begin, end)

    def move(self, level: int) -> None:
        """Move the level's cursor behind the last message that was given."""
        if level in self.passed:
            place, index = self.reached[level], self.passed[level]
            put(self._tr, self._scope.keys, self._subscription, level, place, index)


def put(
    tr: fdb.Transaction, keys: QueueKeys, subscription: str, level: int, place: bytes, index: int
) -> None:
    """Set a cursor to a place that has passed all indexes up to ``index`` or a part of it.

    Whoever has read what lies before calls this; an enqueue at one of these indexes that is under
    way fails, and TAIL lets none begin there any more, whatever becomes of what was passed.
    """
    tr[keys.cursor(subscription, level)] = place
    fence(tr, keys, level, index)


def fence(tr: fdb.Transaction, keys: QueueKeys, level: int, index: int) -> None:
    """Let no message come in at an index up to ``index`` any more. Writes blindly."""
    tr.max(keys.tail(level), pack_index(index))
    tr.add_write_conflict_range(keys.fence(level, 0), keys.fence(level, index + 1))


def behind(keys: QueueKeys, position: Position) -> bytes:
    """The first place behind a position."""
    return keys.place(position) + b"\x00"


@transactional
def places_of(tr: fdb.Transaction, scope: Scope, subscription: str) -> dict[int, bytes]:
    """Where the cursors stand, by level. A snapshot read; the caller adds conflicts as needed."""
    cursors = scope.keys.cursors(subscription)
    found = {
        scope.keys.parse_cursor(kv.key)[1]: kv.value
        for kv in tr.snapshot.get_range(cursors.start, cursors.stop)
    }
    return {level: found.get(level, LOWEST) for level in range(scope.options.levels)}
