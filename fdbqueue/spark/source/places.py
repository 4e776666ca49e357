"""Places in a queue as options name them: ``startingOffsets`` and ``endingOffsets``."""

from __future__ import annotations

import json

from ...errors import InvalidOptions
from ...schema.keys import LOWEST
from ...schema.scope import Scope
from ...store.binding import fdb
from ...subscriptions.start_position import FIRST, StartPosition

Places = tuple[tuple[int | None, StartPosition], ...]
"""Places by level; None for all levels."""


def named(option: str, text: str) -> Places:
    """The places that an option names. Raises ``InvalidOptions``, ``InvalidArgument``."""
    if not text.startswith("{"):
        return ((None, StartPosition.of(option, text)),)
    try:
        levels = dict[str, object](json.loads(text))
        places = {int(level): StartPosition.of(option, name) for level, name in levels.items()}
    except ValueError:
        raise InvalidOptions(
            option=option, problem=f'{text!r} is not JSON like {{"0": "now", "5": "first"}}'
        ) from None
    for level, place in places.items():
        if place.position is not None and place.position.level != level:
            raise InvalidOptions(option=option, problem=f"{place.name} is not of level {level}")
    return tuple(places.items())


def check(places: Places, levels: int) -> None:
    """Raise ``InvalidOptions`` if there are no such levels."""
    for level, place in places:
        if (level or 0) not in range(levels):
            raise InvalidOptions(option=place.argument, problem=f"the levels are 0 to {levels - 1}")


def find(tr: fdb.Transaction, scope: Scope, places: Places) -> dict[int, bytes]:
    """The places by level. Snapshot reads. Raises what ``StartPosition.find`` raises."""
    found: dict[int, bytes] = {}
    for level, place in places:
        if place.name == FIRST:
            some = dict.fromkeys(range(scope.options.levels), LOWEST)
        else:
            some = {each: cursor for each, (cursor, _) in place.find(tr, scope).items()}
        found |= some if level is None else {level: some[level]}
    return found
