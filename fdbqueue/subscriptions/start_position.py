"""Where a subscription starts, or seeks to."""

from __future__ import annotations

from msgspec import Struct

from ..errors import InvalidArgument
from ..messages import place
from ..schema.consumers import Definition, Mode
from ..schema.scope import Scope
from ..store.binding import fdb
from ..values.model import Position
from . import creation, cursors

FIRST, NOW = "first", "now"


class StartPosition(Struct, frozen=True):
    """A place in a queue as an argument names it; ``position`` is that of a message's id."""

    argument: str
    name: str
    position: Position | None

    @classmethod
    def of(cls, argument: str, name: object) -> StartPosition:
        """ "first", "now" or the id of a message; raises ``InvalidArgument``."""
        try:
            if isinstance(name, str):
                return cls(argument, name, None if name in (FIRST, NOW) else Position.from_id(name))
        except InvalidArgument:
            pass
        raise InvalidArgument(
            argument=argument, value=name, problem='must be "first", "now" or a message id'
        ) from None

    def check(self, definition: Definition) -> None:
        """Raises ``InvalidArgument`` if the subscription cannot go there."""
        if self.name != FIRST and definition.mode is Mode.ACQUIRE and not definition.skips:
            raise InvalidArgument(
                argument=self.argument,
                value=self.name,
                problem='a subscription that takes every message always starts at "first"',
            )

    def find(self, tr: fdb.Transaction, scope: Scope) -> dict[int, tuple[bytes, int]]:
        """The cursors of this place by level, each with the last index before it.

        One round trip, snapshot reads: a message that commits before a fence at that index is
        skipped like the others; one that commits later takes a higher index, if need be after a
        retry. Raises ``InvalidArgument`` for a level that the queue does not have, and in a sorted
        queue.
        """
        keys, position = scope.keys, self.position
        if scope.options.sort is not None:
            raise InvalidArgument(
                argument=self.argument,
                value=self.name,
                problem='in a sorted queue a message may come in anywhere: start at "first"',
            )
        if position is not None and position.level >= scope.options.levels:
            raise InvalidArgument(
                argument=self.argument, value=self.name, problem="the queue has no such level"
            )
        levels = range(scope.options.levels) if position is None else (position.level,)
        ends = {level: place.reads(tr, keys, level) for level in levels}
        found = {}
        for level, end in ends.items():
            following = place.next_index(keys.levels[level], *end)
            if position is not None and position.index < following:
                found[level] = keys.place(position), position.index
            else:
                # Indexes that were never used must stay usable.
                found[level] = keys.place(Position(level, following, b"")), following - 1
        return found

    def seek(self, tr: fdb.Transaction, scope: Scope, subscription: str) -> None:
        """Move a subscription there."""
        if self.name == FIRST:
            creation.rewind(tr, scope, subscription)
            return
        for level, (cursor, index) in self.find(tr, scope).items():
            cursors.put(tr, scope.keys, subscription, level, cursor, index)
