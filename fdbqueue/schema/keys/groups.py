"""The keys of groups: which messages of each are left, and how many ended in which way."""

from __future__ import annotations

from zlib import crc32

from ...store.binding import fdb
from .kinds import Kind, KindKeys, within

HASHES = 2**32
"""Members stand by the hashes of their ids, which are below this."""
SHARDS = 16
"""Over how many keys the counters of a group are spread."""
_MEMBERS, _COUNTERS, _SETTLES = 0, 1, 2


class GroupKeys:
    """The keys of the groups of a queue.

    record: (group). due: (time in ms, group), when to look at a group.
    """

    def __init__(self, prefix: bytes) -> None:
        self.record: KindKeys[str] = KindKeys.of(prefix, Kind.GROUP, 0)
        self.due: KindKeys[int, str] = KindKeys.of(prefix, Kind.GROUP, 1)
        self.first_due = fdb.KeySelector.first_greater_or_equal(self.due.begin(0))
        self._member: KindKeys[str, int, int, str] = KindKeys.of(prefix, Kind.GROUP, 3)
        self._counters: KindKeys[str, int, int] = KindKeys.of(prefix, Kind.GROUP, 2)
        self._any: KindKeys[object, object, object, object]
        self._any = KindKeys(prefix, object, object, object, object, least=1)

    def member(self, group: str, message_id: str) -> bytes:
        """(group, 0, hash, message): the hash spreads them evenly, whatever the ids."""
        return self._member(group, _MEMBERS, crc32(message_id.encode()), message_id)

    def seal(self, group: str) -> bytes:
        """(group, 0, 2**32, ""): a member for as long as more are to come, behind all others."""
        return self._member(group, _MEMBERS, HASHES, "")

    def members(self, group: str) -> slice:
        """The members that are left."""
        return self._member.under(group, _MEMBERS)

    def members_from(self, group: str, point: int) -> bytes:
        """Where the members begin whose hashes are ``point`` or more."""
        return self._member.begin(group, _MEMBERS, point)

    def counters(self, group: str, message_id: str) -> bytes:
        """(group, 1, shard): the counters to which a member adds."""
        return self._counters(group, _COUNTERS, crc32(message_id.encode()) % SHARDS)

    def all_counters(self, group: str) -> slice:
        """All counters of a group."""
        return self._counters.under(group, _COUNTERS)

    def settles(self, group: str) -> bytes:
        """(group, 2, 0): there if a member leaves the group also as it dies. The record tells it,
        too, but is as large as the callback."""
        return self._counters(group, _SETTLES, 0)

    def all_of(self, group: str) -> slice:
        """All keys of a group, but that of when to look at it."""
        begin = self.record(group)
        return slice(begin, within(begin).stop)

    def named(self, after: str | None) -> slice:
        """The groups behind a name, with all keys of each."""
        begin = within(self.record.prefix).start if after is None else self.all_of(after).stop
        return slice(begin, self.due.begin(0))

    def all_due(self) -> slice:
        """The groups to look at, at any time."""
        return slice(self.due.begin(0), within(self.due.prefix).stop)

    def due_before(self, time_ms: int) -> slice:
        """The groups to look at before a time."""
        return slice(self.due.begin(0), self.due.begin(time_ms))

    def parse(self, key: bytes) -> tuple[str | None, str | None]:
        """The group that a key names, and the member, "" for the seal; None where it names none.

        Raises ``CorruptData``.
        """
        group, *rest = self._any.parse(key)
        if not isinstance(group, str):
            return None, None
        member = rest[2] if len(rest) == 3 and rest[0] == _MEMBERS else None
        return group, member if isinstance(member, str) else None
