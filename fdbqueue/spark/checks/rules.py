"""What is known of the queues of a run, beside its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from ...errors import CorruptData
from ...values.records import record


@record
class Rules:
    """What must hold in a run of tools/chaos.

    max_attempts: of every queue. min_lease_ns: a little less than the shortest lease.
    lease_ns: for how long whoever was killed may still hold what he did not tell.
    early_ms: by how much a delivery may seem to come too early, since clocks are wrong.
    strict: the queues that keep order. exact: those of them that keep it at every commit.
    handled: the queues with a handler, which may see a delivery several times.
    filtered: the queue that is taken from by selectors. watched: the queue that is browsed.
    browsers: the browsers, and the region that each is about; empty where all.
    relaxed: the queues that keep order within a window only, and its size at the beginning.
    """

    max_attempts: int
    min_lease_ns: int
    lease_ns: int
    early_ms: int
    strict: tuple[str, ...]
    exact: tuple[str, ...]
    handled: tuple[str, ...]
    filtered: str
    watched: str
    browsers: Mapping[str, str] = field(default_factory=dict)
    relaxed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Rules:
        """From what a history says of itself. Raises ``CorruptData``."""
        try:
            values: dict[str, Any] = {each.name: told[each.name] for each in fields(cls)}
        except KeyError as error:
            raise CorruptData(what="the rules of a run", problem=f"no {error.args[0]}") from None
        made: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**made)
