"""Where a subscription starts, or seeks to."""

from __future__ import annotations

from ..errors import InvalidArgument
from ..schema.scope import Scope
from ..schema.subscription_definitions import Definition, Mode
from ..store.binding import fdb
from ..values.model import Position
from ..values.records import record
from . import registry

FIRST, NOW = "first", "now"


@record
class Place:
    """A place in a queue as an argument names it; ``position`` is that of a message id."""

    argument: str
    name: str
    position: Position | None

    @classmethod
    def of(cls, argument: str, name: object) -> Place:
        """ "first", "now" or the id of a message; raises ``InvalidArgument``."""
        if not isinstance(name, str):
            raise InvalidArgument(
                argument=argument, value=name, problem='must be "first", "now" or a message id'
            )
        return cls(argument, name, None if name in (FIRST, NOW) else Position.from_id(name))

    def check(self, definition: Definition) -> None:
        """Raises ``InvalidArgument`` if the subscription cannot go there."""
        if self.name != FIRST and definition.mode is Mode.ACQUIRE and not definition.skips:
            raise InvalidArgument(
                argument=self.argument,
                value=self.name,
                problem='a subscription that takes every message always starts at "first"',
            )

    def seek(self, tr: fdb.Transaction, scope: Scope, subscription: str) -> None:
        """Move a subscription there."""
        if self.position is not None:
            registry.seek(tr, scope, subscription, self.position)
        elif self.name == NOW:
            registry.forward(tr, scope, subscription)
        else:
            registry.rewind(tr, scope, subscription)
