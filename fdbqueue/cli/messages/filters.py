"""Which messages a command is about: the filters that listing and changing share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

import fdbqueue

if TYPE_CHECKING:
    from fdbqueue.values.selector.search import Search

from .. import durations, terminal
from ..parameters import Match, option

Wanted = Callable[["fdbqueue.Message"], bool]


@dataclass
class Filters:
    """Which messages of a queue; by default all of a state."""

    match: Match = None
    level: list[int] | None = option("N", "Only this level; 0 is the most urgent. Repeatable.")
    reason: str | None = option("TEXT", "Only dead letters whose reason has this text.")
    error: str | None = option("TEXT", "Only those whose last error has this text.")
    since: datetime | None = durations.moment_option(
        "Only dead letters that died since: 2030-01-31T08:00, or 2h for 2 h ago."
    )
    until: datetime | None = durations.moment_option("Only dead letters that died before this.")

    @property
    def given(self) -> bool:
        """Whether any filter is given."""
        return any(getattr(self, each.name) not in (None, []) for each in fields(Filters))

    @property
    def of_death(self) -> bool:
        """Whether only dead letters can pass."""
        return (self.reason, self.since, self.until) != (None, None, None)

    def search(self) -> Search | None:
        """The condition of --match; raises ``InvalidSelector``."""
        from fdbqueue.values.selector.search import Search

        return None if self.match is None else Search(self.match)

    def wanted(self, search: Search | None) -> Wanted:
        """Whether a message passes, given what ``search`` returned."""
        # Once for all: the age of a message must not depend on when its page was read.
        now_ms = fdbqueue.Clock().wall_ms()
        since, until = (
            None if at is None else at.timestamp() * 1000 for at in (self.since, self.until)
        )
        of_death = self.of_death

        def passes(message: fdbqueue.Message) -> bool:
            death = message.death
            if of_death and (
                death is None
                or (self.reason or "") not in death.reason
                or (since is not None and death.died_at_ms < since)
                or (until is not None and death.died_at_ms >= until)
            ):
                return False
            return (
                (self.error or "") in (message.last_error or "")
                and (not self.level or message.level in self.level)
                and (search is None or search.matches(message, now_ms))
            )

        return passes

    def check(self, db: fdbqueue.fdb.Database, queue: fdbqueue.Queue) -> None:
        """Raise for a level that the queue does not have, and for a queue that is not there."""
        levels = queue.options(db).levels
        for level in self.level or []:
            if not 0 <= level < levels:
                raise terminal.CommandError(f"--level {level}: the levels are 0 to {levels - 1}")
