"""Dead letters: messages that are delivered no more, kept for a person to look at."""

from __future__ import annotations

from ..binding import fdb
from ..codec import DeadLetter, pack_dead
from ..states import Transition
from . import life
from .scope import Scope, Standing


@fdb.transactional
def bury(
    tr: fdb.Transaction, scope: Scope, transition: Transition, message: Standing, reason: str
) -> None:
    """Put a message, already removed from where it stood, among the dead letters.

    They are ordered by the read version at which they died. Writes blindly.
    """
    version = scope.clock.version(tr)
    letter = DeadLetter(message.envelope, reason, scope.clock.wall_ms())
    tr[scope.keys.dead(version, message.position.random)] = pack_dead(letter, message.position)
    life.moved(tr, scope, transition, [message])
